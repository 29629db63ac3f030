//! Any text: parsing ends, and what parses applies to any node.
#![no_main]

use fabro_stylesheet::{Stylesheet, Subject};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if text.len() > fabro_fuzz::MAX_INPUT {
        return;
    }
    let Ok(sheet) = Stylesheet::parse(text) else { return };
    let classes = ["code".to_owned()];
    let _ = sheet.properties(&Subject { id: "a", shape: "box", classes: &classes });
});
