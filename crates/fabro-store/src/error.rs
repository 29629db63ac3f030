use std::io;
use std::path::PathBuf;

use fabro_blob::BlobError;
use fabro_types::RunId;

use crate::InboxId;

/// Why a store could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another writer was first.
    #[error(
        "run {run} was written by another process: its log ends at {found}, not at {expected}; see whether it is still being driven, then resume it"
    )]
    Conflict {
        /// The run.
        run: RunId,
        /// The last sequence number the caller knew.
        expected: u64,
        /// The one it has.
        found: u64,
    },
    /// A change was meant for an earlier state of a run. Nothing of it is stored.
    #[error("run {run} has changed: its log ends at {found}, not at {expected}")]
    Changed {
        /// The run.
        run: RunId,
        /// The last sequence number that the caller had seen.
        expected: u64,
        /// The one it has.
        found: u64,
    },
    /// A batch does not continue the log. Nothing of it is stored.
    #[error("event {run}-{seq} does not follow {run}-{after} in one batch")]
    OutOfOrder {
        /// The run in the event.
        run: RunId,
        /// The sequence number in the event.
        seq: u64,
        /// The sequence number before it.
        after: u64,
    },
    /// An event nests too deep to be read back. Nothing of its batch is stored.
    #[error(
        "event {run}-{seq} nests JSON deeper than {limit} levels; flatten the value that the stage sets"
    )]
    TooDeep {
        /// The run.
        run: RunId,
        /// The event's sequence number.
        seq: u64,
        /// How deep events may nest.
        limit: usize,
    },
    /// The store has no runs yet.
    #[error("there are no runs yet; start one with `fabro run`")]
    NoRuns,
    /// No run matches this text.
    #[error("there is no run `{text}`; `fabro ps` lists them")]
    NotFound {
        /// The text.
        text: String,
    },
    /// Several runs match this text.
    #[error("`{text}` matches {}; write more of the id", list(candidates))]
    Ambiguous {
        /// The text.
        text: String,
        /// The runs whose ids begin so, newest first.
        candidates: Vec<RunId>,
    },
    /// The gate has an answer.
    #[error("gate `{node}` (visit {visit}) has been answered already")]
    AlreadyAnswered {
        /// The gate's node.
        node: String,
        /// Which visit of it.
        visit: u32,
    },
    /// A commit consumes a message that is not there to be consumed. Nothing of it is stored.
    #[error("message {id} is not pending in the inbox of run {run}")]
    NotPending {
        /// The run.
        run: RunId,
        /// The message.
        id: InboxId,
    },
    /// Another process drives the run now.
    #[error("run {run} was taken over by {}; this process stops driving it", taker(*pid))]
    LeaseLost {
        /// The run.
        run: RunId,
        /// The process id of the new driver, if it is known.
        pid: Option<u32>,
    },
    /// The file system of the store does not support locks.
    #[error("the file system of {} does not support locks: put the store on a local disk", path.display())]
    NoLocks {
        /// The database.
        path: PathBuf,
    },
    /// A process is driving the run.
    #[error("run {run} is being driven{}; wait for it, or end it with `fabro cancel {run}`", by(*pid))]
    Driven {
        /// The run.
        run: RunId,
        /// The driver's process, when it is known.
        pid: Option<u32>,
    },
    /// There is no store to read.
    #[error("there are no runs: there is no store at {}", path.display())]
    NoStore {
        /// The store's directory.
        path: PathBuf,
    },
    /// A newer version of the program wrote the store.
    #[error("{} has format {found}, and this version reads up to {supported}; use a newer version of fabro", path.display())]
    NewerVersion {
        /// The database.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest format this version knows.
        supported: i64,
    },
    /// The file is a database of something else, or none.
    #[error("{} is not a Fabro store; move it away", path.display())]
    NotAStore {
        /// The file.
        path: PathBuf,
    },
    /// The store may not be written.
    #[error("{} cannot be written (read-only); allow writing", path.display())]
    ReadOnly {
        /// The database.
        path: PathBuf,
    },
    /// The disk is full. Nothing of the batch is stored; the store is as it was.
    #[error("the disk of {} is full; free some space, then resume the run", path.display())]
    DiskFull {
        /// The database.
        path: PathBuf,
    },
    /// Another process kept the store locked for too long.
    #[error("{} is locked by another process; try again when that one is done", path.display())]
    Busy {
        /// The database.
        path: PathBuf,
    },
    /// The database is damaged.
    #[error("{} is damaged ({detail}); restore it from a copy, or move it away", path.display())]
    Corrupt {
        /// The database.
        path: PathBuf,
        /// What was found.
        detail: String,
    },
    /// A record that is not the last one cannot be read, or one was written by a newer version.
    #[error(
        "event {run}-{seq} cannot be read ({detail}); use a newer version of fabro if one wrote it, else restore the store from a copy"
    )]
    BadEvent {
        /// The run.
        run: RunId,
        /// The event's sequence number.
        seq: u64,
        /// What is wrong with it.
        detail: String,
    },
    /// A record is not as it was written.
    #[error(
        "event {run}-{seq} is damaged ({detail}); restore the store from a backup: nothing after event {} of this run can be trusted", seq.saturating_sub(1)
    )]
    Damaged {
        /// The run.
        run: RunId,
        /// The event's sequence number.
        seq: u64,
        /// What is wrong with it.
        detail: String,
    },
    /// The database ends before the last event that was committed.
    #[error(
        "run {run} is incomplete: events {from} to {to} were committed, and {} does not have them (its write-ahead log is lost, or it is an older copy); restore the newer one", path.display()
    )]
    Lost {
        /// The run.
        run: RunId,
        /// The first event that is missing.
        from: u64,
        /// The last event that is known to be missing.
        to: u64,
        /// The database.
        path: PathBuf,
    },
    /// The write-ahead log has a commit that cannot be read. Nothing more is written until it is given up.
    #[error(
        "{} is damaged: the commit at byte {at} cannot be read, nor what follows it, which may be of any run; restore the store from a backup", path.display()
    )]
    HiddenCommit {
        /// The write-ahead log.
        path: PathBuf,
        /// Where the commit begins.
        at: u64,
    },
    /// The database is not there, but runs of it are known.
    #[error(
        "{} is missing, and it held {runs} run{}; restore it from a backup, or remove {} to begin with an empty store", path.display(), if *runs == 1 { "" } else { "s" }, heads.display()
    )]
    NoDatabase {
        /// The database.
        path: PathBuf,
        /// How many runs it held.
        runs: usize,
        /// The directory that names them.
        heads: PathBuf,
    },
    /// The file that says where a run's log ends cannot be read.
    #[error("{} is damaged: whether all events of run {run} are there cannot be told; restore the file from a backup", path.display())]
    DamagedHead {
        /// The run.
        run: RunId,
        /// The file.
        path: PathBuf,
    },
    /// The database was deleted or replaced while it was open. What was not recorded before is not
    /// recorded.
    #[error("{} was deleted or replaced while it was in use; what happened since then is not recorded: put it back and resume the run", path.display())]
    Replaced {
        /// The file.
        path: PathBuf,
    },
    /// A file or directory of the store could not be used.
    #[error("cannot use {}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The database refused for another reason.
    #[error("{} cannot be used: {detail}", path.display())]
    Database {
        /// The database.
        path: PathBuf,
        /// What it says.
        detail: String,
    },
    /// A blob could not be read or kept.
    #[error(transparent)]
    Blob(BlobError),
}

impl From<BlobError> for StoreError {
    fn from(error: BlobError) -> Self {
        match error {
            BlobError::Io { path, source } => Self::io(path, source),
            error => Self::Blob(error),
        }
    }
}

impl StoreError {
    /// What a failed use of a file means.
    pub(crate) fn io(path: PathBuf, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { path },
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { path },
            _ => Self::Io { path, source },
        }
    }
}

fn list(runs: &[RunId]) -> String {
    const SHOWN: usize = 5;
    let mut text = runs.iter().take(SHOWN).map(RunId::to_string).collect::<Vec<_>>().join(", ");
    if runs.len() > SHOWN {
        text.push_str(", …");
    }
    text
}

fn taker(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

fn by(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" by process {pid}")).unwrap_or_default()
}

/// A problem of a store that can be used all the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreWarning {
    /// The last record was cut off while it was written. The run continues from the one before.
    #[error("the last record of run {run} ({seq}) was only half written and is left out")]
    HalfWritten {
        /// The run.
        run: RunId,
        /// The record's sequence number.
        seq: u64,
    },
}
