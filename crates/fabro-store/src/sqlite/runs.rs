use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::time::Duration;

use fabro_types::{RunId, RunStatus};
use rusqlite::Row;
use serde::Deserialize as _;
use serde::de::{IntoDeserializer as _, value};

use super::database::{Database, run_key};
use super::fault::Fault;
use super::format::has_hashes;
use super::row_hashes::{ROW_TEXT, is_sealed};
use super::{lease_rows, log, schema};
use crate::summary::{self, Known, MAX_ANCESTORS};
use crate::{Lease, LeaseOwner, RunSummary, StoreError, StoreWarning};

/// How long deleting a run keeps drivers away. A delete that takes longer fails when a driver has
/// taken the run over.
const DELETE_TTL: Duration = Duration::from_mins(1);

impl Database {
    pub(super) fn list(&self) -> Result<Vec<RunSummary>, StoreError> {
        self.read_with(|conn| {
            let sums = if has_hashes(conn)? { ROW_TEXT } else { "NULL, NULL" };
            let mut select = conn.prepare_cached(&format!(
                "SELECT id, parent, workflow, goal, status, started, ended, {sums}
                FROM runs ORDER BY key DESC"
            ))?;
            let runs = select.query_and_then([], |row| self.summary(row))?;
            let mut runs = runs.collect::<Result<Vec<_>, _>>()?;
            summary::mark_interrupted(&mut runs, &lease_rows::driven(conn)?);
            Ok(runs)
        })
    }

    pub(super) fn find(&self, text: &str) -> Result<RunId, StoreError> {
        let known = self.read_with(|conn| {
            let mut select =
                conn.prepare_cached("SELECT id, parent FROM runs ORDER BY key DESC")?;
            let known = select.query_and_then([], |row| {
                let is_child = row.get_ref(1)? != rusqlite::types::ValueRef::Null;
                Ok(Known { id: self.id(row, 0)?, is_child })
            })?;
            known.collect::<Result<Vec<_>, Fault>>()
        })?;
        let is_latest = text.trim() == "latest";
        let missing = match summary::find(text, &known) {
            // One that was recorded later may be lost; to take another run for it would be worse than an error.
            Ok(found) if is_latest => {
                let latest = self.lost_after(Some(found), &known)?.unwrap_or(found);
                if let Err(hidden) = self.check_hidden()
                    && self.has_ended(latest)?
                {
                    // The commit that cannot be read may be the first of a later run.
                    return Err(hidden);
                }
                return Ok(latest);
            }
            Err(error @ (StoreError::NotFound { .. } | StoreError::NoRuns)) if is_latest => {
                let lost = self.lost_after(None, &known)?;
                return lost.map_or_else(|| self.check_hidden().and(Err(error)), Ok);
            }
            Err(error @ (StoreError::NotFound { .. } | StoreError::NoRuns)) => error,
            found => return found,
        };
        // It may be one whose records are lost.
        let heads = self.heads.list()?;
        let mut lost = heads.into_iter().filter(|run| run.to_string().starts_with(text));
        let no_text = text.is_empty();
        match (lost.next(), lost.next()) {
            (Some(run), None) if !no_text => Ok(run),
            _ => self.check_hidden().and(Err(missing)),
        }
    }

    fn has_ended(&self, run: RunId) -> Result<bool, StoreError> {
        self.read_with(|conn| match run_key(conn, run)? {
            Some(key) => Ok(log::has_ended(conn, key)?),
            None => Ok(false),
        })
    }

    /// The newest run that has a head and no records, if its id is later than this one.
    fn lost_after(&self, run: Option<RunId>, known: &[Known]) -> Result<Option<RunId>, StoreError> {
        let mut later = self.heads.list()?;
        later.retain(|head| Some(*head) > run);
        if later.is_empty() {
            return Ok(None);
        }
        let known: BTreeSet<RunId> = known.iter().map(|known| known.id).collect();
        let mut lost = later.into_iter().rev().filter(|head| !known.contains(head));
        // An empty file says nothing.
        Ok(lost.find(|head| !matches!(self.heads.read(*head), Ok(None))))
    }

    pub(super) fn delete(&self, run: RunId) -> Result<(), StoreError> {
        if self.read_with(|conn| Ok(run_key(conn, run)?))?.is_none() {
            if self.heads.read(run)?.is_some() {
                self.check_hidden()?;
                // Its records are lost already.
                return self.heads.remove(run);
            }
            return Err(StoreError::NotFound { text: run.to_string() });
        }
        let root = self.root(run)?;
        let lease = match self.acquire(root, &LeaseOwner::this_process(), DELETE_TTL) {
            // Deleting frees space, and no driver can start on a full disk either.
            Err(StoreError::DiskFull { .. }) if self.driver(root)?.is_none() => None,
            acquired => Some(acquired?),
        };
        let deleted = self.delete_family(run, root, lease);
        if let Some(lease) = lease {
            self.release(lease)?;
        }
        deleted?;
        self.sweep_artifacts()?;
        self.sweep().map(drop)
    }

    /// Removes the artifacts that no run names. A name is the use, so runs may be driven meanwhile.
    pub(super) fn sweep_artifacts(&self) -> Result<(), StoreError> {
        let pool = self.artifacts_dir();
        match fabro_artifacts::sweep(&pool) {
            Ok(_) => Ok(()),
            Err(error) => Err(StoreError::io(pool, error)),
        }
    }

    fn delete_family(
        &self,
        run: RunId,
        root: RunId,
        lease: Option<Lease>,
    ) -> Result<(), StoreError> {
        let family = self.family(run)?;
        // First what takes most space: with a full disk the rest may need some.
        for member in &family {
            let dir = self.runs_dir().join(member.to_string());
            match fs::remove_dir_all(&dir) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(StoreError::io(dir, error));
                }
                _ => {}
            }
        }
        self.write_with(|transaction| {
            lease_rows::check(transaction, root, lease)?;
            for member in &family {
                let Some(key) = run_key(transaction, *member)? else { continue };
                let events = "DELETE FROM events WHERE id >= ?1 << 32 AND id < (?1 + 1) << 32";
                transaction.execute(events, [key])?;
                transaction.execute("DELETE FROM inbox WHERE run = ?1", [key])?;
                transaction.execute("DELETE FROM uses WHERE run = ?1", [key])?;
                transaction.execute("DELETE FROM runs WHERE key = ?1", [key])?;
                let lease = "DELETE FROM leases WHERE run = ?1";
                transaction.execute(lease, [member.to_string()])?;
                // Before the commit: a head without records is a loss for others, who read meanwhile.
                self.heads.remove(*member)?;
            }
            Ok(())
        })
    }

    pub(super) fn last_seq(&self, run: RunId) -> Result<u64, StoreError> {
        self.read_with(|conn| {
            let Some(key) = run_key(conn, run)? else { return Ok(0) };
            let (seq, half_written) = log::last_record(conn, key)?;
            Ok(seq - u64::from(half_written))
        })
    }

    pub(super) fn check(&self, run: RunId) -> Result<Option<StoreWarning>, StoreError> {
        self.read_with(|conn| {
            let Some(key) = run_key(conn, run)? else { return Ok(None) };
            let (seq, half_written) = log::last_record(conn, key)?;
            Ok(half_written.then_some(StoreWarning::HalfWritten { run, seq }))
        })
    }
}

impl Database {
    /// Removes the blobs that no run names and what killed writers left behind, unless a run is
    /// being driven: its driver may be about to name one. Returns whether it did.
    ///
    /// Acquiring a lease is a write, so no driver starts before this transaction ends.
    pub(super) fn sweep(&self) -> Result<bool, StoreError> {
        self.write_with(|transaction| {
            if !lease_rows::driven(transaction)?.is_empty() {
                return Ok(false);
            }
            let unused = "DELETE FROM blobs WHERE id NOT IN (SELECT blob FROM uses)";
            transaction.execute(unused, [])?;
            let mut select = transaction.prepare("SELECT hash FROM blobs WHERE bytes IS NULL")?;
            let named = select.query_map([], |row| row.get::<_, [u8; 32]>(0))?;
            let named = named.collect::<rusqlite::Result<BTreeSet<_>>>()?;
            self.remove_files(&named)?;
            Ok(true)
        })
    }

    fn remove_files(&self, named: &BTreeSet<[u8; 32]>) -> Result<(), StoreError> {
        for blob in self.files.list()? {
            if !named.contains(blob.digest()) {
                self.files.remove(&blob)?;
            }
        }
        self.files.remove_unfinished()?;
        schema::remove_unfinished(&self.dir)
    }

    /// A run and the runs of its sub-workflows, each after the run it is part of; the run alone
    /// when it is not known.
    pub(super) fn family(&self, run: RunId) -> Result<Vec<RunId>, StoreError> {
        self.read_with(|conn| {
            let mut family = vec![run];
            let mut known = BTreeSet::from([run]);
            let mut select =
                conn.prepare_cached("SELECT id FROM runs WHERE parent = ?1 ORDER BY key")?;
            let mut at = 0;
            while let Some(parent) = family.get(at).copied() {
                let mut rows = select.query([parent.to_string()])?;
                while let Some(row) = rows.next()? {
                    let id = self.id(row, 0)?;
                    if known.insert(id) {
                        family.push(id);
                    }
                }
                at += 1;
            }
            Ok(family)
        })
    }

    /// The outermost run that this one is a sub-workflow of.
    pub(super) fn root(&self, run: RunId) -> Result<RunId, StoreError> {
        const SQL: &str = "SELECT parent FROM runs WHERE id = ?1 AND parent IS NOT NULL";
        self.read_with(|conn| {
            let mut select = conn.prepare_cached(SQL)?;
            let mut root = run;
            for _ in 0..MAX_ANCESTORS {
                let mut rows = select.query([root.to_string()])?;
                let Some(row) = rows.next()? else { break };
                root = self.id(row, 0)?;
            }
            Ok(root)
        })
    }

    fn summary(&self, row: &Row<'_>) -> Result<RunSummary, Fault> {
        if !is_sealed(row.get_ref(7)?, row.get_ref(8)?) {
            let id: String = row.get(0)?;
            return Err(self.corrupt(format!("what lists show of run {id} was changed")).into());
        }
        let word: String = row.get(4)?;
        let status = RunStatus::deserialize(word.as_str().into_deserializer())
            .map_err(|_: value::Error| self.corrupt(format!("the status of a run is `{word}`")))?;
        Ok(RunSummary {
            id: self.id(row, 0)?,
            parent: match row.get_ref(1)? {
                rusqlite::types::ValueRef::Null => None,
                _ => Some(self.id(row, 1)?),
            },
            workflow: row.get(2)?,
            goal: row.get(3)?,
            status,
            started_at_ms: row.get(5)?,
            ended_at_ms: row.get(6)?,
        })
    }

    fn id(&self, row: &Row<'_>, column: usize) -> Result<RunId, Fault> {
        let text: String = row.get(column)?;
        Ok(text.parse().map_err(|_| self.corrupt(format!("the id of a run is `{text}`")))?)
    }

    fn corrupt(&self, detail: String) -> StoreError {
        StoreError::Corrupt { path: self.path.clone(), detail }
    }
}
