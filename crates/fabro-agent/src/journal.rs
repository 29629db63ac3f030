use async_trait::async_trait;
use fabro_events::Note;
use parking_lot::Mutex;

/// Records what happens in a session.
///
/// Implement it under `#[async_trait]`, of the crate `async-trait` 0.1.
#[async_trait]
pub trait Journal: Send + Sync {
    /// Takes notes in one record, whole or not at all; they are on stable storage when this returns.
    async fn record(&self, record: Record) -> Result<(), JournalError>;

    /// Reports activity that needs no record: more of an answer has arrived.
    fn touch(&self) {}
}

/// Notes that belong together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// What happened, in order. Values may be of any size: the journal may
    /// store large ones elsewhere.
    pub notes: Vec<Note>,
    /// The tickets of the messages from outside that these notes deliver to the agent: they need not
    /// be delivered again. See [`Steer::ticket`](crate::Steer::ticket).
    pub tickets: Vec<u64>,
}

/// Why something was not recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The run is ending; nothing more is recorded of it.
    #[error("the run is ending")]
    Ending,
    /// The storage failed.
    #[error("the conversation cannot be recorded: {reason}")]
    Failed {
        /// Why.
        reason: String,
    },
}

/// A journal in memory, for tests and for programs that need no durable one.
#[derive(Debug, Default)]
pub struct MemoryJournal {
    records: Mutex<Vec<Record>>,
}

impl MemoryJournal {
    /// All records so far, oldest first.
    pub fn records(&self) -> Vec<Record> {
        self.records.lock().clone()
    }

    /// The notes of all records, oldest first.
    pub fn notes(&self) -> Vec<Note> {
        self.records.lock().iter().flat_map(|record| record.notes.iter().cloned()).collect()
    }
}

#[async_trait]
impl Journal for MemoryJournal {
    async fn record(&self, record: Record) -> Result<(), JournalError> {
        self.records.lock().push(record);
        Ok(())
    }
}
