//! Any text: reading ends, and a refusal names at least one error, inside the text.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if text.len() > fabro_fuzz::MAX_INPUT {
        return;
    }
    match fabro_config::parse(text) {
        Ok((config, _)) => {
            let json = serde_json::to_string(&config.inputs).expect("inputs are JSON");
            let again = serde_json::from_str(&json).expect("inputs nest no deeper than JSON may");
            assert_eq!(config.inputs, again);
        }
        Err(findings) => {
            assert!(!findings.is_empty());
            assert!(findings.iter().all(|finding| finding.span.end <= text.len()));
        }
    }
    let _ = fabro_config::parse_settings(text);
});
