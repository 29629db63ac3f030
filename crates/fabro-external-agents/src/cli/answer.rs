use fabro_types::{FailureClass, Usage};
use serde_json::Value;

use crate::error::{self, StatedKind};

/// What the output of a program has so far.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) text: Option<String>,
    pub(super) usage: Option<Usage>,
    pub(super) session_id: Option<String>,
    pub(super) model: Option<String>,
    pub(super) error: Option<(StatedKind, String)>,
    /// An error from which the program may still recover.
    pub(super) pending_error: Option<(Option<StatedKind>, String)>,
}

impl Answer {
    pub(super) fn fail(&mut self, kind: Option<StatedKind>, message: &str) {
        let kind = kind.or(self.pending_error.as_ref().and_then(|(kind, _)| *kind));
        self.error = Some((kind.unwrap_or(FailureClass::Deterministic.into()), message.to_owned()));
    }

    /// Makes the pending error final.
    pub(super) fn settle_error(&mut self) {
        if let (None, Some((kind, message))) = (&self.error, self.pending_error.take()) {
            self.fail(kind, &message);
        }
    }
}

/// The class that an object states in its `type`, `code`, `kind` or `status`.
pub(super) fn stated(error: &Value) -> Option<StatedKind> {
    ["type", "code", "kind", "status"].iter().find_map(|key| error::kind_of(error.get(key)?))
}

pub(super) fn number(object: &Value, key: &str) -> u64 {
    object[key].as_u64().unwrap_or_default()
}
