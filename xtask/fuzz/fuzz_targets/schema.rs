//! Any two texts: a schema or not, and an answer that it accepts or not, within bounds of time and
//! memory.
#![no_main]

use fabro_routing::{Expected, Schema, check};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &str)| {
    let (json, answer) = input;
    if json.len() + answer.len() > fabro_fuzz::MAX_INPUT {
        return;
    }
    if let Ok(schema) = Schema::compile(json) {
        let _ = check(answer, Expected::Schema(&schema));
    }
});
