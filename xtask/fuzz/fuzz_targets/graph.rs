//! Any text: parsing ends, and what parses prints as something that parses and prints the same.
#![no_main]

use fabro_graph::{Workflow, format, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if text.len() > fabro_fuzz::MAX_INPUT {
        return;
    }
    let Ok(document) = parse(text) else { return };
    let printed = format(&document);
    let again = parse(&printed).expect("canonical text parses");
    assert_eq!(format(&again), printed);
    let workflow = Workflow::from_source("fuzz", text).expect("what parses is lowered");
    let _ = workflow.to_dot();
});
