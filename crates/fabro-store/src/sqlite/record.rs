//! Events as the text of a record.

use fabro_events::{Entry, Event};
use memchr::memchr2_iter;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::StoreError;

/// How deep the JSON of an event may nest. Values that a model wrote nest at most 128 deep, and
/// an event wraps them in a few levels.
pub(super) const MAX_DEPTH: usize = 256;

/// The entry of an event as JSON, without what the place of the record says already.
pub(super) fn encode(event: &Event) -> Result<String, StoreError> {
    let run = event.run_id;
    let seq = event.seq;
    let text = serde_json::to_string(&event.entry).map_err(|error| StoreError::BadEvent {
        run,
        seq,
        detail: error.to_string(),
    })?;
    if depth(text.as_bytes()) > MAX_DEPTH {
        return Err(StoreError::TooDeep { run, seq, limit: MAX_DEPTH });
    }
    Ok(text)
}

/// Why a record cannot be read.
pub(super) enum Damage {
    /// It is the beginning of JSON: cut off while it was written.
    CutOff(String),
    /// It is not JSON (overwritten), or JSON that is not an event of this version.
    Corrupt(String),
}

impl Damage {
    pub(super) fn detail(self) -> String {
        match self {
            Self::CutOff(detail) | Self::Corrupt(detail) => detail,
        }
    }
}

/// Reads what [`encode`] wrote.
pub(super) fn decode(text: &[u8]) -> Result<Entry, Damage> {
    if depth(text) > MAX_DEPTH {
        return Err(Damage::Corrupt(format!("it nests deeper than {MAX_DEPTH} levels")));
    }
    let mut json = serde_json::Deserializer::from_slice(text);
    // The depth has been checked against a limit that fits the one of `encode`.
    json.disable_recursion_limit();
    let read = Entry::deserialize(&mut json).and_then(|entry| json.end().map(|()| entry));
    let read = read.map_err(|error| {
        // An unknown kind of event is found before the end of its text is read.
        let mut json = serde_json::Deserializer::from_slice(text);
        json.disable_recursion_limit();
        let whole = IgnoredAny::deserialize(&mut json).and_then(|_| json.end());
        match whole {
            Err(error) if error.is_eof() => Damage::CutOff(error.to_string()),
            Err(error) => Damage::Corrupt(error.to_string()),
            Ok(()) => {
                // Serde continues with a list of every name it knows.
                let detail = error.to_string();
                let detail = detail.split(", expected one of").next().unwrap_or_default();
                Damage::Corrupt(detail.to_owned())
            }
        }
    })?;
    read.check_names().map_err(|(field, name)| {
        Damage::Corrupt(format!("`{field}` is not a valid name: `{}`", name.escape_debug()))
    })?;
    Ok(read)
}

/// How deep the JSON in a text nests; 0 when it certainly nests less than the limit.
fn depth(text: &[u8]) -> usize {
    // So many brackets are rare, and to find that there are fewer is quick.
    if memchr2_iter(b'{', b'[', text).nth(MAX_DEPTH).is_none() {
        return 0;
    }
    let mut now = 0_usize;
    let mut most = 0;
    let mut in_string = false;
    let mut escaped = false;
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                now += 1;
                most = most.max(now);
            }
            b'}' | b']' if !in_string => now = now.saturating_sub(1),
            _ => {}
        }
    }
    most
}
