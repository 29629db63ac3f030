//! The part of the terminal that is drawn again and again, below the finished lines.

use std::fmt::Write as _;
use std::io;

use rustix::termios::tcgetwinsize;
use unicode_width::UnicodeWidthChar as _;

/// Erases from the beginning of the cursor's line to the end of the screen, in two steps: a terminal that
/// erases its whole screen at once, as tmux does from the first cell on, may keep what it showed in its history.
const CLEAR: &str = "\r\x1b[K\x1b[C\x1b[J\r";

/// Lines that are too long end at the last column from here on. The width may change before the
/// terminal has read what was cut for the old one, and each line of the area must take one row.
const NO_WRAP: &str = "\x1b[?7l";

/// Lines are wrapped again.
const WRAP: &str = "\x1b[?7h";

/// The size of a terminal that does not tell its own.
const USUAL: (usize, usize) = (80, 24);

/// The running stages below the finished lines.
///
/// Between two drawings the cursor is at the beginning of the first line of the area. A terminal that
/// wraps its lines anew after a resize moves the cursor with its text, so that clearing from the cursor
/// downwards removes the whole area and never a finished line.
#[derive(Debug, Default)]
pub(crate) struct LiveArea {
    drawn: bool,
}

impl LiveArea {
    /// The text that removes the area, prints finished lines in its place, and draws the area anew
    /// below them. Each finished line ends with a line end: the terminal may wrap it as it likes.
    pub(crate) fn draw(
        &mut self,
        finished: &[String],
        area: &[String],
        size: (usize, usize),
    ) -> String {
        let mut text = String::new();
        if self.drawn {
            text.push_str(CLEAR);
        }
        for line in finished {
            text.push_str(line);
            text.push('\n');
        }
        let width = size.0.saturating_sub(1).max(1);
        // The line below the area is where its last line end moves the cursor.
        let shown = area.len().min(size.1.saturating_sub(1));
        if shown > 0 {
            text.push_str(NO_WRAP);
            for line in &area[..shown] {
                text.push_str(&cut_painted(line, width));
                text.push('\n');
            }
            let _ = write!(text, "{WRAP}\x1b[{shown}A\r");
        }
        self.drawn = shown > 0;
        text
    }
}

/// Resets the terminal after a killed driver: clears its area below the cursor, and turns on line wrapping. Call it only
/// on a terminal, before the first output.
pub fn clear_leftovers() {
    crate::stderr(&format!("{WRAP}{CLEAR}"));
}

/// Columns and rows of the terminal of stderr.
pub(crate) fn terminal_size() -> (usize, usize) {
    let Ok(size) = tcgetwinsize(io::stderr()) else { return USUAL };
    let known = |count: u16, usual| if count == 0 { usual } else { usize::from(count) };
    (known(size.ws_col, USUAL.0), known(size.ws_row, USUAL.1))
}

/// As much of a colored line as fits into this width; `…` is its end when there is more.
fn cut_painted(line: &str, width: usize) -> String {
    let mut text = String::new();
    let mut used = 0;
    // Where the line is cut, when it turns out to be too long: one column is left for `…`.
    let mut end = None;
    let mut in_escape = false;
    for c in line.chars() {
        if in_escape || c == '\x1b' {
            in_escape = c != 'm';
            text.push(c);
            continue;
        }
        let columns = c.width().unwrap_or_default();
        if used + columns > width.saturating_sub(1) && end.is_none() {
            end = Some(text.len());
        }
        used += columns;
        text.push(c);
    }
    if used > width {
        let at = end.unwrap_or_default();
        let is_painted = text[..at].contains('\x1b');
        text.truncate(at);
        text.push('…');
        if is_painted {
            text.push_str("\x1b[0m");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_area_is_lower_than_the_screen() {
        let running: Vec<String> = (0..8).map(|it| it.to_string()).collect();
        let shown = LiveArea::default().draw(&[], &running, (10, 4));
        assert_eq!(shown, "\x1b[?7l0\n1\n2\n\x1b[?7h\x1b[3A\r");
        assert_eq!(LiveArea::default().draw(&[], &running, (10, 1)), "");
    }

    #[test]
    fn the_screen_is_never_erased_from_its_first_cell_on() {
        let mut area = LiveArea::default();
        let running = ["build".to_owned()];
        area.draw(&[], &running, (10, 4));
        let again = area.draw(&["done".to_owned()], &running, (10, 4));
        let (before, _) = again.split_once("\x1b[J").unwrap();
        assert_eq!(before, "\r\x1b[K\x1b[C");
        assert_eq!(again, "\r\x1b[K\x1b[C\x1b[J\rdone\n\x1b[?7lbuild\n\x1b[?7h\x1b[1A\r");
    }

    #[test]
    fn painted_lines_are_cut_to_a_width() {
        let check = |line: &str, width, expect: &str| assert_eq!(cut_painted(line, width), expect);
        check("plan", 4, "plan");
        check("planning", 4, "pla…");
        check("\x1b[1mplan\x1b[0m", 4, "\x1b[1mplan\x1b[0m");
        check("\x1b[1mplanning\x1b[0m", 4, "\x1b[1mpla…\x1b[0m");
        check("計画する", 8, "計画する");
        check("計画する", 7, "計画す…");
        check("計画する", 6, "計画…");
        check("🚀 plan", 4, "🚀 …");
        check("plan", 1, "…");
    }
}
