//! Any text: reading a model script ends.
#![no_main]

use fabro_llm::ScriptedModel;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = ScriptedModel::from_json(text);
});
