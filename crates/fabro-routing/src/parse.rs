//! Parses one object of an answer as JSON: tolerates some invalid JSON that models write, and locates
//! errors.

use std::borrow::Cow;
use std::fmt::Write as _;

use fabro_types::parse_json;
use serde_json::{Map, Value};

use crate::explain::json_error;
use crate::objects::Candidate;

/// Why an object does not parse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) message: String,
    /// The byte offset in the text; the object's start when it breaks off.
    pub(crate) at: usize,
    /// It has no closing brace.
    pub(crate) breaks_off: bool,
}

/// Parses a candidate with `read`. Control characters inside strings, such as line breaks, are kept.
pub(crate) fn parse_object<T>(
    text: &str,
    candidate: &Candidate,
    read: impl Fn(&str) -> serde_json::Result<T>,
) -> Result<T, Broken> {
    let start = candidate.range.start;
    if !candidate.closed {
        let message = "it breaks off before its closing brace".to_owned();
        return Err(Broken { message, at: start, breaks_off: true });
    }
    let object = &text[candidate.range.clone()];
    let broken = |error: &serde_json::Error, parsed: &str| {
        let lines = parsed.split_inclusive('\n').take(error.line().saturating_sub(1));
        let line: usize = lines.map(str::len).sum();
        let at = start + (line + error.column().saturating_sub(1)).min(object.len());
        Broken { message: json_error(error), at, breaks_off: false }
    };
    let error = match read(object) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let Cow::Owned(escaped) = controls(object, |escaped, control| {
        let _ = write!(escaped, "\\u{control:04x}");
    }) else {
        return Err(broken(&error, object));
    };
    // Escapes shift positions, so another error is located in a text of the same length.
    let same_length = || controls(object, |text, _| text.push(' '));
    read(&escaped).map_err(|error| {
        let spaced = same_length();
        broken(read(&spaced).as_ref().err().unwrap_or(&error), &spaced)
    })
}

/// The fields with their numbers unchanged, as a schema validates them.
pub(crate) fn as_written(object: &str) -> serde_json::Result<Map<String, Value>> {
    serde_json::from_str(object)
}

/// The value of a parsed object, with all digits of large integers.
pub(crate) fn with_all_digits(object: &str) -> Option<Value> {
    let escape = |escaped: &mut String, control| {
        let _ = write!(escaped, "\\u{control:04x}");
    };
    parse_json(object).or_else(|_| parse_json(&controls(object, escape))).ok()
}

/// The text with the control characters inside its strings replaced.
fn controls(object: &str, mut replace: impl FnMut(&mut String, u8)) -> Cow<'_, str> {
    let mut replaced = String::new();
    let mut copied = 0;
    let mut in_string = false;
    let mut is_escaped = false;
    for (at, byte) in object.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_string,
            b'"' => in_string = !in_string,
            0..0x20 if in_string => {
                replaced.push_str(&object[copied..at]);
                replace(&mut replaced, byte);
                copied = at + 1;
            }
            _ => {}
        }
    }
    if copied == 0 {
        return Cow::Borrowed(object);
    }
    replaced.push_str(&object[copied..]);
    Cow::Owned(replaced)
}

/// The line and column, in characters from 1, of a byte offset.
pub(crate) fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(at)];
    let line = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line..].chars().count() + 1)
}
