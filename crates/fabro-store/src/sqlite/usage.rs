//! The space that a store takes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use fabro_types::{BlobRef, RunId};
use rusqlite::{Connection, Row};

use super::database::Database;
use crate::StoreError;
use crate::summary::MAX_ANCESTORS;

/// The space that a store takes, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreUsage {
    /// The database with its write-ahead log.
    pub database: u64,
    /// How much of the database is free for new records.
    pub free: u64,
    /// The blobs that are files.
    pub blob_files: u64,
    /// The blobs, in the database or as files, that no run names.
    pub unnamed_blobs: u64,
    /// The artifacts of all runs.
    pub artifacts: u64,
    /// The artifacts that no run names.
    pub unnamed_artifacts: u64,
    /// The other files of all runs. What several runs have counts once.
    pub files: u64,
    /// Each run that is not a sub-workflow's, in the order of their ids.
    pub runs: Vec<RunUsage>,
}

/// The space that a run takes with its sub-workflows, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunUsage {
    /// The run.
    pub run: RunId,
    /// Its records.
    pub records: u64,
    /// The blobs that no other run names.
    pub blobs: u64,
    /// The blobs that it names and other runs too.
    pub shared_blobs: u64,
    /// The artifacts that no other run has.
    pub artifacts: u64,
    /// The artifacts that it has and other runs too.
    pub shared_artifacts: u64,
    /// The other files of its stages that no other run has.
    pub files: u64,
    /// The other files that it has and other runs too: a fork has the contents of changed files as its run does.
    pub shared_files: u64,
}

/// A file with several names: an artifact, or a content of a changed file that a fork has too.
struct Link {
    length: u64,
    /// How many names it has.
    all: u64,
    /// How many of them are the run's.
    seen: u64,
}

/// By device and inode.
type Links = BTreeMap<(u64, u64), Link>;

impl RunUsage {
    fn new(run: RunId) -> Self {
        Self {
            run,
            records: 0,
            blobs: 0,
            shared_blobs: 0,
            artifacts: 0,
            shared_artifacts: 0,
            files: 0,
            shared_files: 0,
        }
    }

    /// Where a file with several names counts.
    fn linked(&mut self, is_artifact: bool, is_own: bool) -> &mut u64 {
        match (is_artifact, is_own) {
            (true, true) => &mut self.artifacts,
            (true, false) => &mut self.shared_artifacts,
            (false, true) => &mut self.files,
            (false, false) => &mut self.shared_files,
        }
    }

    /// What removing the run would free.
    pub fn own(&self) -> u64 {
        self.records + self.blobs + self.artifacts + self.files
    }
}

/// A blob: the key of its row, how long it is in the database, and what it is called.
struct KnownBlob {
    key: i64,
    bytes: Option<u64>,
    hash: BlobRef,
}

/// A run, or the run of a sub-workflow.
struct RunRow {
    run: RunId,
    parent: Option<RunId>,
    records: u64,
}

impl Database {
    pub(super) fn usage(&self) -> Result<StoreUsage, StoreError> {
        let (rows, blobs, uses, free) = self.read_with(|conn| {
            Ok((run_rows(conn)?, blob_rows(conn)?, use_rows(conn)?, free(conn)?))
        })?;
        let roots = roots(&rows);
        let mut runs = BTreeMap::new();
        let mut links: BTreeMap<RunId, Links> = BTreeMap::new();
        for (key, row) in &rows {
            let run = roots[key];
            let usage = runs.entry(run).or_insert_with(|| RunUsage::new(run));
            usage.records += row.records;
            let dir = self.runs_dir().join(row.run.to_string());
            usage.files += tree_length(&dir, links.entry(run).or_default())?;
        }
        let pool = self.artifacts_dir();
        let mut in_pool = Links::new();
        tree_length(&pool, &mut in_pool)?;
        let mut files: u64 = runs.values().map(|usage| usage.files).sum();
        let mut counted = BTreeSet::new();
        for (run, links) in links {
            let Some(usage) = runs.get_mut(&run) else { continue };
            for (inode, link) in links {
                let is_artifact = in_pool.contains_key(&inode);
                files += if !is_artifact && counted.insert(inode) { link.length } else { 0 };
                // The pool has one name more.
                let is_own = link.all <= link.seen + u64::from(is_artifact);
                *usage.linked(is_artifact, is_own) += link.length;
            }
        }
        let mut named_by: BTreeMap<i64, BTreeSet<RunId>> = BTreeMap::new();
        for (key, blob) in uses {
            named_by.entry(blob).or_default().extend(roots.get(&key));
        }
        let mut blob_files = 0;
        let mut unnamed_blobs = 0;
        for blob in blobs {
            let length = match blob.bytes {
                Some(bytes) => bytes,
                None => file_length(&self.files.path(&blob.hash))?,
            };
            blob_files += if blob.bytes.is_none() { length } else { 0 };
            let named_by = named_by.remove(&blob.key).unwrap_or_default();
            unnamed_blobs += if named_by.is_empty() { length } else { 0 };
            let is_shared = named_by.len() > 1;
            for run in named_by {
                let Some(usage) = runs.get_mut(&run) else { continue };
                let sum = if is_shared { &mut usage.shared_blobs } else { &mut usage.blobs };
                *sum += length;
            }
        }
        let log = self.path.with_extension("db-wal");
        let artifacts =
            fabro_artifacts::pool_usage(&pool).map_err(|error| StoreError::io(pool, error))?;
        Ok(StoreUsage {
            database: file_length(&self.path)? + file_length(&log)?,
            free,
            blob_files,
            unnamed_blobs,
            artifacts: artifacts.total,
            unnamed_artifacts: artifacts.unnamed,
            files,
            runs: runs.into_values().collect(),
        })
    }

    pub(super) fn compact(&self, least: u64) -> Result<bool, StoreError> {
        self.sweep_artifacts()?;
        if !self.sweep()? {
            return Ok(false);
        }
        if self.read_with(|conn| Ok(free(conn)?))? >= least {
            self.read_with(|conn| Ok(conn.execute_batch("VACUUM")?))?;
            self.fold();
        }
        Ok(true)
    }
}

/// The bytes of the database that are free.
fn free(conn: &Connection) -> rusqlite::Result<u64> {
    const SQL: &str =
        "SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size";
    conn.query_row(SQL, [], |row| bytes(row, 0))
}

/// A column with a number of bytes, which is never negative.
fn bytes(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get(column).map(i64::cast_unsigned)
}

/// The runs by their keys.
fn run_rows(conn: &Connection) -> rusqlite::Result<BTreeMap<i64, RunRow>> {
    const SQL: &str = "SELECT key, id, parent,
        (SELECT coalesce(sum(length(CAST(entry AS BLOB))), 0) FROM events
            WHERE events.id >= key << 32 AND events.id < (key + 1) << 32) FROM runs";
    let mut select = conn.prepare(SQL)?;
    let rows = select.query_map([], |row| {
        let run = row.get::<_, String>(1)?.parse::<RunId>().ok();
        let parent = row.get::<_, Option<String>>(2)?.and_then(|id| id.parse::<RunId>().ok());
        Ok((row.get(0)?, run, parent, bytes(row, 3)?))
    })?;
    let mut runs = BTreeMap::new();
    for row in rows {
        let (key, run, parent, records) = row?;
        // A row whose id is none is a damage that `verify` reports.
        let Some(run) = run else { continue };
        runs.insert(key, RunRow { run, parent, records });
    }
    Ok(runs)
}

/// For each run's key the run that is no sub-workflow's and that it belongs to.
fn roots(rows: &BTreeMap<i64, RunRow>) -> BTreeMap<i64, RunId> {
    let parents: BTreeMap<RunId, RunId> =
        rows.values().filter_map(|row| Some((row.run, row.parent?))).collect();
    let root = |run: RunId| {
        let up = std::iter::successors(Some(run), |run| parents.get(run).copied());
        up.take(MAX_ANCESTORS).last().unwrap_or(run)
    };
    rows.iter().map(|(key, row)| (*key, root(row.run))).collect()
}

fn blob_rows(conn: &Connection) -> rusqlite::Result<Vec<KnownBlob>> {
    let mut select = conn.prepare("SELECT id, length(bytes), hash FROM blobs")?;
    let rows = select.query_map([], |row| {
        let hash = BlobRef::from_digest(row.get::<_, [u8; 32]>(2)?);
        let bytes = row.get::<_, Option<i64>>(1)?.map(i64::cast_unsigned);
        Ok(KnownBlob { key: row.get(0)?, bytes, hash })
    })?;
    rows.collect()
}

/// Runs and the blobs that they name, by their keys.
fn use_rows(conn: &Connection) -> rusqlite::Result<Vec<(i64, i64)>> {
    let mut select = conn.prepare("SELECT run, blob FROM uses")?;
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}

/// The length of a file; 0 when there is none.
fn file_length(path: &Path) -> Result<u64, StoreError> {
    match fs::symlink_metadata(path) {
        Ok(meta) => Ok(meta.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(StoreError::io(path.to_owned(), error)),
    }
}

/// The length of all files below a directory that have one name, those with several besides. What
/// disappears meanwhile counts nothing.
fn tree_length(dir: &Path, links: &mut Links) -> Result<u64, StoreError> {
    let mut length = 0;
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(StoreError::io(dir, error)),
        };
        for entry in entries {
            let entry = entry.map_err(|error| StoreError::io(dir.clone(), error))?;
            let path = entry.path();
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => open.push(path),
                Ok(meta) if meta.nlink() > 1 => {
                    let link = Link { length: meta.len(), all: meta.nlink(), seen: 0 };
                    links.entry((meta.dev(), meta.ino())).or_insert(link).seen += 1;
                }
                Ok(meta) => length += meta.len(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(StoreError::io(path, error)),
            }
        }
    }
    Ok(length)
}
