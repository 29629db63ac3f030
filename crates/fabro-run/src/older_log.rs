//! Whether the files of a run's stages are newer than its log.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use fabro_engine::stage_dir;
use fabro_events::{Event, EventBody};
use fabro_store::{RunStore, StoreError};
use fabro_types::RunId;
use serde_json::Value;

use crate::RunError;

/// More bytes than the driver's `status.json` of a stage has: large values are kept elsewhere.
const MAX_STATUS: u64 = 16 << 20;

/// Fails when the files of a run's stages show that its last events are lost. Where the store knows how far the log
/// went, it has said so itself.
///
/// # Errors
///
/// [`RunError::OlderLog`]; or the files cannot be read.
pub async fn refuse_older_log(
    store: &dyn RunStore,
    runs_dir: &Path,
    run: RunId,
    events: &[Event],
) -> Result<(), RunError> {
    if store.knows_end(run).await? {
        return Ok(());
    }
    let dir = runs_dir.join(run.to_string());
    match newer_stage(&dir, events)? {
        Some(name) => Err(RunError::OlderLog { run, dir: dir.join("stages").join(name) }),
        None => Ok(()),
    }
}

/// The first directory of a stage, below that of the run, that is newer than these events, which are all of the run:
/// they have no start of the stage, or not its end, which the driver's `status.json` there says. A driver records
/// both before it writes the files.
///
/// Nothing is found in a fork, which may have files of stages of the run that it is from, nor of stages that leave no
/// files.
fn newer_stage(run_dir: &Path, events: &[Event]) -> Result<Option<String>, StoreError> {
    let mut ended = BTreeMap::new();
    for Event { entry, .. } in events {
        let (rank, has_ended) = match &entry.body {
            EventBody::CheckpointForked(point) if !point.in_place => return Ok(None),
            EventBody::StageStarted { rank, .. } => (*rank, false),
            EventBody::StageCompleted(end) | EventBody::StageFailed(end) => (end.rank, true),
            _ => continue,
        };
        let node = entry.node_id.as_deref().unwrap_or_default();
        let dir = stage_dir(run_dir, rank, node, entry.visit.unwrap_or(1));
        if let Some(name) = dir.file_name() {
            *ended.entry(name.to_owned()).or_insert(false) |= has_ended;
        }
    }
    let dir = run_dir.join("stages");
    let here = |source| StoreError::Io { path: dir.clone(), source };
    let entries = match fs::read_dir(&dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries.map_err(here)?,
    };
    let mut newer = BTreeSet::new();
    for entry in entries {
        let entry = entry.map_err(here)?;
        let name = entry.file_name();
        let Some(stage) = name.to_str().and_then(StageName::parse) else { continue };
        let is_newer = match ended.get(&name) {
            None => entry.file_type().map_err(here)?.is_dir(),
            Some(true) => false,
            Some(false) => stage.has_ended_in(&entry.path()),
        };
        if is_newer {
            newer.insert(stage.text.to_owned());
        }
    }
    Ok(newer.pop_first())
}

/// The name of a stage's directory.
struct StageName<'a> {
    text: &'a str,
    node: &'a str,
    visit: u32,
}

impl<'a> StageName<'a> {
    /// `None` for what a script has put beside the directories of stages.
    fn parse(text: &'a str) -> Option<Self> {
        let (rank, place) = text.split_once('-')?;
        let (node, visit) = place.rsplit_once('@')?;
        let (rank, visit) = (rank.parse().ok()?, visit.parse().ok()?);
        let dir = stage_dir(Path::new(""), rank, node, visit);
        let is_exact = dir.file_name().is_some_and(|name| name == text);
        is_exact.then_some(Self { text, node, visit })
    }

    /// Whether its driver wrote there how it ended; a script may write another file of that name.
    fn has_ended_in(&self, dir: &Path) -> bool {
        let path = dir.join("status.json");
        // A script may have put a pipe there, which would be read without end.
        if !path.metadata().is_ok_and(|about| about.is_file() && about.len() <= MAX_STATUS) {
            return false;
        }
        let text = fs::read(path).unwrap_or_default();
        let status: Value = serde_json::from_slice(&text).unwrap_or_default();
        status["node"] == self.node && status["visit"] == self.visit && status["rank"].is_u64()
    }
}

#[cfg(test)]
mod tests {
    use fabro_events::Entry;
    use fabro_types::NodeKind;

    use super::*;

    fn started(rank: u32, node: &str) -> Event {
        let body = EventBody::StageStarted {
            rank,
            handler: NodeKind::Command,
            fidelity: fabro_types::Fidelity::default(),
            thread_id: None,
        };
        let entry = Entry { node_id: Some(node.into()), visit: Some(1), ..Entry::new(body) };
        Event { run_id: RunId::from_parts(0, 1), seq: u64::from(rank), ts_ms: 0, entry }
    }

    #[test]
    fn files_that_are_newer_than_the_log_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let newer = |events: &[Event]| newer_stage(dir.path(), events).unwrap();
        assert_eq!(newer(&[]), None);
        for stage in ["002-a@1", "003-b@1", ".spare"] {
            fs::create_dir_all(dir.path().join("stages").join(stage)).unwrap();
        }
        let events = [started(2, "a"), started(3, "b")];
        assert_eq!(newer(&events), None);
        assert_eq!(newer(&events[..1]).as_deref(), Some("003-b@1"));
        // What scripts write there says nothing.
        let status = dir.path().join("stages/003-b@1/status.json");
        for text in ["mine", "{}", r#"{"node": "b", "visit": 1}"#] {
            fs::write(&status, text).unwrap();
            assert_eq!(newer(&events), None);
        }
        fs::remove_file(&status).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&status).status().unwrap().success());
        assert_eq!(newer(&events), None);
        fs::remove_file(&status).unwrap();
        for name in ["003-b@1.bak", "4-c@1", "004-c@1"] {
            fs::write(dir.path().join("stages").join(name), "").unwrap();
        }
        assert_eq!(newer(&events), None);
        fs::write(&status, r#"{"node": "b", "visit": 1, "rank": 3, "status": "succeeded"}"#)
            .unwrap();
        assert_eq!(newer(&events).as_deref(), Some("003-b@1"));
    }
}
