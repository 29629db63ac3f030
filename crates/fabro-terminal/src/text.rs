//! Small pieces of text for people.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// The longest quoted text in a line, in characters.
pub(crate) const QUOTED: usize = 160;

/// A duration in milliseconds as people write it: `340ms`, `1.2s`, `2m 05s`, `1h 02m`.
pub fn took(ms: u64) -> String {
    let seconds = ms / 1_000;
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{seconds}.{}s", ms % 1_000 / 100),
        60_000..3_600_000 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h {:02}m", seconds / 3_600, seconds % 3_600 / 60),
    }
}

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

/// A number of tokens in a few characters: `850`, `3.2k`, `32k`, `1.4M`.
pub fn tokens(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        1_000..10_000 => format!("{}.{}k", count / 1_000, count % 1_000 / 100),
        10_000..1_000_000 => format!("{}k", count / 1_000),
        _ => format!("{}.{}M", count / 1_000_000, count % 1_000_000 / 100_000),
    }
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
    fn tokens_are_short() {
        let short = [0, 999, 1_000, 9_999, 32_768, 999_999, 1_449_000].map(tokens);
        assert_eq!(short, ["0", "999", "1.0k", "9.9k", "32k", "999k", "1.4M"]);
    }
}
