//! Small pieces of text for people.

/// The text on one line of at most `chars` characters: line ends and runs of blanks become one
/// blank, control characters U+FFFD, and `…` stands for what was cut.
pub fn one_line(text: &str, chars: usize) -> String {
    let mut line = String::new();
    let mut count = 0;
    for word in text.split_whitespace() {
        let blank = usize::from(count > 0);
        for c in " ".chars().take(blank).chain(word.chars()) {
            if count == chars {
                line.pop();
                line.push('…');
                return line;
            }
            line.push(if c.is_control() { '\u{fffd}' } else { c });
            count += 1;
        }
    }
    line
}

/// A duration in milliseconds as people say it: `340ms`, `1.2s`, `2m 05s`, `1h 02m`.
pub fn took(ms: u64) -> String {
    let seconds = ms / 1_000;
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{seconds}.{}s", ms % 1_000 / 100),
        60_000..3_600_000 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h {:02}m", seconds / 3_600, seconds % 3_600 / 60),
    }
}
