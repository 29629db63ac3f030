use fabro_engine::{DriveError, ReadError};
use fabro_run::BundleError;
use fabro_store::StoreError;
use fabro_types::RunId;

/// Why a run cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The log cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A value that the log names cannot be read.
    #[error("the log of the run names a value that cannot be read: {0}")]
    Value(#[from] ReadError),
    /// The workflow cannot be used.
    #[error(transparent)]
    Workflow(#[from] BundleError),
    /// The replay broke off.
    #[error("the replay broke off: {0}")]
    Drive(#[from] DriveError),
    /// The log does not begin as one does.
    #[error("run {run} has no beginning: its log is damaged")]
    NoBeginning {
        /// The run.
        run: RunId,
    },
    /// A message of a conversation is none.
    #[error("event {seq} has a record that is not a message: {reason}")]
    Message {
        /// The event's place in the log.
        seq: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no place for temporary files.
    #[error("a temporary directory cannot be made: {0}")]
    TempDir(std::io::Error),
}
