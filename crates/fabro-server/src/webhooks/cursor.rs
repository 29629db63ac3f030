//! How far the events of each run are delivered to one endpoint, in files: a server that ends loses no event.

use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use fabro_types::RunId;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

/// Where deliveries to an endpoint began.
const START: &str = "start.json";

/// Held by the server that delivers to the endpoint.
const LOCK: &str = "lock";

/// What `fabro doctor` reads.
pub(super) const FAILING: &str = "failing.json";

/// The runs that there were when an endpoint was first delivered to, with their last sequence numbers then.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Start {
    url: String,
    runs: HashMap<RunId, u64>,
}

/// The position in the log of each run, for one endpoint.
#[derive(Debug)]
pub(super) struct Cursor {
    dir: PathBuf,
    start: HashMap<RunId, u64>,
    /// The last sequence number that needs no delivery, and the one that the file has.
    runs: HashMap<RunId, Position>,
    /// Kept open, and so locked, as long as the cursor is there.
    _lock: File,
}

#[derive(Clone, Copy, Debug)]
struct Position {
    seq: u64,
    saved: u64,
}

impl Cursor {
    /// Whether nothing was delivered to the endpoint before.
    pub(super) fn is_new(dir: &Path) -> bool {
        !dir.join(START).exists()
    }

    /// The cursor in a directory; `None` while another server has it. Before the first time, nothing is
    /// delivered of what `runs` says was recorded already.
    pub(super) fn open(
        dir: &Path,
        url: &str,
        runs: HashMap<RunId, u64>,
    ) -> io::Result<Option<Self>> {
        fs::create_dir_all(dir)?;
        let lock = File::options().create(true).truncate(false).write(true).open(dir.join(LOCK))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let file = dir.join(START);
        let start = match fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let start = Start { url: url.to_owned(), runs };
                save(dir, START, &serde_json::to_vec(&start)?)?;
                start
            }
            Err(error) => return Err(error),
        };
        Ok(Some(Self { dir: dir.to_owned(), start: start.runs, runs: HashMap::new(), _lock: lock }))
    }

    /// The last sequence number of a run that needs no delivery.
    pub(super) fn seq(&mut self, run: RunId) -> io::Result<u64> {
        if let Some(position) = self.runs.get(&run) {
            return Ok(position.seq);
        }
        let seq = match fs::read_to_string(self.dir.join(run.to_string())) {
            Ok(text) => text.trim().parse().map_err(io::Error::other)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.start.get(&run).copied().unwrap_or_default()
            }
            Err(error) => return Err(error),
        };
        self.runs.insert(run, Position { seq, saved: seq });
        Ok(seq)
    }

    /// Moves on; nothing is written yet.
    pub(super) fn passed(&mut self, run: RunId, seq: u64) {
        self.runs.entry(run).or_insert(Position { seq, saved: 0 }).seq = seq;
    }

    /// Writes the position of a run, if it has moved by at least so many events.
    pub(super) fn save(&mut self, run: RunId, least: u64) -> io::Result<()> {
        let Some(position) = self.runs.get_mut(&run) else { return Ok(()) };
        if position.seq < position.saved + least {
            return Ok(());
        }
        save(&self.dir, &run.to_string(), position.seq.to_string().as_bytes())?;
        position.saved = position.seq;
        Ok(())
    }

    /// Writes down why deliveries fail, for `fabro doctor`; `None` when they do not.
    pub(super) fn failing(&self, report: Option<&[u8]>) -> io::Result<()> {
        match report {
            Some(text) => save(&self.dir, FAILING, text),
            None => match fs::remove_file(self.dir.join(FAILING)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        }
    }
}

fn save(dir: &Path, name: &str, text: &[u8]) -> io::Result<()> {
    let mut file = NamedTempFile::new_in(dir)?;
    file.write_all(text)?;
    file.as_file().sync_all()?;
    file.persist(dir.join(name))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_survive_and_one_server_has_them() {
        let dir = tempfile::tempdir().unwrap();
        let [old, new] = [1, 2].map(|number| RunId::from_parts(number, 1));
        let open = || Cursor::open(dir.path(), "u", HashMap::from([(old, 7)])).unwrap();
        let mut first = open().unwrap();
        assert!(open().is_none(), "it is locked");
        assert_eq!((first.seq(old).unwrap(), first.seq(new).unwrap()), (7, 0));
        first.passed(new, 3);
        first.save(new, 1).unwrap();
        first.passed(new, 5);
        first.save(new, 100).unwrap();
        drop(first);
        // What was not written is delivered again.
        let mut second = Cursor::open(dir.path(), "u", HashMap::new()).unwrap().unwrap();
        assert_eq!((second.seq(old).unwrap(), second.seq(new).unwrap()), (7, 3));
    }
}
