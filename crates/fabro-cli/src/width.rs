//! The width of the terminal.

use std::io;
use std::os::fd::AsFd;

/// How many columns a line on stdout may have: those of the terminal; any number elsewhere.
pub fn stdout_width() -> usize {
    width_of(io::stdout())
}

/// The same for stderr.
pub fn stderr_width() -> usize {
    width_of(io::stderr())
}

fn width_of(output: impl AsFd) -> usize {
    match rustix::termios::tcgetwinsize(output) {
        Ok(size) if size.ws_col > 0 => size.ws_col.into(),
        _ => usize::MAX,
    }
}

/// Wraps a line for stderr to the width of the terminal.
pub fn wrapped(line: &str) -> String {
    fabro_terminal::wrap(line, stderr_width(), 2)
}

/// The same for each line of a text, which ends in a line break unless it is empty.
pub fn wrapped_lines(text: &str) -> String {
    text.lines().map(|line| wrapped(line) + "\n").collect()
}
