//! Any text: extraction ends, and every span it names is in the text.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for (span, object) in fabro_routing::json_objects(text) {
        assert_eq!(text.get(span), Some(object));
    }
    if let Some(extracted) = fabro_routing::extract(text) {
        assert!(text.get(extracted.span).is_some());
    }
});
