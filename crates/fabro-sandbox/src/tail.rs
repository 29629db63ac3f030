/// The end of a text that arrives in pieces, for messages about a program that failed.
#[derive(Clone, Debug, Default)]
pub struct Tail {
    bytes: Vec<u8>,
    cut: bool,
}

impl Tail {
    /// How many bytes are kept.
    pub const BYTES: usize = 4096;

    /// How many lines are shown.
    pub const LINES: usize = 20;

    /// Takes the next piece.
    pub fn push(&mut self, bytes: &[u8]) {
        let kept = &bytes[bytes.len().saturating_sub(Self::BYTES)..];
        let superfluous = (self.bytes.len() + kept.len()).saturating_sub(Self::BYTES);
        self.cut |= superfluous > 0 || kept.len() < bytes.len();
        self.bytes.drain(..superfluous.min(self.bytes.len()));
        self.bytes.extend_from_slice(kept);
    }

    /// The last lines, at most [`LINES`](Self::LINES) of at most [`BYTES`](Self::BYTES) together,
    /// without control characters and without surrounding whitespace. A line that was cut off at its
    /// beginning is left out, unless it is the only one.
    pub fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.bytes);
        let whole = match text.trim_end().split_once('\n') {
            Some((_, rest)) if self.cut => rest,
            _ => &text,
        };
        let lines: Vec<_> = whole.trim().lines().collect();
        let last = lines[lines.len().saturating_sub(Self::LINES)..].join("\n");
        last.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_lines_are_kept() {
        let mut tail = Tail::default();
        assert_eq!(tail.text(), "");
        tail.push(b"one\r\n\x1b[1mtwo\n");
        assert_eq!(tail.text(), "one\n[1mtwo");
        tail.push(&[b'x'; 10_000]);
        assert_eq!(tail.text(), "x".repeat(Tail::BYTES));
        tail.push(b"\nafter\n");
        assert_eq!(tail.text(), "after");
        for number in 0..50 {
            tail.push(format!("{number}\n").as_bytes());
        }
        assert_eq!(tail.text().lines().count(), Tail::LINES);
        assert!(tail.text().ends_with("\n48\n49"));
    }
}
