//! Any text: it names a blob and is its name, or it is an error; and so for the id of a run.
#![no_main]

use fabro_types::{BlobRef, RunId};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(blob) = text.parse::<BlobRef>() {
        assert_eq!(blob.to_string(), text);
    }
    if let Ok(run) = text.parse::<RunId>() {
        assert_eq!(run.to_string().parse::<RunId>(), Ok(run));
    }
});
