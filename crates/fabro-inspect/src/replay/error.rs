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
    /// The replay failed.
    #[error("the replay failed: {0}")]
    Drive(#[from] DriveError),
    /// The log does not begin as one does.
    #[error("run {run} has no beginning: its log is damaged")]
    NoBeginning {
        /// The run.
        run: RunId,
    },
    /// The replay is in an impossible state.
    #[error("this is a bug in fabro: {0}; please report it")]
    Inconsistent(String),
    /// A recorded message is not a message.
    #[error("event {seq} has a record that is not a message: {reason}")]
    Message {
        /// The event's place in the log.
        seq: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A directory for temporary files cannot be created.
    #[error("a temporary directory cannot be created: {0}")]
    TempDir(std::io::Error),
}
