use crate::ExecError;
use crate::log::{OutputSink, lossy};

/// The start and the end of a stream of any length.
#[derive(Default)]
pub(crate) struct Ends {
    head: Vec<u8>,
    tail: Vec<u8>,
    head_limit: usize,
    tail_limit: usize,
    /// Characters; an estimate for bytes that are not UTF-8.
    omitted: u64,
    is_cut: bool,
}

impl Ends {
    pub(crate) fn new(head: usize, tail: usize) -> Self {
        Self { head_limit: head, tail_limit: tail, ..Self::default() }
    }

    pub(crate) fn text(mut self) -> String {
        self.trim(self.tail_limit);
        if !self.is_cut {
            self.head.append(&mut self.tail);
            return lossy(self.head);
        }
        // A character that was cut apart is omitted with the rest.
        let whole = whole(&self.head);
        self.omitted += characters(&self.head[whole..]);
        self.head.truncate(whole);
        let broken = self.tail.iter().take(3).take_while(|byte| is_inner(**byte)).count();
        self.tail.drain(..broken);
        let head = lossy(self.head);
        let tail = lossy(self.tail);
        format!("{head}\n[… {} characters omitted …]\n{tail}", self.omitted)
    }

    fn trim(&mut self, limit: usize) {
        let over = self.tail.len().saturating_sub(limit);
        self.is_cut |= over > 0;
        self.omitted += characters(&self.tail[..over]);
        self.tail.drain(..over);
    }
}

impl OutputSink for Ends {
    fn write(&mut self, chunk: &[u8]) -> Result<(), ExecError> {
        let room = self.head_limit - self.head.len();
        let (head, rest) = chunk.split_at(room.min(chunk.len()));
        self.head.extend_from_slice(head);
        self.tail.extend_from_slice(rest);
        // Seldom, so that a flood in small pieces is not moved about for each of them.
        if self.tail.len() > 2 * self.tail_limit + 4096 {
            self.trim(self.tail_limit);
        }
        Ok(())
    }
}

/// The bytes up to the last character that is whole; all of them when it is not UTF-8.
fn whole(bytes: &[u8]) -> usize {
    let inner = bytes.iter().rev().take(3).take_while(|byte| is_inner(**byte)).count();
    let Some(start) = bytes.len().checked_sub(inner + 1) else { return bytes.len() };
    let length = match bytes[start] {
        0xc0..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0.. => 4,
        _ => 1,
    };
    if inner + 1 < length { start } else { bytes.len() }
}

fn characters(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| !is_inner(**byte)).count() as u64
}

fn is_inner(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &str, chunk: usize, expected: &str) {
        let mut ends = Ends::new(4, 3);
        for chunk in input.as_bytes().chunks(chunk) {
            ends.write(chunk).unwrap();
        }
        assert_eq!(ends.text(), expected, "{input} by {chunk}");
    }

    #[test]
    fn what_is_between_the_ends_is_counted() {
        for chunk in 1..12 {
            check("", chunk, "");
            check("abcdefg", chunk, "abcdefg");
            check("abcdefgh", chunk, "abcd\n[… 1 characters omitted …]\nfgh");
            check("abcäöüxyz", chunk, "abc\n[… 3 characters omitted …]\nxyz");
            check("abcd€€fg", chunk, "abcd\n[… 2 characters omitted …]\nfg");
        }
        let long = format!("abcd{}xyz", "o".repeat(100_000));
        check(&long, 1_000, "abcd\n[… 100000 characters omitted …]\nxyz");
    }

    #[test]
    fn bytes_that_are_no_text_do_no_harm() {
        let mut ends = Ends::new(4, 4);
        ends.write(&[0xff, 0x80, 0x80, 0x80, 0x80, 0x80, 0xf0, 0x80, 0x80, 0xe0]).unwrap();
        assert!(ends.text().contains("omitted"));
        let mut none = Ends::new(0, 0);
        none.write(b"abc").unwrap();
        assert_eq!(none.text(), "\n[… 3 characters omitted …]\n");
    }
}
