//! Parsing takes time in proportion to the text, errors included. The measure is the parser's own
//! count of its calls, not the clock. The limit holds for the process, so this test has a program
//! of its own.

use std::num::NonZeroUsize;

use fabro_condition::Condition;

/// Pieces that something may be nested in, or that another piece may continue.
const PIECES: [&str; 17] = [
    "a !contains ",
    "(",
    "!",
    "a",
    "a = ",
    "a = (",
    "b)",
    ")",
    " && ",
    " || ",
    "a matches \"",
    "\\\"",
    "\"x\" ",
    "\"",
    "a contains x ",
    "\\(",
    " ",
];

/// What ends the text: nothing, or a mistake.
const ENDS: [&str; 7] = ["", "(", ")", "&", "\"", "%", " = "];

const CALLS_PER_BYTE: usize = 40;

#[test]
fn errors_take_linear_time() {
    for first in PIECES {
        for second in PIECES {
            for end in ENDS {
                let text = format!("{}{end}", format!("{first}{second}").repeat(50));
                pest::set_call_limit(NonZeroUsize::new(CALLS_PER_BYTE * text.len()));
                if let Err(error) = Condition::parse(&text) {
                    assert!(!error.message.contains("limit"), "{text}: {error}");
                }
            }
        }
    }
}
