use fabro_types::{FailureClass, Usage};
use serde_json::Value;

use crate::error::{self, StatedKind};

/// What the output of a program has so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Answer {
    pub(super) text: Option<String>,
    /// By model.
    pub(super) usage: Vec<Usage>,
    pub(super) session_id: Option<String>,
    pub(super) model: Option<String>,
    pub(super) error: Option<(StatedKind, String)>,
    /// An error from which the program may still recover.
    pub(super) pending_error: Option<(Option<StatedKind>, String)>,
    /// It said that the turn is complete, which counts more than its exit code.
    pub(super) is_complete: bool,
    /// Its model has answered: text, a tool, usage.
    pub(super) has_worked: bool,
    /// It stopped because the budget it was given is used up.
    pub(super) hit_budget: bool,
    /// The usage before the part of the conversation that is counted now.
    pub(super) total: Usage,
    /// The message of the model that is read now.
    pub(super) current_message: Option<String>,
    /// Its output that is no event, the last lines of it.
    pub(super) noise: String,
}

/// Validates a session id. It becomes a command line argument later, where it must be neither an option
/// nor a path.
pub(super) fn session_id(text: &str) -> Option<&str> {
    const LONGEST: usize = 128;
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
    let is_id = text.len() <= LONGEST
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(is_part)
        && !text.contains("..");
    is_id.then_some(text)
}

impl Answer {
    /// Sets the session id that the program reported. An invalid id clears it.
    pub(super) fn set_session(&mut self, id: &Value) {
        if let Some(id) = id.as_str() {
            self.session_id = session_id(id).map(str::to_owned);
        }
    }

    pub(super) fn fail(&mut self, kind: Option<StatedKind>, message: &str) {
        let kind = kind.or(self.pending_error.as_ref().and_then(|(kind, _)| *kind));
        let kind = kind.unwrap_or(FailureClass::Deterministic.into());
        self.error = Some((kind, message.to_owned()));
    }

    /// Makes the pending error final.
    pub(super) fn settle_error(&mut self) {
        if let (None, Some((kind, message))) = (&self.error, self.pending_error.take()) {
            self.fail(kind, &message);
        }
    }

    /// The usage that the program reports last of all, which replaces what it reported before.
    pub(super) fn set_usage(&mut self, usage: Usage) {
        self.has_worked |= usage.output_tokens > 0 || usage.cost_usd > 0.0;
        self.usage = vec![usage];
    }
}

/// The class that an object states in its `type`, `code`, `kind` or `status`.
pub(super) fn stated(error: &Value) -> Option<StatedKind> {
    ["type", "code", "kind", "status"].iter().find_map(|key| error::kind_of(error.get(key)?))
}

pub(super) fn number(object: &Value, key: &str) -> u64 {
    object[key].as_u64().unwrap_or_default()
}

/// The first of these keys that has a number.
pub(super) fn first_number(object: &Value, keys: &[&str]) -> u64 {
    keys.iter().find_map(|key| object[key].as_u64()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_ids_are_neither_options_nor_paths() {
        for id in ["5f1c7a52-9d1e-4b53-9f5e-8a1d4c2b7e10", "thread_1", "a.b:c"] {
            assert_eq!(session_id(id), Some(id));
        }
        let long = "x".repeat(129);
        for id in [
            "--dangerously-skip-permissions",
            "-c",
            "",
            "a b",
            "a\nb",
            "../x",
            "a/b",
            "a..b",
            &long,
        ] {
            assert_eq!(session_id(id), None, "{id}");
            let mut answer = Answer::default();
            answer.set_session(&Value::from(id));
            assert_eq!(answer.session_id, None, "{id}");
        }
    }
}
