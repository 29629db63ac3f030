//! Any text: reading a model script ends.
#![no_main]

use fabro_llm::Script;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if text.len() > fabro_fuzz::MAX_INPUT {
        return;
    }
    let _ = Script::from_json(text);
});
