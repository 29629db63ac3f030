//! Events as the text of a record.

use fabro_events::{Entry, Event};
use memchr::memchr2_iter;
use serde::Deserialize;
use serde_json::error::Category;

use crate::StoreError;

/// How deep the JSON of an event may nest. Values that a model wrote nest at most 128 deep, and
/// an event wraps them in a few levels.
pub(super) const MAX_DEPTH: usize = 256;

/// The entry of an event as JSON, without what the place of the record says already.
pub(super) fn encode(event: &Event) -> Result<String, StoreError> {
    let (run, seq) = (event.run_id, event.seq);
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
    /// It is no JSON: cut off, or overwritten.
    HalfWritten(String),
    /// It is JSON, but no event this version knows.
    Unknown(String),
}

impl Damage {
    pub(super) fn detail(self) -> String {
        match self {
            Self::HalfWritten(detail) | Self::Unknown(detail) => detail,
        }
    }
}

/// Reads what [`encode`] wrote.
pub(super) fn decode(text: &[u8]) -> Result<Entry, Damage> {
    if depth(text) > MAX_DEPTH {
        return Err(Damage::Unknown(format!("it nests deeper than {MAX_DEPTH} levels")));
    }
    let mut json = serde_json::Deserializer::from_slice(text);
    // The depth has been checked against a limit that fits the one of `encode`.
    json.disable_recursion_limit();
    Entry::deserialize(&mut json).and_then(|entry| json.end().map(|()| entry)).map_err(|error| {
        // An unknown kind of event is found before the end of its text is read.
        let is_json = || serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok();
        match error.classify() {
            Category::Data if is_json() => {
                // Serde goes on to list every name it knows.
                let detail = error.to_string();
                Damage::Unknown(
                    detail.split(", expected one of").next().unwrap_or_default().to_owned(),
                )
            }
            _ => Damage::HalfWritten(error.to_string()),
        }
    })
}

/// How deep the JSON in a text nests; 0 when it certainly nests less than the limit.
fn depth(text: &[u8]) -> usize {
    // So many brackets are rare, and to find that there are fewer is quick.
    if memchr2_iter(b'{', b'[', text).nth(MAX_DEPTH).is_none() {
        return 0;
    }
    let (mut now, mut most) = (0_usize, 0);
    let (mut in_string, mut escaped) = (false, false);
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
