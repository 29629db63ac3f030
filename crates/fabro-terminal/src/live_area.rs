//! The part of the terminal that is drawn again and again, below the finished lines.

use std::fmt::Write as _;
use std::io;

use rustix::termios::tcgetwinsize;
use unicode_width::UnicodeWidthChar as _;

/// Erases from the beginning of the cursor's line to the end of the screen.
const CLEAR: &str = "\r\x1b[J";

/// The size of a terminal that does not tell its own.
const USUAL: (usize, usize) = (80, 24);

/// The running stages below the finished lines.
///
/// Between two drawings the cursor is at the beginning of the first line of the area. A terminal that
/// wraps its lines anew after a resize moves the cursor with its text, so that clearing from the cursor
/// downwards removes the whole area and never a finished line, whatever the terminal does with lines.
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
        for line in &area[..shown] {
            text.push_str(&cut_painted(line, width));
            text.push('\n');
        }
        if shown > 0 {
            let _ = write!(text, "\x1b[{shown}A\r");
        }
        self.drawn = shown > 0;
        text
    }
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

    /// A terminal that wraps its lines anew when its width changes, as most do: lines of text, the
    /// cursor in one of them, and what is above the screen is kept.
    struct Reflowing {
        lines: Vec<String>,
        at: usize,
        column: usize,
        width: usize,
    }

    impl Reflowing {
        /// The rows a line takes.
        fn rows(&self, line: &str) -> usize {
            line.chars().count().div_ceil(self.width).max(1)
        }

        /// Only line starts are ever moved to.
        fn up(&mut self, mut rows: usize) {
            while rows > 0 {
                self.at -= 1;
                rows -= self.rows(&self.lines[self.at]).min(rows);
            }
        }

        fn print(&mut self, text: &str) {
            let mut rest = text;
            while let Some(c) = rest.chars().next() {
                if let Some(after) = rest.strip_prefix("\x1b[J") {
                    self.lines.truncate(self.at + 1);
                    self.lines[self.at].truncate(self.column);
                    rest = after;
                } else if let Some(after) = rest.strip_prefix("\x1b[") {
                    let (rows, after) = after.split_once('A').unwrap();
                    self.up(rows.parse().unwrap());
                    rest = after;
                } else {
                    match c {
                        '\r' => self.column = 0,
                        '\n' => {
                            self.at += 1;
                            self.column = 0;
                            if self.at == self.lines.len() {
                                self.lines.push(String::new());
                            }
                        }
                        _ => {
                            self.lines[self.at].push(c);
                            self.column = self.lines[self.at].len();
                        }
                    }
                    rest = &rest[c.len_utf8()..];
                }
            }
        }
    }

    #[test]
    fn every_finished_line_survives_resizing() {
        let mut area = LiveArea::default();
        let mut terminal = Reflowing { lines: vec![String::new()], at: 0, column: 0, width: 110 };
        let mut expect = Vec::new();
        for stage in 0..50 {
            let finished = format!("done {stage:02} {}", "x".repeat(stage * 3));
            let running: Vec<String> =
                (0..8).map(|it| format!("runs {stage} {it} {}", "y".repeat(90))).collect();
            terminal.print(&area.draw(
                std::slice::from_ref(&finished),
                &running,
                (terminal.width, 24),
            ));
            terminal.print(&area.draw(&[], &running, (terminal.width, 24)));
            expect.push(finished);
            terminal.width = [110, 60, 160, 70, 40][stage % 5];
        }
        terminal.print(&area.draw(&[], &[], (70, 24)));
        expect.push(String::new());
        assert_eq!(terminal.lines, expect);
    }

    #[test]
    fn the_area_is_lower_than_the_screen() {
        let running: Vec<String> = (0..8).map(|it| it.to_string()).collect();
        let shown = LiveArea::default().draw(&[], &running, (10, 4));
        assert_eq!(shown, "0\n1\n2\n\x1b[3A\r");
        assert_eq!(LiveArea::default().draw(&[], &running, (10, 1)), "");
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
