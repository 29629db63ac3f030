//! Small pieces of text for people.

use std::fmt::Write as _;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// The longest quoted text in a line, in characters.
pub(crate) const QUOTED: usize = 160;

/// As much of a line as fits into this width of a terminal; `…` is its end when there is more.
pub fn cut(line: &str, width: usize) -> String {
    if line.width() <= width {
        return line.to_owned();
    }
    let mut used = 1;
    let fits = |c: &char| {
        used += c.width().unwrap_or_default();
        used <= width
    };
    let mut text: String = line.chars().take_while(fits).collect();
    if width > 0 {
        text.push('…');
    }
    text
}

/// Wraps a line, which may be colored, to a width. Continuation lines are indented. It breaks only at blanks, and never
/// in a command, so that people can copy it: between back-ticks, or `fabro …` after a colon or a dot, to the end of the
/// line or a parenthesis.
pub fn wrap(line: &str, width: usize, indent: usize) -> String {
    let mut text = String::new();
    let mut used = 0;
    let mut rest = line;
    while !rest.is_empty() {
        // A word with its leading blanks.
        let (word, after) = rest.split_at(word_end(rest, &text));
        let columns = painted_width(word);
        if used > indent && used + columns > width {
            let _ = write!(text, "\n{:indent$}{}", "", word.trim_start());
            used = indent + painted_width(word.trim_start());
        } else {
            text.push_str(word);
            used += columns;
        }
        rest = after;
    }
    text
}

/// The end of the first word of a text behind another one: at a blank outside of commands.
fn word_end(text: &str, before: &str) -> usize {
    let is_command = before.ends_with([':', '·']) && text.starts_with(" fabro ");
    if is_command {
        return text.find(" (").unwrap_or(text.len());
    }
    let mut is_code = text.starts_with('`');
    let end = text.char_indices().skip(1).find(|(_, c)| {
        is_code ^= *c == '`';
        *c == ' ' && !is_code
    });
    end.map_or(text.len(), |(at, _)| at)
}

/// The width of a text without its color codes, in columns.
fn painted_width(text: &str) -> usize {
    let mut in_escape = false;
    let columns = text.chars().map(|c| {
        let is_shown = !in_escape && c != '\x1b';
        in_escape = (in_escape || c == '\x1b') && c != 'm';
        if is_shown { c.width().unwrap_or_default() } else { 0 }
    });
    columns.sum()
}

/// `1 stage`, `2 stages`.
pub(crate) fn counted(count: u32, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_to_a_width() {
        let check = |line: &str, width, expect: &str| assert_eq!(cut(line, width), expect);
        check("plan", 4, "plan");
        check("planning", 4, "pla…");
        check("計画する", 8, "計画する");
        check("計画する", 7, "計画す…");
        check("計画する", 6, "計画…");
        check("plan", 1, "…");
        check("plan", 0, "");
    }

    #[test]
    fn lines_are_wrapped_at_blanks_outside_of_commands() {
        let check = |line: &str, width, expect: &str| assert_eq!(wrap(line, width, 2), expect);
        check("a plan of it", 80, "a plan of it");
        check("a plan of it", 7, "a plan\n  of it");
        check("計画 する", 6, "計画\n  する");
        check("longer than that", 4, "longer\n  than\n  that");
        check("run `fabro ps` now", 12, "run\n  `fabro ps`\n  now");
        check("an odd ` of it", 8, "an odd\n  ` of it");
        check("Retry: fabro retry 01 (all)", 12, "Retry:\n  fabro retry 01\n  (all)");
        check("run 01 · fabro logs 01 -f", 22, "run 01 ·\n  fabro logs 01 -f");
        check("a: fabro does it", 80, "a: fabro does it");
        check("\x1b[1mhelp:\x1b[0m go on", 8, "\x1b[1mhelp:\x1b[0m go\n  on");
        check("  help: go on", 8, "  help:\n  go on");
        check("", 8, "");
    }
}
