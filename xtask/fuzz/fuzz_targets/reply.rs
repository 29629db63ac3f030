//! Any body: reading it as the answer or the error of a model's provider ends.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if text.len() > fabro_fuzz::MAX_INPUT {
        return;
    }
    #[cfg(fuzzing)]
    fabro_llm::fuzzing::read_reply(text);
});
