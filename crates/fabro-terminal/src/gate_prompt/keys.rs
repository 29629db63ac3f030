//! Decodes the bytes of a terminal into keys.

use std::collections::VecDeque;

/// How many bytes an escape sequence of a key has at most.
const SEQUENCE: usize = 32;

const ESC: u8 = 0x1b;
const INTERRUPT: u8 = 0x03;
const PASTE_END: &[u8] = b"\x1b[201~";

/// A key press or a paste.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Paste(String),
    Enter,
    Up,
    Down,
    Left,
    Right,
    Home,
    End,
    Backspace,
    Delete,
    EraseWord,
    EraseLine,
    Esc,
    Interrupt,
}

/// The input queue: bytes that are not yet decoded.
#[derive(Debug, Default)]
pub(super) struct Keys {
    bytes: VecDeque<u8>,
    /// The received part of an unfinished bracketed paste.
    paste: Option<Vec<u8>>,
}

/// The decoded prefix of the queue.
enum First {
    /// A key, or an ignored sequence, and its length in bytes.
    Key(Option<Key>, usize),
    PasteStart(usize),
    Incomplete,
}

impl Keys {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// The next key. `idle` is a timeout: a lone escape byte is then the Escape key, and an incomplete
    /// sequence is dropped.
    pub(super) fn next(&mut self, idle: bool) -> Option<Key> {
        loop {
            if self.paste.is_some() {
                return self.pasted();
            }
            if self.bytes.is_empty() {
                return None;
            }
            let (key, length) = match first(self.bytes.make_contiguous()) {
                First::Key(key, length) => (key, length),
                First::PasteStart(length) => {
                    self.paste = Some(Vec::new());
                    (None, length)
                }
                First::Incomplete if !idle => return None,
                First::Incomplete if self.bytes.len() == 1 && self.bytes[0] == ESC => {
                    (Some(Key::Esc), 1)
                }
                First::Incomplete => (None, self.bytes.len()),
            };
            self.bytes.drain(..length);
            if key.is_some() {
                return key;
            }
        }
    }

    /// A finished paste. Ctrl-C ends one whose end never comes.
    fn pasted(&mut self) -> Option<Key> {
        let mut text = self.paste.take().unwrap_or_default();
        while let Some(byte) = self.bytes.pop_front() {
            if byte == INTERRUPT {
                return Some(Key::Interrupt);
            }
            text.push(byte);
            if let Some(text) = text.strip_suffix(PASTE_END) {
                return Some(Key::Paste(String::from_utf8_lossy(text).into_owned()));
            }
        }
        self.paste = Some(text);
        None
    }
}

fn first(bytes: &[u8]) -> First {
    let key = |key| First::Key(Some(key), 1);
    match *bytes {
        [] | [ESC] | [ESC, b'O'] => First::Incomplete,
        [ESC, ESC, ..] => key(Key::Esc),
        [ESC, b'[', ref rest @ ..] => sequence(rest),
        [ESC, b'O', last, ..] => First::Key(moving(last), 3),
        // A key together with Alt.
        [ESC, _, ..] => match first(&bytes[1..]) {
            First::Key(_, length) => First::Key(None, length + 1),
            other => other,
        },
        [b'\r' | b'\n', ..] => key(Key::Enter),
        [0x08 | 0x7f, ..] => key(Key::Backspace),
        [0x01, ..] => key(Key::Home),
        [0x05, ..] => key(Key::End),
        [INTERRUPT, ..] => key(Key::Interrupt),
        [0x15, ..] => key(Key::EraseLine),
        [0x17, ..] => key(Key::EraseWord),
        [0x00..0x20, ..] => First::Key(None, 1),
        _ => character(bytes),
    }
}

/// A control sequence, after `ESC [`.
fn sequence(rest: &[u8]) -> First {
    let end = rest.iter().take(SEQUENCE).position(|byte| !(0x20..0x40).contains(byte));
    let Some(end) = end else {
        let is_too_long = rest.len() >= SEQUENCE;
        return if is_too_long { First::Key(None, SEQUENCE + 2) } else { First::Incomplete };
    };
    let length = end + 3;
    match (rest[end], &rest[..end]) {
        (b'~', b"200") => First::PasteStart(length),
        (b'~', parameters) => {
            let number = parameters.split(|&byte| byte == b';').next();
            let key = match number {
                Some(b"1" | b"7") => Some(Key::Home),
                Some(b"4" | b"8") => Some(Key::End),
                Some(b"3") => Some(Key::Delete),
                _ => None,
            };
            First::Key(key, length)
        }
        (last @ 0x40..0x7f, _) => First::Key(moving(last), length),
        // Not the end of a sequence, but the start of another.
        _ => First::Key(None, length - 1),
    }
}

fn moving(last: u8) -> Option<Key> {
    Some(match last {
        b'A' => Key::Up,
        b'B' => Key::Down,
        b'C' => Key::Right,
        b'D' => Key::Left,
        b'F' => Key::End,
        b'H' => Key::Home,
        _ => return None,
    })
}

fn character(bytes: &[u8]) -> First {
    let start = &bytes[..bytes.len().min(4)];
    let valid = match std::str::from_utf8(start) {
        Ok(text) => text,
        Err(error) => match std::str::from_utf8(&start[..error.valid_up_to()]) {
            Ok("") | Err(_) if error.error_len().is_none() => return First::Incomplete,
            Ok("") | Err(_) => return First::Key(None, error.error_len().unwrap_or(1)),
            Ok(text) => text,
        },
    };
    match valid.chars().next() {
        Some(c) if c.is_control() => First::Key(None, c.len_utf8()),
        Some(c) => First::Key(Some(Key::Char(c)), c.len_utf8()),
        None => First::Incomplete,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(bytes: &[u8]) -> Vec<Key> {
        let mut keys = Keys::default();
        keys.push(bytes);
        let mut all: Vec<_> = std::iter::from_fn(|| keys.next(false)).collect();
        all.extend(std::iter::from_fn(|| keys.next(true)));
        all
    }

    #[track_caller]
    fn check(bytes: impl AsRef<[u8]>, expected: &[Key]) {
        assert_eq!(keys(bytes.as_ref()), expected);
    }

    #[test]
    fn bytes_are_keys() {
        use Key::{Char, Paste};
        check("aé\u{1f600}", &[Char('a'), Char('é'), Char('\u{1f600}')]);
        check("\r\n\x7f\x08", &[Key::Enter, Key::Enter, Key::Backspace, Key::Backspace]);
        check("\x1b[A\x1b[B\x1bOA\x1b[1;5D", &[Key::Up, Key::Down, Key::Up, Key::Left]);
        check("\x1b[H\x1b[4~\x1b[3~", &[Key::Home, Key::End, Key::Delete]);
        check("\x1b", &[Key::Esc]);
        check("\x1b\x1b", &[Key::Esc, Key::Esc]);
        check("\x03\x15\x17", &[Key::Interrupt, Key::EraseLine, Key::EraseWord]);
        check("\x1b[200~a\r\nb\x1b[201~c", &[Paste("a\r\nb".to_owned()), Char('c')]);
    }

    #[test]
    fn what_is_no_key_here_is_passed_over() {
        let a = [Key::Char('a')];
        check("\x1b[15~a", &a);
        check("\x1bba", &a);
        check("\x1b[<35;1;1Ma", &a);
        check("\x1b[Ia", &a);
        check("\x07\x1aa", &a);
        check(b"\xff\xc3(a", &[Key::Char('('), Key::Char('a')]);
        check("\x1b[1\x1b[Aa", &[Key::Up, Key::Char('a')]);
        check("\x1b[1;", &[]);
        check(b"\xe2\x82", &[]);
        check("\x1b[200~never ends\x03a", &[Key::Interrupt, Key::Char('a')]);
    }

    #[test]
    fn what_comes_in_pieces_is_put_together() {
        let mut keys = Keys::default();
        let mut all = Vec::new();
        for byte in "\x1b[200~é\n\x1b[201~\x1b[Bü".bytes() {
            keys.push(&[byte]);
            all.extend(keys.next(false));
        }
        assert_eq!(all, [Key::Paste("é\n".to_owned()), Key::Down, Key::Char('ü')]);
    }

    proptest! {
        #[test]
        fn any_bytes_come_to_an_end(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(keys(&bytes).len() <= bytes.len());
        }
    }
}
