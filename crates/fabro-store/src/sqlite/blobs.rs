//! Blobs: small ones are rows, others files, and which run names which.

use std::collections::BTreeSet;

use fabro_blob::{BlobError, BlobStore as _};
use fabro_types::BlobRef;
use rusqlite::{OptionalExtension, params};

use super::database::Database;
use super::transaction::Transaction;
use crate::StoreError;

/// Blobs of this size and more are files; smaller ones are rows, and are written with the events
/// that name them.
pub(super) const SMALL_BLOB: usize = 64 * 1024;

impl Database {
    pub(super) fn small_blob<T>(
        &self,
        sql: &str,
        blob: &BlobRef,
        take: impl FnOnce(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, BlobError> {
        let found = self.read_with(|conn| {
            let mut select = conn.prepare_cached(sql)?;
            Ok(select.query_row([blob.digest()], take).optional()?)
        });
        found.map_err(|error| BlobError::Backend { source: Box::new(error) })
    }

    /// The bytes of a blob that is a row, as they were written.
    pub(super) fn small_bytes(&self, blob: &BlobRef) -> Result<Option<Vec<u8>>, BlobError> {
        const SQL: &str = "SELECT bytes FROM blobs WHERE hash = ?1 AND bytes IS NOT NULL";
        let found = self.small_blob(SQL, blob, |row| row.get::<_, Vec<u8>>(0))?;
        match found {
            Some(bytes) if BlobRef::of(&bytes) != *blob => {
                Err(BlobError::Corrupt { blob: *blob, path: Some(self.path.clone()) })
            }
            found => Ok(found),
        }
    }

    /// What a missing file means: a blob that is known was stored and is lost. A name of which nothing is known
    /// is only text, of a model, say.
    pub(super) fn lost_or_unknown(&self, error: BlobError) -> BlobError {
        let BlobError::Lost { blob } = error else { return error };
        match self.small_blob("SELECT 1 FROM blobs WHERE hash = ?1", &blob, |_| Ok(())) {
            Ok(None) => BlobError::Missing { blob },
            Ok(Some(())) => error,
            Err(error) => error,
        }
    }

    /// Of these names those of blobs that are files.
    pub(super) fn with_files(&self, named: &BTreeSet<BlobRef>) -> Vec<BlobRef> {
        named.iter().filter(|blob| self.files.len(blob).is_ok()).copied().collect()
    }

    pub(super) fn put_small(&self, blob: &BlobRef, bytes: &[u8]) -> Result<(), BlobError> {
        let stored = self.write_with(|transaction| Ok(insert_blob(transaction, blob, bytes)?));
        stored.map_err(|error| BlobError::Backend { source: Box::new(error) })
    }

    pub(super) fn put_large(&self, blob: &BlobRef, bytes: &[u8]) -> Result<(), StoreError> {
        let stored = if is_small(bytes) { BlobRef::of(bytes) } else { self.files.put(bytes)? };
        if stored != *blob {
            return Err(BlobError::Corrupt { blob: *blob, path: None }.into());
        }
        Ok(())
    }
}

pub(super) fn is_small(bytes: &[u8]) -> bool {
    bytes.len() < SMALL_BLOB
}

/// Keeps a small blob.
pub(super) fn insert_blob(
    transaction: &Transaction<'_>,
    blob: &BlobRef,
    bytes: &[u8],
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "INSERT INTO blobs (hash, bytes) VALUES (?1, ?2)
             ON CONFLICT (hash) DO UPDATE SET bytes = excluded.bytes WHERE bytes IS NOT excluded.bytes",
        )?
        .execute(params![blob.digest(), bytes])?;
    Ok(())
}

/// Keeps that a blob is a file.
pub(super) fn insert_file(transaction: &Transaction<'_>, blob: &BlobRef) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("INSERT INTO blobs (hash) VALUES (?1) ON CONFLICT (hash) DO NOTHING")?
        .execute([blob.digest()])?;
    Ok(())
}

/// Keeps that a run names a blob; nothing for a name that is only text.
pub(super) fn insert_use(
    transaction: &Transaction<'_>,
    key: i64,
    blob: &BlobRef,
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "INSERT INTO uses (run, blob) SELECT ?1, id FROM blobs WHERE hash = ?2
             ON CONFLICT DO NOTHING",
        )?
        .execute(params![key, blob.digest()])?;
    Ok(())
}
