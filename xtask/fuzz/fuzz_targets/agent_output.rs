//! Any bytes: reading them as the output of a command-line agent ends.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if bytes.len() > fabro_fuzz::MAX_INPUT {
        return;
    }
    #[cfg(fuzzing)]
    fabro_external_agents::fuzzing::read_output(bytes);
});
