//! Any text: parsing and evaluation end, and what parses prints as the same condition.
#![no_main]

use std::collections::BTreeMap;

use fabro_condition::Condition;
use libfuzzer_sys::fuzz_target;
use serde_json::json;

fuzz_target!(|text: &str| {
    if text.len() > fabro_fuzz::MAX_INPUT {
        return;
    }
    let Ok(condition) = Condition::parse(text) else { return };
    let again = Condition::parse(&condition.to_string()).expect("canonical text parses");
    assert_eq!(again, condition);
    let context = BTreeMap::from([
        ("outcome".to_owned(), json!("succeeded")),
        ("a".to_owned(), json!({"b": [1, "x", null]})),
    ]);
    assert_eq!(condition.explain(&context).holds, condition.holds(&context));
});
