use std::ops::Range;

use fabro_types::Status;
use memchr::memmem;

/// The JSON objects of a text: the outermost balanced `{…}` that start like one, in order.
///
/// A brace inside a string (`"…"` with `\` escapes) is text. A `{` that is never closed is text
/// too and hides nothing, nor does a quotation mark before an object, so neither prose like
/// `use {braces` nor `5" pipes` swallows what follows. One exception: after an object that breaks
/// off, an object in the place of a value is a part of it and is left out.
/// What is found need not parse: `{"a": oops}` is found, so that a caller can say so. Balanced
/// braces that do not start like an object (`{ return {} }`) are not found, and nothing in them.
///
/// Takes time in proportion to the text and 8 bytes of memory a `{`. Only the last 4 GiB of a
/// longer text are looked at.
pub fn json_objects(text: &str) -> impl DoubleEndedIterator<Item = (Range<usize>, &str)> {
    let objects = candidates(text, |_| 0, None).into_iter();
    objects
        .filter(Candidate::is_object)
        .map(|candidate| (candidate.range.clone(), &text[candidate.range]))
}

/// Outermost braces that are, or may be meant as, an object.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// From its `{` to its `}`, or to the end of the text when it breaks off.
    pub(crate) range: Range<usize>,
    /// Its `}` is there.
    pub(crate) closed: bool,
    /// It starts with a key or is empty.
    like_object: bool,
    /// The caller's bits for its own keys, without those of nested objects.
    pub(crate) keys: u8,
}

impl Candidate {
    /// Whether it is one of the [`json_objects`].
    pub(crate) fn is_object(&self) -> bool {
        self.closed && self.like_object
    }
}

/// A key that is recognised in other notations than JSON's too, with its bits.
pub(crate) type LooseKey = (&'static str, u8);

/// The bit for braces that begin with the loose key.
const BEGINS: u8 = 0x80;

/// The [`json_objects`], and with them what a model may have meant as one: balanced braces that do
/// not start like an object, and objects that break off, if they have a key for which `bits` is not 0,
/// or the `loose` one.
pub(crate) fn candidates(
    text: &str,
    bits: impl Fn(&str) -> u8,
    loose: Option<LooseKey>,
) -> Vec<Candidate> {
    let skipped = text.ceil_char_boundary(text.len().saturating_sub(u32::MAX as usize));
    let mut found = outermost(&text[skipped..], bits, loose);
    for candidate in &mut found {
        candidate.range.start += skipped;
        candidate.range.end += skipped;
    }
    found
}

/// A `{`: where it is, and one past its `}`.
#[derive(Clone, Copy)]
struct Brace {
    at: u32,
    /// While the brace is open: the index of the open brace around it, plus one. At the end 0
    /// means that it was never closed.
    end: u32,
}

/// All `{` of one phase. A text is cut by its quotation marks into stretches that are outside and
/// inside strings by turns. Which are which depends on where reading starts, and a stray mark in
/// prose swaps them; so both readings are followed at once, each with the braces that it sees
/// outside strings. An object that parses is whole in one of the two.
#[derive(Default)]
struct Phase {
    braces: Vec<Brace>,
    /// The innermost open brace as its index plus one; 0 for none.
    innermost: u32,
    /// The offsets of braces that have a marked key, with the bits of that key. Unordered while
    /// reading.
    with_key: Vec<(u32, u8)>,
}

impl Phase {
    fn open(&mut self, at: u32) {
        self.braces.push(Brace { at, end: self.innermost });
        self.innermost = self.braces.len() as u32;
    }

    fn close(&mut self, end: u32) {
        if let Some(index) = self.innermost.checked_sub(1) {
            let brace = &mut self.braces[index as usize];
            self.innermost = std::mem::replace(&mut brace.end, end);
        }
    }

    fn mark(&mut self, bits: u8) {
        if let Some(index) = self.innermost.checked_sub(1) {
            self.with_key.push((self.braces[index as usize].at, bits));
        }
    }

    fn finish(mut self) -> Self {
        while let Some(index) = self.innermost.checked_sub(1) {
            self.innermost = std::mem::take(&mut self.braces[index as usize].end);
        }
        self.with_key.sort_unstable();
        self
    }

    fn keys(&self, at: u32) -> u8 {
        let from = self.with_key.partition_point(|(brace, _)| *brace < at);
        let own = self.with_key[from..].iter().take_while(|(brace, _)| *brace == at);
        own.fold(0, |keys, (_, bits)| keys | bits)
    }
}

/// `text` has at most `u32::MAX` bytes, so every offset and every count of braces fits.
fn outermost(text: &str, bits: impl Fn(&str) -> u8, loose: Option<LooseKey>) -> Vec<Candidate> {
    let bytes = text.as_bytes();
    let phases = pair_braces(text, bits, loose);
    let mut next = [0, 0];
    let mut hidden_to = [0, 0];
    let mut broken_off = [false, false];
    let mut found = Vec::new();
    loop {
        let at =
            |phase: usize| phases[phase].braces.get(next[phase]).map_or(u32::MAX, |brace| brace.at);
        let phase = usize::from(at(1) < at(0));
        let Some(Brace { at, end }) = phases[phase].braces.get(next[phase]).copied() else {
            return found;
        };
        next[phase] += 1;
        if at < hidden_to[phase] {
            continue;
        }
        let like_object = starts_like_object(&bytes[at as usize + 1..]);
        let is_part = broken_off[phase] && is_value(&bytes[..at as usize]);
        let keys = if is_part { 0 } else { phases[phase].keys(at) };
        let begins = keys & BEGINS != 0;
        let keys = keys & !BEGINS;
        let closed = end != 0;
        if !closed {
            broken_off[phase] |= like_object;
        } else if !like_object || is_part {
            hidden_to[phase] = end;
        } else {
            hidden_to = hidden_to.map(|hidden| hidden.max(end));
        }
        let is_object = closed && like_object && !is_part;
        if is_object || keys != 0 && (closed || like_object || begins) {
            let range = at as usize..if closed { end as usize } else { bytes.len() };
            found.push(Candidate { range, closed, like_object, keys });
        }
    }
}

fn pair_braces(text: &str, bits: impl Fn(&str) -> u8, loose: Option<LooseKey>) -> [Phase; 2] {
    let bytes = text.as_bytes();
    let mut phases = [Phase::default(), Phase::default()];
    let mut phase = 0;
    let mut loose_keys = loose.into_iter().flat_map(|(name, own)| {
        let found = memmem::find_iter(bytes, name);
        found.filter_map(move |at| Some((at, own, read_loose(text, at, name)?)))
    });
    let mut loose_key = loose_keys.next();
    // One past the quotation mark before; a mark that `\` escapes is none.
    let mut string = 0;
    for at in memchr::memchr3_iter(b'"', b'{', b'}', bytes).chain([bytes.len()]) {
        while let Some((_, own, read)) = loose_key.take_if(|(key, ..)| *key < at) {
            let outside = phase ^ usize::from(read.in_string);
            phases[outside].mark(own | if read.begins { BEGINS } else { 0 });
            loose_key = loose_keys.next();
        }
        if at == bytes.len() {
            break;
        }
        match bytes[at] {
            b'{' => phases[phase].open(at as u32),
            b'}' => phases[phase].close(at as u32 + 1),
            _ => {
                let escapes = bytes[..at].iter().rev().take_while(|byte| **byte == b'\\').count();
                if escapes % 2 == 0 {
                    phase ^= 1;
                    if followed_by_colon(&bytes[at + 1..]) {
                        match bits(&text[string..at]) {
                            0 => {}
                            own => phases[phase].mark(own),
                        }
                    }
                    string = at + 1;
                }
            }
        }
    }
    phases.map(Phase::finish)
}

/// How a key is written that may be meant as one of JSON.
struct Loose {
    /// It is between quotation marks of JSON.
    in_string: bool,
    /// It follows the brace.
    begins: bool,
}

/// Reads a key that is not valid JSON: without quotation marks or with other ones, or with `=` or
/// no character instead of the colon. Its value must be quoted, or be a status.
fn read_loose(text: &str, at: usize, name: &str) -> Option<Loose> {
    let (before, after) = (&text[..at], &text[at + name.len()..]);
    let mark = before.chars().next_back().filter(|last| QUOTATION_MARKS.contains(last));
    let before = before[..at - mark.map_or(0, char::len_utf8)].trim_ascii_end();
    let begins = before.ends_with('{');
    if !begins && !before.ends_with(',') {
        return None;
    }
    let after = match mark {
        Some(_) => after.strip_prefix(QUOTATION_MARKS)?,
        None => after,
    };
    let after = after.trim_ascii_start();
    let separated = after.strip_prefix([':', '：']).or_else(|| {
        let value = after.strip_prefix('=').filter(|_| mark.is_some())?;
        Some(value.strip_prefix('>').unwrap_or(value))
    });
    let value = separated.map_or(after, str::trim_ascii_start);
    let is_word = |c: char| c.is_ascii_alphabetic() || c == '_';
    let is_status = || {
        let word = value.split(|c| !is_word(c)).next().unwrap_or_default();
        separated.is_some() && Status::parse_loosely(word).is_some()
    };
    let has_value = value.starts_with(QUOTATION_MARKS) && (separated.is_some() || mark.is_some());
    (has_value || is_status()).then_some(Loose { in_string: mark == Some('"'), begins })
}

/// Marks around strings: of JSON, of other languages, of word processors.
const QUOTATION_MARKS: [char; 14] =
    ['"', '\'', '`', '“', '”', '„', '‟', '‘', '’', '‚', '«', '»', '″', '＂'];

/// Whether what follows a string makes it a key. Spaces in between are few in what is meant as
/// JSON, and looking no further keeps the pass linear.
fn followed_by_colon(after: &[u8]) -> bool {
    let after = &after[..after.len().min(16)];
    after.trim_ascii_start().first() == Some(&b':')
}

/// Whether this can follow the `{` of a JSON object: a key or the end.
fn starts_like_object(after: &[u8]) -> bool {
    matches!(after.trim_ascii_start().first(), Some(b'"' | b'}'))
}

/// Whether what follows this text is the value of a key or an element of an array.
fn is_value(before: &[u8]) -> bool {
    let before = before.trim_ascii_end();
    match before.split_last() {
        Some((b':', key)) => key.trim_ascii_end().ends_with(b"\""),
        Some((b',', element)) => element.trim_ascii_end().ends_with(b"}"),
        Some((b'[', _)) => true,
        _ => false,
    }
}
