//! Checking a store in full, and copying it.

use std::collections::BTreeSet;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use fabro_blob::{BlobError, BlobStore as _};
use fabro_types::{BlobRef, RunId};
use rusqlite::{Connection, params};

use super::chain::Hash;
use super::database::{Database, run_key};
use super::fault;
use super::heads::Head;
use super::{lease_rows, log, refs, row_hashes};
use crate::{StoreError, summary};

/// How many events are checked at a time.
const PAGE: usize = 1_000;

/// What a check of a run found.
#[derive(Debug)]
pub struct RunVerification {
    /// The run.
    pub run: RunId,
    /// How many events were read and are as they were written.
    pub events: u64,
    /// How many of them an older version of the program wrote, which kept no hashes.
    pub unhashed: u64,
    /// How many blobs were read and are as they were written.
    pub blobs: u64,
    /// Whether it is known how far the log went when it was last written.
    pub has_head: bool,
    /// What is wrong; empty for a run that is whole.
    pub problems: Vec<StoreError>,
}

impl Database {
    pub(super) fn verify(&self, run: RunId) -> Result<RunVerification, StoreError> {
        let is_known = self.read_with(|conn| Ok(run_key(conn, run)?))?.is_some();
        let mut found = RunVerification {
            run,
            events: 0,
            unhashed: 0,
            blobs: 0,
            has_head: false,
            problems: Vec::new(),
        };
        match self.heads.read(run) {
            Ok(head) => found.has_head = head.is_some(),
            Err(error) => {
                found.problems.push(error);
                return Ok(found);
            }
        }
        if !is_known && !found.has_head {
            return Err(StoreError::NotFound { text: run.to_string() });
        }
        if is_known && let Err(error) = self.pending(run) {
            found.problems.push(error);
        }
        found.unhashed = self.read_with(|conn| Ok(log::unhashed(conn, run)?))?;
        let mut named = self.named_blobs(run)?;
        let mut referred = BTreeSet::new();
        loop {
            let page = match self.read(run, found.events, PAGE) {
                Ok(page) => page,
                Err(error) => {
                    found.problems.push(error);
                    break;
                }
            };
            for event in &page {
                let text = serde_json::to_vec(&event.entry).map_err(|error| {
                    StoreError::BadEvent { run, seq: event.seq, detail: error.to_string() }
                })?;
                refs::collect(&text, &mut named);
                refs::collect_strings(&text, &mut referred);
            }
            found.events += page.len() as u64;
            if page.len() < PAGE {
                break;
            }
        }
        found.unhashed = found.unhashed.min(found.events);
        for blob in &named {
            match self.verify_blob(blob) {
                Ok(()) => found.blobs += 1,
                // The name of a value that was never stored is only text, unless a row of a blob is gone.
                Err(StoreError::Blob(BlobError::Missing { .. })) => {}
                Err(error) => found.problems.push(error),
            }
        }
        let rows = self.lost_rows(run)?;
        if rows > 0 {
            found.problems.extend(self.lost_blobs(rows, &named, referred));
        }
        Ok(found)
    }

    /// How many blobs the run uses that have no row any more.
    fn lost_rows(&self, run: RunId) -> Result<i64, StoreError> {
        const SQL: &str = "SELECT count(*) FROM uses LEFT JOIN blobs ON blobs.id = uses.blob
            WHERE uses.run = (SELECT key FROM runs WHERE id = ?1) AND blobs.id IS NULL";
        self.read_with(|conn| Ok(conn.query_row(SQL, [run.to_string()], |row| row.get(0))?))
    }

    /// The names that the lost rows had are those that events and other blobs refer to, and that no row has.
    fn lost_blobs(
        &self,
        rows: i64,
        named: &BTreeSet<BlobRef>,
        mut referred: BTreeSet<BlobRef>,
    ) -> Vec<StoreError> {
        for blob in named {
            // Those that cannot be read are problems of their own.
            let bytes = self.small_bytes(blob).ok().flatten().or_else(|| self.files.get(blob).ok());
            refs::collect_strings(&bytes.unwrap_or_default(), &mut referred);
        }
        let is_unknown = |blob: &BlobRef| {
            matches!(self.verify_blob(blob), Err(StoreError::Blob(BlobError::Missing { .. })))
        };
        referred.retain(is_unknown);
        let lost = referred.into_iter().map(|blob| BlobError::Lost { blob }.into());
        let mut problems: Vec<StoreError> = lost.collect();
        let unnamed = rows.saturating_sub(i64::try_from(problems.len()).unwrap_or(i64::MAX));
        if unnamed > 0 {
            problems.push(StoreError::Corrupt {
                path: self.path.clone(),
                detail: format!("the rows of {unnamed} values that the run uses are lost"),
            });
        }
        problems
    }

    fn named_blobs(&self, run: RunId) -> Result<BTreeSet<BlobRef>, StoreError> {
        const SQL: &str = "SELECT hash FROM blobs JOIN uses ON uses.blob = blobs.id
            WHERE uses.run = (SELECT key FROM runs WHERE id = ?1)";
        self.read_with(|conn| {
            let mut select = conn.prepare(SQL)?;
            let hashes = select.query_map([run.to_string()], |row| row.get::<_, [u8; 32]>(0))?;
            let blobs = hashes.map(|hash| hash.map(BlobRef::from_digest));
            Ok(blobs.collect::<rusqlite::Result<_>>()?)
        })
    }

    fn verify_blob(&self, blob: &BlobRef) -> Result<(), StoreError> {
        if self.small_bytes(blob)?.is_none() {
            let read = self.files.copy_to(blob, &mut io::sink());
            read.map_err(|error| self.lost_or_unknown(error))?;
        }
        Ok(())
    }

    pub(super) fn accept_loss(&self, run: RunId) -> Result<(), StoreError> {
        let root = self.root(run)?;
        let head = self.write_with(|transaction| {
            lease_rows::check(transaction, root, None)?;
            Ok(log::end(transaction, run)?)
        })?;
        let Some(end) = head else { return self.heads.remove(run) };
        let mut after = 0;
        let mut changes = Vec::new();
        loop {
            // Without the head, which is ahead or cannot be read.
            let page = self.read_below(run, None, after, PAGE)?;
            changes.extend(page.iter().filter_map(summary::change));
            after += page.len() as u64;
            if page.len() < PAGE {
                break;
            }
        }
        self.write_with(|transaction| {
            for change in &changes {
                log::update_run(transaction, end.key, change)?;
            }
            Ok(row_hashes::seal(transaction, end.key)?)
        })?;
        self.heads.remove(run)?;
        self.heads.write(run, &Head::new(end.seq, end.hash.unwrap_or_else(|| Hash::of_run(run))))
    }

    pub(super) fn lost_runs(&self) -> Result<Vec<RunId>, StoreError> {
        // First the heads: a run that begins meanwhile is in the database, then.
        let heads = self.heads.list()?;
        self.read_with(|conn| {
            let mut lost = Vec::new();
            for run in heads {
                if run_key(conn, run)?.is_none() {
                    lost.push(run);
                }
            }
            Ok(lost)
        })
    }

    pub(super) fn check_database(&self) -> Result<Vec<String>, StoreError> {
        self.read_with(|conn| {
            let mut check = conn.prepare("PRAGMA integrity_check")?;
            let lines = check.query_map([], |row| row.get::<_, String>(0))?;
            let mut lines = lines.collect::<rusqlite::Result<Vec<_>>>()?;
            lines.retain(|line| line != "ok");
            lines.extend(self.check_hidden().err().map(|hidden| hidden.to_string()));
            // A row with another name than its bytes have is no blob that a run names.
            let mut select =
                conn.prepare("SELECT hash, bytes FROM blobs WHERE bytes IS NOT NULL")?;
            let mut rows = select.query([])?;
            while let Some(row) = rows.next()? {
                let blob = BlobRef::from_digest(row.get(0)?);
                if BlobRef::of(row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?) != blob {
                    lines.push(
                        BlobError::Corrupt { blob, path: Some(self.path.clone()) }.to_string(),
                    );
                }
            }
            Ok(lines)
        })
    }

    pub(super) fn backup(&self, file: &Path) -> Result<(), StoreError> {
        self.check_hidden()?;
        let here = |error| StoreError::io(file.to_owned(), error);
        if file.exists() {
            return Err(here(io::ErrorKind::AlreadyExists.into()));
        }
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        let beside = parent.unwrap_or(Path::new("."));
        // It has all that the runs know, and is for its owner alone.
        let private = Permissions::from_mode(0o700);
        let temporary = tempfile::Builder::new()
            .prefix(".fabro-backup-")
            .permissions(private)
            .tempdir_in(beside);
        let temporary = temporary.map_err(here)?;
        let copy = temporary.path().join("fabro.db");
        self.read_with(|conn| {
            let copied = conn.execute("VACUUM INTO ?1", [copy.to_string_lossy()]);
            copied.map_err(|error| match fault::sql(&error, file) {
                // It is the disk of the copy.
                full @ StoreError::DiskFull { .. } => full.into(),
                _ => fault::Fault::from(error),
            })?;
            Ok(())
        })?;
        let conn = Connection::open(&copy).map_err(|error| fault::sql(&error, &copy))?;
        self.fill_blobs(&conn).map_err(|fault| fault.at(&copy))?;
        conn.close().map_err(|(_, error)| fault::sql(&error, &copy))?;
        std::fs::set_permissions(&copy, Permissions::from_mode(0o600)).map_err(here)?;
        File::open(&copy).and_then(|file| file.sync_all()).map_err(here)?;
        // Not over a file that another process has created meanwhile.
        std::fs::hard_link(&copy, file)
            .or_else(|_| {
                if file.exists() {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                std::fs::rename(&copy, file)
            })
            .map_err(here)
    }

    /// Puts the blobs that are files here into the copy, and takes out what belongs to this store's
    /// processes alone.
    fn fill_blobs(&self, copy: &Connection) -> Result<(), fault::Fault> {
        copy.execute_batch("PRAGMA journal_mode = DELETE; PRAGMA synchronous = FULL")?;
        let rows = {
            let mut select = copy.prepare("SELECT id, hash FROM blobs WHERE bytes IS NULL")?;
            let rows = select.query_map([], |row| Ok((row.get(0)?, row.get::<_, [u8; 32]>(1)?)))?;
            rows.collect::<rusqlite::Result<Vec<(i64, _)>>>()?
        };
        copy.execute_batch("BEGIN")?;
        copy.execute("UPDATE leases SET owner = NULL", [])?;
        for (id, hash) in rows {
            let bytes = self.files.get(&BlobRef::from_digest(hash)).map_err(StoreError::from)?;
            copy.execute("UPDATE blobs SET bytes = ?2 WHERE id = ?1", params![id, bytes])?;
        }
        copy.execute_batch("COMMIT")?;
        copy.execute_batch("PRAGMA journal_mode = WAL")?;
        Ok(())
    }
}
