//! Whether a damaged word hides a commit at the end of the write-ahead log.
//!
//! `SQLite` reads the log up to the first frame whose checksum is wrong, because a writer that was killed
//! leaves such a frame behind. A frame of a whole commit that a disk has damaged looks the same, and the
//! commit would be gone in silence: a killed driver may not have written its head yet (see
//! [`heads`](super::heads)). What tells the two apart is that the checksum is linear. The difference
//! between the stored sum and the computed one says whether one changed 32-bit word explains it. In a frame that
//! was not finished many words differ. Where the differences are random, as between hashes, one word explains them
//! in 1 of 4,000,000 cases; where all are in the highest bits of words, in many. So a lease, which is committed
//! alone, has a hash of itself, as records do.
//!
//! The layout is that of section "WAL-file format" of the description of `SQLite`'s file format.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::Path;

/// The bytes before the first frame.
const HEADER: usize = 32;

/// The bytes of a frame before its page.
const FRAME_HEADER: usize = 24;

/// The bytes in front of a frame that its checksum covers: the page's number, and in the last frame of a
/// commit how many pages the database has then.
const COVERED: usize = 8;

/// The sizes that a page can have.
const PAGE: std::ops::RangeInclusive<usize> = 512..=65_536;

/// Reads a word as the checksum does.
pub(super) type Word = fn([u8; 4]) -> u32;

/// Where the first frame of a commit is that was written whole and that `SQLite` does not read: its first
/// byte in the log, 0 for the header of the log.
pub(super) fn hidden_commit(path: &Path) -> io::Result<Option<u64>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // To open a pipe would wait for its other end.
        Ok(about) if !about.is_file() => return Err(io::Error::other("not a regular file")),
        about => about?,
    };
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    hidden_commit_in(&mut BufReader::new(file))
}

/// The same in an open log.
pub(super) fn hidden_commit_in(log: &mut impl Read) -> io::Result<Option<u64>> {
    let mut header = [0; HEADER];
    if !fill(log, &mut header)? {
        return Ok(None);
    }
    let Some(frames) = Frames::of(&header) else {
        let mut more = [0; FRAME_HEADER];
        let is_hidden = is_damaged(&header) && fill(log, &mut more)?;
        return Ok(is_hidden.then_some(0));
    };
    frames.hidden_commit(log)
}

/// Reads as much as `bytes` has room for; false at the end of the log.
fn fill(log: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match log.read_exact(bytes) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| true),
    }
}

/// Whether the header is a valid one with another word.
fn is_damaged(header: &[u8; HEADER]) -> bool {
    let stored = Sum::stored(&header[24..]);
    let orders: [Word; 2] = [u32::from_le_bytes, u32::from_be_bytes];
    orders.into_iter().any(|word| {
        let difference = stored.minus(Sum::default().plus(&header[..24], word));
        difference != Sum::default() && !changed_words(difference, 3).is_empty()
    })
}

/// The checksum up to some place of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum(pub(super) u32, pub(super) u32);

impl Sum {
    /// As it is written in headers.
    fn stored(bytes: &[u8]) -> Self {
        Self(word_at(bytes, 0, u32::from_be_bytes), word_at(bytes, 4, u32::from_be_bytes))
    }

    pub(super) fn plus(self, bytes: &[u8], word: Word) -> Self {
        let Self(mut first, mut second) = self;
        for pair in bytes.chunks_exact(8) {
            first = first.wrapping_add(word_at(pair, 0, word)).wrapping_add(second);
            second = second.wrapping_add(word_at(pair, 4, word)).wrapping_add(first);
        }
        Self(first, second)
    }

    fn minus(self, other: Self) -> Self {
        Self(self.0.wrapping_sub(other.0), self.1.wrapping_sub(other.1))
    }
}

fn word_at(bytes: &[u8], at: usize, word: Word) -> u32 {
    word(std::array::from_fn(|byte| bytes[at + byte]))
}

/// A word whose change explains a wrong checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Changed {
    /// One of the checksum itself.
    OfSum,
    /// The word of this number in what the checksum covers, which was more by this number.
    Covered(usize, u32),
}

/// The words that explain that the stored checksum is more than the computed one by `difference`, over as
/// many pairs of words. Empty when it takes more than one word; several when the upper bits of a word
/// changed, which have the same effect in many places.
fn changed_words(difference: Sum, pairs: usize) -> Vec<Changed> {
    let Sum(mut first, mut second) = difference;
    let mut changed = Vec::new();
    if first == 0 || second == 0 {
        changed.push(Changed::OfSum);
    }
    for pair in (0..pairs).rev() {
        if first == second {
            changed.push(Changed::Covered(2 * pair, first));
        }
        if first == 0 {
            changed.push(Changed::Covered(2 * pair + 1, second));
        }
        // The difference before this pair was added.
        (first, second) = (first.wrapping_mul(2).wrapping_sub(second), second.wrapping_sub(first));
    }
    changed
}

/// What is the same for all frames of a log.
struct Frames {
    /// How many bytes a frame has.
    size: usize,
    salts: [u8; 8],
    word: Word,
    /// The checksum of the header of the log.
    sum: Sum,
}

impl Frames {
    /// `None` when the header of the log is not valid.
    fn of(header: &[u8; HEADER]) -> Option<Self> {
        let word: Word = match word_at(header, 0, u32::from_be_bytes) {
            0x377f_0682 => u32::from_le_bytes,
            0x377f_0683 => u32::from_be_bytes,
            _ => return None,
        };
        let page = word_at(header, 8, u32::from_be_bytes) as usize;
        let sum = Sum::default().plus(&header[..24], word);
        let is_valid =
            PAGE.contains(&page) && page.is_power_of_two() && sum == Sum::stored(&header[24..]);
        let salts = std::array::from_fn(|byte| header[16 + byte]);
        is_valid.then_some(Self { size: FRAME_HEADER + page, salts, word, sum })
    }

    fn hidden_commit(&self, log: &mut impl Read) -> io::Result<Option<u64>> {
        let mut frame = vec![0; self.size];
        let mut sum = self.sum;
        let mut at = HEADER as u64;
        loop {
            if !fill(log, &mut frame)? {
                return Ok(None);
            }
            let computed = self.sum_of(&frame, sum);
            if !self.has_salts(&frame) || computed != Sum::stored(&frame[16..]) {
                break;
            }
            sum = computed;
            at += self.size as u64;
        }
        let mut ends = self.explain(&frame, sum);
        // The others of the commit are as they were written; otherwise it was not finished.
        while !ends.is_empty() {
            if ends.iter().any(|end| end.is_last) {
                return Ok(Some(at));
            }
            if !fill(log, &mut frame)? || !self.has_salts(&frame) {
                break;
            }
            let stored = Sum::stored(&frame[16..]);
            ends.retain(|end| self.sum_of(&frame, end.sum) == stored);
            ends.truncate(1);
            for end in &mut ends {
                *end = End { is_last: is_last_of_commit(&frame), sum: stored };
            }
        }
        Ok(None)
    }

    /// The checksum up to the end of a frame that follows `before`.
    fn sum_of(&self, frame: &[u8], before: Sum) -> Sum {
        before.plus(&frame[..COVERED], self.word).plus(&frame[FRAME_HEADER..], self.word)
    }

    fn has_salts(&self, frame: &[u8]) -> bool {
        frame[COVERED..16] == self.salts
    }

    /// What a frame that is not valid may have been before a word of it changed. Empty when more has changed.
    fn explain(&self, frame: &[u8], before: Sum) -> Vec<End> {
        let computed = self.sum_of(frame, before);
        let stored = Sum::stored(&frame[16..]);
        let is_last = is_last_of_commit(frame);
        if !self.has_salts(frame) {
            // Frames that were there before have other checksums.
            let is_next = computed == stored;
            return is_next.then_some(End { is_last, sum: computed }).into_iter().collect();
        }
        let pairs = (COVERED + self.size - FRAME_HEADER) / 8;
        let changed = changed_words(stored.minus(computed), pairs);
        let end = |changed| match changed {
            Changed::OfSum => End { is_last, sum: computed },
            Changed::Covered(1, by) => {
                let size = word_at(frame, 4, self.word).wrapping_add(by);
                End { is_last: size != 0, sum: stored }
            }
            Changed::Covered(..) => End { is_last, sum: stored },
        };
        changed.into_iter().map(end).collect()
    }
}

/// The end of a frame.
#[derive(Clone, Copy)]
struct End {
    /// Whether it is the last one of its commit.
    is_last: bool,
    /// The checksum that the next frame follows.
    sum: Sum,
}

fn is_last_of_commit(frame: &[u8]) -> bool {
    word_at(frame, 4, u32::from_be_bytes) != 0
}
