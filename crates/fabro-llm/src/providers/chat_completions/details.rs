//! `reasoning_details` of `OpenRouter`, put together from their pieces.

use serde_json::Value;

/// The details so far.
#[derive(Debug, Default)]
pub(super) struct PartialDetails(Vec<Value>);

impl PartialDetails {
    /// Adds the details of a delta or a message.
    pub(super) fn add(&mut self, details: &Value) {
        for piece in details.as_array().into_iter().flatten() {
            match self.0.last_mut().filter(|last| continues(last, piece)) {
                Some(last) => extend(last, piece),
                None => self.0.push(piece.clone()),
            }
        }
    }

    /// All of them, if there are any.
    pub(super) fn take(&mut self) -> Option<Value> {
        let details = std::mem::take(&mut self.0);
        (!details.is_empty()).then(|| details.into())
    }
}

/// Encrypted details are whole; those with text or a summary arrive in pieces.
fn continues(last: &Value, piece: &Value) -> bool {
    let has_text = |detail: &Value| detail["text"].is_string() || detail["summary"].is_string();
    let is_same = last["type"] == piece["type"] && last["index"] == piece["index"];
    is_same
        && last["data"].is_null()
        && piece["data"].is_null()
        && (has_text(last) || has_text(piece))
}

fn extend(last: &mut Value, piece: &Value) {
    let Some(fields) = piece.as_object() else { return };
    for (key, value) in fields {
        let is_text = key == "text" || key == "summary";
        match (&mut last[key.as_str()], value) {
            (Value::String(text), Value::String(more)) if is_text => text.push_str(more),
            (_, Value::Null) => {}
            (slot, value) => *slot = value.clone(),
        }
    }
}
