//! Any text: reading a record of the log ends, and what is read is written and read as the same.
#![no_main]

use fabro_events::Entry;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if text.len() > fabro_fuzz::MAX_INPUT {
        return;
    }
    let Ok(entry) = serde_json::from_str::<Entry>(text) else { return };
    let written = serde_json::to_string(&entry).expect("an event is JSON");
    let again: Entry = serde_json::from_str(&written).expect("what is written is read");
    assert_eq!(again, entry);
});
