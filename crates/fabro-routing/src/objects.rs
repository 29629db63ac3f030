use std::ops::Range;

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
    let skipped = text.ceil_char_boundary(text.len().saturating_sub(u32::MAX as usize));
    let ranges = outermost(&text[skipped..]);
    ranges.into_iter().map(move |(start, end)| {
        let range = skipped + start as usize..skipped + end as usize;
        (range.clone(), &text[range])
    })
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

    fn finish(mut self) -> Vec<Brace> {
        while let Some(index) = self.innermost.checked_sub(1) {
            self.innermost = std::mem::take(&mut self.braces[index as usize].end);
        }
        self.braces
    }
}

/// `text` has at most `u32::MAX` bytes, so every offset and every count of braces fits.
fn outermost(text: &str) -> Vec<(u32, u32)> {
    let bytes = text.as_bytes();
    let braces = pair_braces(bytes);
    let mut next = [0, 0];
    let mut hidden_to = [0, 0];
    let mut broken_off = [false, false];
    let mut found = Vec::new();
    loop {
        let at = |phase: usize| braces[phase].get(next[phase]).map_or(u32::MAX, |brace| brace.at);
        let phase = usize::from(at(1) < at(0));
        let Some(Brace { at, end }) = braces[phase].get(next[phase]).copied() else {
            return found;
        };
        next[phase] += 1;
        if at < hidden_to[phase] {
            continue;
        }
        let like_object = starts_like_object(&bytes[at as usize + 1..]);
        if end == 0 {
            broken_off[phase] |= like_object;
        } else if !like_object || (broken_off[phase] && is_value(&bytes[..at as usize])) {
            hidden_to[phase] = end;
        } else {
            hidden_to = hidden_to.map(|hidden| hidden.max(end));
            found.push((at, end));
        }
    }
}

fn pair_braces(bytes: &[u8]) -> [Vec<Brace>; 2] {
    let mut phases = [Phase::default(), Phase::default()];
    let mut phase = 0;
    for at in memchr::memchr3_iter(b'"', b'{', b'}', bytes) {
        match bytes[at] {
            b'{' => phases[phase].open(at as u32),
            b'}' => phases[phase].close(at as u32 + 1),
            _ => {
                let escapes = bytes[..at].iter().rev().take_while(|byte| **byte == b'\\').count();
                phase ^= (escapes + 1) & 1;
            }
        }
    }
    phases.map(Phase::finish)
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
