//! What a run did, for people and programs: inspect, explain, context, graph drawing.

use fabro_store::StoreError;

/// Why a report cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The log cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ReportError {
    /// True when the store is to blame, not the question.
    pub fn is_store(&self) -> bool {
        matches!(self, Self::Store(_))
    }
}
