//! The files of a stage, for people and for later stages: `prompt.md`, `response.md`,
//! `script.sh`, logs, `status.json`. They are a projection; the log is the truth.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fabro_engine::{Stage, StageEnd, keys, stage_dir};
use fabro_events::{CompletedStage, Event, EventBody, EventSink};
use fabro_sandbox::artifacts::{SUMS, open_file, write_sums};
use fabro_sandbox::is_exhausted;
use fabro_types::{Outcome, Status};
use serde::Serialize;

use crate::common::failed;

/// The file of the value that a script reads from its standard input.
pub(crate) const STDIN: &str = "stdin.txt";

/// Files that an attempt writes, and that make way for the next attempt's.
const ATTEMPT_FILES: [&str; 7] =
    ["prompt.md", "response.md", "script.sh", "script.py", STDIN, "stdout.log", "stderr.log"];

/// The empty directory of a stage that left nothing, beside those of the stages, for the next stage:
/// to make and to remove a directory is the largest cost of a stage without output, since a file
/// system passes over what was just removed each time it makes something new.
const SPARE: &str = ".spare";

/// The result of an attempt or a stage.
const STATUS: &str = "status.json";

/// A file of a stage that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("write {}: {source}; free some space or choose another store", path.display())]
pub(crate) struct FileError {
    path: PathBuf,
    source: io::Error,
}

impl From<FileError> for StageEnd {
    fn from(error: FileError) -> Self {
        if is_exhausted(&error) {
            return failed(&error).into();
        }
        Self::CannotRecord { message: error.to_string() }
    }
}

/// The directory of a stage.
pub(crate) struct StageFiles {
    dir: PathBuf,
}

impl StageFiles {
    /// Makes the directory; files of an earlier attempt move to `attempt-N/`, and its
    /// `status.json` is written there.
    pub(crate) async fn open(stage: &Stage) -> Result<Self, FileError> {
        let files = Self { dir: stage.dir() };
        files.make().map_err(|source| FileError { path: files.dir.clone(), source })?;
        if stage.at.attempt > 1 {
            files.put_away(stage).await?;
        }
        Ok(files)
    }

    fn make(&self) -> io::Result<()> {
        let spare = self.dir.with_file_name(SPARE);
        if is_empty(&spare) && fs::rename(spare, &self.dir).is_ok() {
            return Ok(());
        }
        fs::create_dir_all(&self.dir)
    }

    /// Removes the directory when the attempt left nothing in it; false when it did.
    pub(crate) fn remove_if_empty(&self) -> bool {
        let spare = self.dir.with_file_name(SPARE);
        if !is_empty(&self.dir) {
            return false;
        }
        if fs::rename(&self.dir, &spare).is_err() {
            // Fails when something was written since: then it stays, as it should.
            return fs::remove_dir(&self.dir).is_ok();
        }
        if is_empty(&spare) {
            return true;
        }
        // Written between the look and the move, by something that the script left running.
        let is_back = fs::rename(spare, &self.dir).is_ok();
        !is_back
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> Result<(), FileError> {
        let path = self.path(name);
        fs::write(&path, text).map_err(|source| FileError { path, source })
    }

    async fn put_away(&self, stage: &Stage) -> Result<(), FileError> {
        let earlier = self.dir.join(format!("attempt-{}", stage.at.attempt - 1));
        let failed = |path: &Path, source| FileError { path: path.to_owned(), source };
        // Written last: without it, a driver died before all was put away.
        let status = earlier.join(STATUS);
        if status.exists() {
            return Ok(());
        }
        fs::create_dir_all(&earlier).map_err(|source| failed(&earlier, source))?;
        for name in ATTEMPT_FILES {
            let from = self.dir.join(name);
            let to = earlier.join(name);
            match fs::rename(&from, &to) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(failed(&to, source));
                }
                _ => {}
            }
        }
        // Nothing in the log says what was in them.
        let sums_dir = earlier.clone();
        let sums = tokio::task::spawn_blocking(move || write_sums(&sums_dir, &ATTEMPT_FILES)).await;
        sums.map_err(io::Error::from)
            .flatten()
            .map_err(|source| failed(&earlier.join(SUMS), source))?;
        let json = attempt_status(stage).await.map_err(|source| failed(&status, source))?;
        fs::write(&status, json).map_err(|source| failed(&status, source))
    }
}

/// The result of the attempt before this one, whose record precedes this one's.
async fn attempt_status(stage: &Stage) -> io::Result<Vec<u8>> {
    let at = &stage.at;
    let found = stage.store.read(stage.run_id, at.since_seq.saturating_sub(1), 1).await;
    let event = found.map_err(io::Error::other)?.pop();
    let outcome = match event.map(|event| event.entry.body) {
        Some(EventBody::StageRetrying { failure, usage, .. }) => {
            Outcome { usage, ..Outcome::failed(failure) }
        }
        _ => return Err(io::Error::other("the log has no end of the attempt before this one")),
    };
    let rank = at.rank;
    let attempts = at.attempt - 1;
    let env = BTreeMap::new();
    let end = CompletedStage { rank, attempts, outcome, prompt: None, script: None, env };
    let mut status =
        serde_json::to_value(StatusFile { node: &at.node, visit: at.visit, end: &end })?;
    // The log does not have that of an attempt.
    status.as_object_mut().and_then(|status| status.remove("duration_ms"));
    Ok(serde_json::to_vec(&status)?)
}

/// Writes `status.json` into the directory of every stage that ended, unless the stage has no files
/// and its record in the log says no more than that it succeeded.
pub struct StatusFiles {
    runs_dir: PathBuf,
    warn: Box<dyn Fn(&str) + Send + Sync>,
    has_warned: AtomicBool,
}

#[derive(Serialize)]
struct StatusFile<'a> {
    node: &'a str,
    visit: u32,
    #[serde(flatten)]
    end: &'a CompletedStage,
}

impl StatusFiles {
    /// For all runs whose directories are in `runs_dir`. `warn` is called once when a file
    /// cannot be written: the log has all of it, and the run continues.
    pub fn new(runs_dir: impl Into<PathBuf>, warn: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let has_warned = AtomicBool::new(false);
        Self { runs_dir: runs_dir.into(), warn: Box::new(warn), has_warned }
    }

    /// Writes the files that a driver did not come to write before it died. `events` is the log of
    /// a run.
    pub fn catch_up(&self, events: &[Event]) {
        for event in events {
            if let EventBody::StageCompleted(end) | EventBody::StageFailed(end) = &event.entry.body
                && let Some(dir) = self.dir(event, end)
                && !dir.join(STATUS).exists()
            {
                self.event(event);
            }
        }
    }

    fn dir(&self, event: &Event, end: &CompletedStage) -> Option<PathBuf> {
        let node = event.entry.node_id.as_deref()?;
        let run_dir = self.runs_dir.join(event.run_id.to_string());
        Some(stage_dir(&run_dir, end.rank, node, event.entry.visit?))
    }

    fn write(&self, event: &Event, end: &CompletedStage) -> io::Result<()> {
        let missing = || io::Error::other("the event names no stage");
        let dir = self.dir(event, end).ok_or_else(missing)?;
        let node = event.entry.node_id.as_deref().ok_or_else(missing)?;
        let visit = event.entry.visit.ok_or_else(missing)?;
        if is_plain(&end.outcome) && is_empty(&dir) {
            return Ok(());
        }
        let json = serde_json::to_vec(&StatusFile { node, visit, end })?;
        let path = dir.join(STATUS);
        // A script may have put a pipe there, whose other end nothing reads.
        if path.symlink_metadata().is_ok_and(|there| !there.is_file()) {
            fs::remove_file(&path)?;
        }
        match fs::write(&path, &json) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(&dir)?;
                fs::write(path, json)
            }
            other => other,
        }
    }
}

/// Whether there is nothing in a directory, or no directory.
fn is_empty(dir: &Path) -> bool {
    match fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// A success without results; what a command printed is in its logs, if it printed anything.
fn is_plain(outcome: &Outcome) -> bool {
    let is_output = |key: &String| {
        [keys::COMMAND_OUTPUT, keys::COMMAND_STDERR, keys::COMMAND_EXIT_CODE].contains(&&**key)
    };
    outcome.status == Status::Succeeded
        && outcome.files_touched.is_empty()
        && outcome.context_updates.keys().all(is_output)
}

impl EventSink for StatusFiles {
    fn event(&self, event: &Event) {
        if let EventBody::StageCompleted(end) | EventBody::StageFailed(end) = &event.entry.body
            && let Err(error) = self.write(event, end)
            && !self.has_warned.swap(true, Ordering::Relaxed)
        {
            let node = event.entry.node_id.as_deref().unwrap_or_default();
            (self.warn)(&format!(
                "status.json of {node} cannot be written: {error}; the run continues, and its log has all of it"
            ));
        }
    }
}

/// The `status.json` in the working directory, in which an agent may put its directives.
#[derive(Clone)]
pub(crate) struct AgentStatus {
    work_dir: PathBuf,
    /// What was there before the agent began.
    before: Option<Stamp>,
    /// When the agent began, where that was in an earlier driver.
    since: Option<SystemTime>,
}

/// The time, size and inode of a file: differs where it was written or replaced.
type Stamp = (SystemTime, u64, u64);

impl AgentStatus {
    pub(crate) const NAME: &str = STATUS;

    /// As it is now, before the agent begins; or before it resumes, having begun at `since_ms`
    /// (milliseconds since 1970).
    pub(crate) fn before(work_dir: &Path, since_ms: Option<i64>) -> Self {
        let time = |ms: i64| UNIX_EPOCH + Duration::from_millis(u64::try_from(ms).unwrap_or(0));
        let before = stamp(&work_dir.join(Self::NAME));
        Self { work_dir: work_dir.to_owned(), before, since: since_ms.map(time) }
    }

    /// Its text, when the agent has written it. Times of files lag a few milliseconds behind the
    /// clock, so one that was written at once looks older than the agent: what counts is that the
    /// file is another than before. Only where an earlier driver died, so that what there was before is not
    /// known, does its time decide.
    ///
    /// # Errors
    /// It is too large, or cannot be read.
    pub(crate) fn text(&self, limit: u64) -> Result<Option<String>, AgentFileError> {
        let Some(now) = stamp(&self.work_dir.join(Self::NAME)) else { return Ok(None) };
        let is_fresh = Some(now) != self.before || self.since.is_some_and(|since| now.0 >= since);
        if is_fresh { text_of_file(&self.work_dir, Path::new(Self::NAME), limit) } else { Ok(None) }
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let about = fs::symlink_metadata(path).ok()?;
    Some((about.modified().ok()?, about.len(), about.ino()))
}

/// Why a file of an agent is not read for directives.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AgentFileError {
    /// It is too large.
    #[error("it has {bytes} bytes, and at most {limit} are read")]
    TooLarge { bytes: u64, limit: u64 },
    /// It cannot be read.
    #[error("{0}")]
    Unreadable(#[from] io::Error),
}

/// Reads a regular file below `root` as UTF-8, UTF-16 or UTF-32, replacing invalid bytes; `None` if it does
/// not exist. Links are not followed: an agent in a sandbox could link to a file that it does not see.
pub(crate) fn text_of_file(
    root: &Path,
    path: &Path,
    limit: u64,
) -> Result<Option<String>, AgentFileError> {
    let file = match open_file(root, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let about = file.metadata()?;
    if !about.is_file() {
        return Ok(None);
    }
    let bytes = about.len();
    if bytes > limit {
        return Err(AgentFileError::TooLarge { bytes, limit });
    }
    let mut text = Vec::new();
    file.take(limit).read_to_end(&mut text)?;
    Ok(Some(decoded(&text)))
}

/// Decodes bytes and removes the byte order mark. UTF-16, as written by Windows shells, and UTF-32 are detected by
/// their mark or by the zero bytes of the first character.
fn decoded(bytes: &[u8]) -> String {
    let units = |read: fn([u8; 2]) -> u16| {
        let pairs = bytes.chunks_exact(2).map(|pair| read([pair[0], pair[1]]));
        String::from_utf16_lossy(&pairs.collect::<Vec<u16>>())
    };
    let points = |read: fn([u8; 4]) -> u32| {
        let points = bytes.as_chunks().0.iter().map(|four| char::from_u32(read(*four)));
        points.map(|point| point.unwrap_or(char::REPLACEMENT_CHARACTER)).collect::<String>()
    };
    let text = match bytes {
        [0xff, 0xfe, 0, 0, ..] | [1..=0x7f, 0, 0, 0, ..] => points(u32::from_le_bytes),
        [0, 0, 0xfe, 0xff, ..] | [0, 0, 0, 1..=0x7f, ..] => points(u32::from_be_bytes),
        [0xff, 0xfe, ..] | [1..=0x7f, 0, ..] => units(u16::from_le_bytes),
        [0xfe, 0xff, ..] | [0, 1..=0x7f, ..] => units(u16::from_be_bytes),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    };
    text.trim_start_matches('\u{feff}').to_owned()
}

#[cfg(test)]
mod tests {
    use super::decoded;

    #[test]
    fn decodes_utf_16_and_32() {
        let status = "{\"outcome\": \"failed\", \"failure_reason\": \"größer\"}";
        let utf_16 = |read: fn(u16) -> [u8; 2], mark: &str| -> Vec<u8> {
            format!("{mark}{status}").encode_utf16().flat_map(read).collect()
        };
        let utf_32 = |read: fn(u32) -> [u8; 4], mark: &str| -> Vec<u8> {
            format!("{mark}{status}").chars().flat_map(|c| read(c.into())).collect()
        };
        for mark in ["", "\u{feff}"] {
            assert_eq!(decoded(&utf_32(u32::to_le_bytes, mark)), status);
            assert_eq!(decoded(&utf_32(u32::to_be_bytes, mark)), status);
            assert_eq!(decoded(&utf_16(u16::to_le_bytes, mark)), status);
            assert_eq!(decoded(&utf_16(u16::to_be_bytes, mark)), status);
            assert_eq!(decoded(format!("{mark}{status}").as_bytes()), status);
        }
        assert_eq!(decoded(b"a\xff"), "a\u{fffd}");
        assert_eq!(decoded(b""), "");
    }
}
