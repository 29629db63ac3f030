//! Any text: extraction ends, and every span it names is in the text; what is checked is valid, or
//! the message about it is bounded. Any text is also a schema, or refused.
#![no_main]

use fabro_routing::{Checked, Expected, Schema, check, feedback};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if text.len() > fabro_fuzz::MAX_INPUT {
        return;
    }
    for (span, object) in fabro_routing::json_objects(text) {
        assert_eq!(text.get(span), Some(object));
    }
    if let Some(extracted) = fabro_routing::extract(text) {
        assert!(text.get(extracted.span).is_some());
    }
    checked(text, Expected::Routing);
    if let Some((json, answer)) = text.split_once('\u{1}')
        && let Ok(schema) = Schema::compile(json)
    {
        checked(answer, Expected::Schema(&schema));
    }
});

fn checked(text: &str, expected: Expected<'_>) {
    let checked = check(text, expected);
    let said = feedback(&checked, expected);
    assert_eq!(said.is_empty(), matches!(checked, Checked::Valid(_)));
    assert!(said.len() < 100_000);
}
