//! Small pieces of text for people.

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
}
