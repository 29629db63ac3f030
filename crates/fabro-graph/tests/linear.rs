//! Parsing takes time in proportion to the file, errors included. The measure is the parser's own
//! count of its calls, not the clock. The limit holds for the process, so this test has a program
//! of its own.

use std::num::NonZeroUsize;

use fabro_graph::parse;

/// Pieces that something may be nested in, or that another piece may continue.
const PIECES: [&str; 21] = [
    "a:n:s ",
    "subgraph c { ",
    "subgraph { ",
    "{ ",
    "a -> subgraph c { ",
    "a -> { ",
    "{ a } -> ",
    "{ a ",
    "} ",
    "a -> ",
    "a ",
    "subgraph c ",
    "node [x=1] ",
    "a [x=1, ",
    "a [x=\"1\" + ",
    "\"a\" + ",
    "[",
    "] ",
    "x = ",
    "/* c */ ",
    ": -- ",
];

/// What ends the file: nothing, or a mistake.
const ENDS: [&str; 6] = ["", "}", "]", "%", "su bgraph c { ", "-> }"];

const CALLS_PER_BYTE: usize = 30;

#[test]
fn errors_take_linear_time() {
    let mut sources = vec![format!("digraph {{ {}su bgraph c {{", "subgraph c {\n".repeat(120))];
    for first in PIECES {
        for second in PIECES {
            let repeated = format!("{first}{second}").repeat(50);
            sources.extend(ENDS.map(|end| format!("digraph {{ {repeated}{end}")));
        }
    }
    for source in sources {
        pest::set_call_limit(NonZeroUsize::new(CALLS_PER_BYTE * source.len()));
        if let Err(error) = parse(&source) {
            assert!(!error.message.contains("limit"), "{source}: {}", error.message);
        }
    }
    pest::set_call_limit(None);
    assert!(parse("digraph { a }").unwrap().name.is_none());
}
