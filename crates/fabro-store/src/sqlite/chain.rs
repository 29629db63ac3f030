//! The hash chain over a run's records, and sums over other rows.
//!
//! Every record keeps `SHA-256(hash of the record before, seq, time, text)`; the chain of a run
//! begins with a hash of its id. So a record that was changed, removed, added or moved to another
//! run is found by every reader that gets past it.

use fabro_types::RunId;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use sha2::{Digest, Sha256};

/// The hash of a record and of everything before it, or of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hash([u8; 32]);

impl Hash {
    /// What the first record of a run follows.
    pub(super) fn of_run(run: RunId) -> Self {
        Self::of(&[b"fabro run", run.to_string().as_bytes()])
    }

    /// The hash of the record that follows this one.
    pub(super) fn of_record(self, seq: u64, ts_ms: i64, text: &[u8]) -> Self {
        Self::of(&[&self.0, &seq.to_le_bytes(), &ts_ms.to_le_bytes(), text])
    }

    /// The hash of these parts; where one ends matters.
    pub(super) fn of(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    pub(super) fn to_hex(self) -> String {
        const DIGITS: [u8; 16] = *b"0123456789abcdef";
        let digit = |value: u8| char::from(DIGITS[usize::from(value & 15)]);
        self.0.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
    }
}

impl ToSql for Hash {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Blob(&self.0)))
    }
}

impl FromSql for Hash {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let bytes = value.as_blob()?;
        bytes.try_into().map(Self).map_err(|_| FromSqlError::InvalidType)
    }
}
