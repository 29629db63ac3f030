//! Where each run's log ends, kept beside the database.
//!
//! The database cannot tell that its own end is gone: without its write-ahead log, or replaced by an
//! older copy, it is whole and only older. The file `heads/{run id}` says how far the run had got. It
//! is written after each commit and never synced, so it may be behind the database, but is ahead of
//! it only when records were lost.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use fabro_blob::give_to_owner_of;
use fabro_types::RunId;

use super::chain::Hash;
use crate::StoreError;

/// How many files stay open for the next commit of their runs.
const OPEN: usize = 16;

/// How often a file is read again that a writer may be in the middle of.
const READS: usize = 3;

/// More bytes than a line has.
const MAX_LINE: u64 = 1024;

/// The end of a run's log at some moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) seq: u64,
    /// The hash of that record, in hexadecimal.
    hash: String,
}

impl Head {
    pub(super) fn new(seq: u64, hash: Hash) -> Self {
        Self { seq, hash: hash.to_hex() }
    }

    pub(super) fn is(&self, hash: Hash) -> bool {
        self.hash == hash.to_hex()
    }

    /// One line of constant length, so that it is written in one place and one call.
    fn line(&self) -> String {
        let text = format!("{:020} {}", self.seq, self.hash);
        let sum = sum(&text);
        format!("{text} {sum}\n")
    }

    fn parse(line: &str) -> Option<Self> {
        let (text, found) = line.strip_suffix('\n')?.rsplit_once(' ')?;
        let (seq, hash) = text.split_once(' ')?;
        let is_whole = sum(text) == found;
        is_whole.then_some(Self { seq: seq.parse().ok()?, hash: hash.to_owned() })
    }
}

/// To open a pipe would wait for its other end.
fn check_regular(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(about) if !about.is_file() => Err(io::Error::other("not a regular file")),
        _ => Ok(()),
    }
}

/// What the file holds, and no more than is needed to see that it is too long.
fn read_line(path: &Path) -> io::Result<Vec<u8>> {
    check_regular(path)?;
    let mut line = Vec::new();
    File::open(path)?.take(MAX_LINE).read_to_end(&mut line)?;
    Ok(line)
}

fn sum(text: &str) -> String {
    let mut hex = Hash::of(&[text.as_bytes()]).to_hex();
    hex.truncate(16);
    hex
}

/// The files of a store.
#[derive(Debug)]
pub(super) struct Heads {
    dir: PathBuf,
    open: Mutex<BTreeMap<RunId, File>>,
}

impl Heads {
    pub(super) fn new(store: &Path) -> Self {
        Self { dir: store.join("heads"), open: Mutex::default() }
    }

    /// The error for a database that is not there, if it held runs.
    pub(super) fn missing_database(&self, path: &Path) -> Result<Option<StoreError>, StoreError> {
        let runs = self.list()?.len();
        Ok((runs > 0).then(|| StoreError::NoDatabase {
            path: path.to_owned(),
            runs,
            heads: self.dir.clone(),
        }))
    }

    /// The newest message that was posted to a run's inbox: its id and its hash.
    pub(super) fn read_inbox(&self, run: RunId) -> Result<Option<Head>, StoreError> {
        Self::read_file(run, self.inbox_path(run))
    }

    pub(super) fn write_inbox(&self, run: RunId, head: &Head) -> Result<(), StoreError> {
        let path = self.inbox_path(run);
        let written =
            self.create(&path).and_then(|file| file.write_all_at(head.line().as_bytes(), 0));
        written.map_err(|error| StoreError::io(path, error))
    }

    fn path(&self, run: RunId) -> PathBuf {
        self.dir.join(run.to_string())
    }

    fn inbox_path(&self, run: RunId) -> PathBuf {
        self.dir.join(format!("{run}.inbox"))
    }

    /// The head of a run. None when there is no file, or an empty one: the machine lost its power before the
    /// file reached the disk.
    pub(super) fn read(&self, run: RunId) -> Result<Option<Head>, StoreError> {
        Self::read_file(run, self.path(run))
    }

    fn read_file(run: RunId, path: PathBuf) -> Result<Option<Head>, StoreError> {
        for _ in 0..READS {
            let line = match read_line(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                line => line.map_err(|error| StoreError::io(path.clone(), error))?,
            };
            if line.is_empty() {
                return Ok(None);
            }
            if let Some(head) = str::from_utf8(&line).ok().and_then(Head::parse) {
                return Ok(Some(head));
            }
        }
        Err(StoreError::DamagedHead { run, path })
    }

    pub(super) fn write(&self, run: RunId, head: &Head) -> Result<(), StoreError> {
        let path = self.path(run);
        let here = |error| StoreError::io(path.clone(), error);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if !open.contains_key(&run) {
            if open.len() >= OPEN {
                open.clear();
            }
            open.insert(run, self.create(&path).map_err(here)?);
        }
        match open.get(&run) {
            Some(file) => file.write_all_at(head.line().as_bytes(), 0).map_err(here),
            None => Ok(()),
        }
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        let new = || File::options().write(true).create_new(true).mode(0o600).open(path);
        let open = || match new() {
            Ok(file) => self.give_to_owner(path).map(|()| file),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                File::options().write(true).open(path)
            }
            error => error,
        };
        match check_regular(path).and_then(|()| open()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
                self.give_to_owner(&self.dir)?;
                open()
            }
            opened => opened,
        }
    }

    /// Gives a new file or directory to the owner of the store: root may work in another user's
    /// store. `SQLite` does the same with its own files.
    fn give_to_owner(&self, created: &Path) -> io::Result<()> {
        give_to_owner_of(self.dir.parent().unwrap_or(&self.dir), created)
    }

    pub(super) fn remove(&self, run: RunId) -> Result<(), StoreError> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&run);
        for path in [self.inbox_path(run), self.path(run)] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(StoreError::io(path, error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The runs that have a head.
    pub(super) fn list(&self) -> Result<Vec<RunId>, StoreError> {
        let here = |error| StoreError::io(self.dir.clone(), error);
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(here)?,
        };
        let mut runs = Vec::new();
        for entry in entries {
            let name = entry.map_err(here)?.file_name();
            runs.extend(name.to_str().and_then(|name| name.parse::<RunId>().ok()));
        }
        runs.sort_unstable();
        Ok(runs)
    }
}
