//! Events as the text of a record.

use fabro_events::Event;

use crate::StoreError;

/// How deep the JSON of an event may nest. Values that a model wrote nest at most 128 deep, and
/// an event wraps them in a few levels.
pub(crate) const MAX_DEPTH: usize = 256;

/// The entry of an event as JSON, without what the place of the record says already.
pub(crate) fn encode(event: &Event) -> Result<String, StoreError> {
    let (run, seq) = (event.run_id, event.seq);
    let text = serde_json::to_string(&event.entry).map_err(|error| StoreError::BadEvent {
        run,
        seq,
        detail: error.to_string(),
    })?;
    if depth(&text) > MAX_DEPTH {
        return Err(StoreError::TooDeep { run, seq, limit: MAX_DEPTH });
    }
    Ok(text)
}

/// How deep the JSON in a text nests.
pub(crate) fn depth(text: &str) -> usize {
    let opens = |byte: &u8| matches!(byte, b'{' | b'[');
    if text.as_bytes().iter().filter(|byte| opens(byte)).count() <= MAX_DEPTH {
        return 0;
    }
    let (mut now, mut most) = (0_usize, 0);
    let (mut in_string, mut escaped) = (false, false);
    for byte in text.bytes() {
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
