/// The longest line that is read; longer ones are skipped.
pub(crate) const LONGEST: usize = 16 * 1024 * 1024;

/// Makes lines out of bytes that arrive in pieces.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    begun: Vec<u8>,
    /// The current line is too long.
    skipping: bool,
}

impl Lines {
    /// Takes the next bytes and gives each line that they complete, without its end.
    pub(crate) fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        let mut rest = bytes;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (line, after) = rest.split_at(end);
            rest = &after[1..];
            if self.begun.is_empty() && !self.skipping {
                each(line);
            } else {
                self.add(line);
                if !self.skipping {
                    each(&self.begun);
                }
                self.begun.clear();
                self.skipping = false;
            }
        }
        self.add(rest);
    }

    /// Gives the last line, when nothing follows it.
    pub(crate) fn finish(&mut self, mut each: impl FnMut(&[u8])) {
        if !self.begun.is_empty() {
            each(&self.begun);
            self.begun.clear();
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        if self.skipping || self.begun.len() + bytes.len() > LONGEST {
            self.skipping = true;
            self.begun = Vec::new();
        } else {
            self.begun.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pieces: &[&str], expect: &[&str]) {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        let mut see = |line: &[u8]| seen.push(String::from_utf8(line.to_vec()).unwrap());
        for piece in pieces {
            lines.push(piece.as_bytes(), &mut see);
        }
        lines.finish(&mut see);
        assert_eq!(seen, expect);
    }

    #[test]
    fn pieces_become_lines() {
        check(&[], &[]);
        check(&["a\nb", "c\n\nd"], &["a", "bc", "", "d"]);
        check(&["a", "b", "\n"], &["ab"]);
    }

    #[test]
    fn a_line_that_is_too_long_is_passed_over() {
        let half = "x".repeat(LONGEST / 2 + 1);
        check(&["a\n", &half, &half, &half, "end\nb\n", &half, &half], &["a", "b"]);
    }
}
