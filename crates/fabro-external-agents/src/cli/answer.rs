use fabro_types::{FailureClass, Usage};
use serde_json::Value;

use crate::error;

/// What the output of a program has so far.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) text: Option<String>,
    pub(super) usage: Option<Usage>,
    pub(super) session_id: Option<String>,
    pub(super) model: Option<String>,
    pub(super) error: Option<(FailureClass, String)>,
    /// An error from which the program may still recover.
    pub(super) pending_error: Option<(Option<FailureClass>, String)>,
}

impl Answer {
    pub(super) fn fail(&mut self, class: Option<FailureClass>, message: &str) {
        let class = class.or(self.pending_error.as_ref().and_then(|(class, _)| *class));
        self.error = Some((class.unwrap_or(FailureClass::Deterministic), message.to_owned()));
    }

    /// Makes the pending error final.
    pub(super) fn settle_error(&mut self) {
        if let (None, Some((class, message))) = (&self.error, self.pending_error.take()) {
            self.fail(class, &message);
        }
    }
}

/// The class that an object states in its `type`, `code`, `kind` or `status`.
pub(super) fn stated(error: &Value) -> Option<FailureClass> {
    ["type", "code", "kind", "status"].iter().find_map(|key| error::class_of(error.get(key)?))
}

pub(super) fn number(object: &Value, key: &str) -> u64 {
    object[key].as_u64().unwrap_or_default()
}
