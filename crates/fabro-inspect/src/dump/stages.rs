//! The files of the stages.

use std::collections::BTreeMap;
use std::sync::Arc;

use fabro_context::keys;
use fabro_events::{CompletedStage, Event, EventBody};
use fabro_types::{ContextPatch, Failure, NodeKind, Usage};
use serde::Serialize;
use serde_json::Value;

use super::conversation::markdown;
use super::{DumpError, DumpRun, Files, StageDir};
use crate::at::StageKey;
use crate::conversation::{is_message, transcript};
use crate::inspect::StageRow;
use crate::stage::response;

/// `status.json`: every field is there, whether it says something or not.
#[derive(Serialize)]
struct StageFile<'a> {
    node: &'a str,
    visit: u32,
    branch: Option<&'a str>,
    rank: u32,
    attempts: u32,
    status: &'a str,
    context_updates: BTreeMap<&'a str, Arc<Value>>,
    preferred_label: Option<&'a str>,
    suggested_next_ids: &'a [String],
    failure: Option<&'a Failure>,
    notes: Option<&'a str>,
    /// As it ran, where that differs from the node's.
    script: Option<&'a str>,
    usage: Option<&'a Usage>,
    files_touched: &'a [String],
    artifacts: &'a [String],
    duration_ms: u64,
}

/// `attempt-N/status.json`.
#[derive(Serialize)]
struct AttemptStatus<'a> {
    node: &'a str,
    visit: u32,
    rank: u32,
    attempts: u32,
    status: &'a str,
    failure: &'a Failure,
    usage: Option<&'a Usage>,
}

/// What the log has of one stage.
struct Recorded<'a> {
    kind: NodeKind,
    /// The attempts that another one followed: which one, why it failed, and what it used.
    earlier: Vec<(u32, &'a Failure, Option<&'a Usage>)>,
    end: Option<&'a CompletedStage>,
    /// What its model and its tools said in the last attempt.
    talk: Vec<&'a Event>,
}

pub(super) fn write(
    run: &DumpRun<'_>,
    events: &[&Event],
    rows: Vec<StageRow>,
    files: &mut Files<'_>,
) -> Result<Vec<StageDir>, DumpError> {
    let mut recorded = recorded(events);
    let mut dirs = Vec::new();
    for row in rows {
        let Some(stage) = recorded.remove(&row.rank) else { continue };
        let name = format!("{:03}-{}@{}", row.rank, row.node, row.visit);
        let dir = format!("stages/{name}");
        for (attempt, failure, usage) in &stage.earlier {
            let status = AttemptStatus {
                node: &row.node,
                visit: row.visit,
                rank: row.rank,
                attempts: *attempt,
                status: "failed",
                failure,
                usage: *usage,
            };
            files.json(&format!("{dir}/attempt-{attempt}/status.json"), &status)?;
        }
        talk(run, &row, &stage, &dir, files)?;
        if let Some(end) = stage.end {
            texts(run, &row, &stage, end, &dir, files)?;
        }
        status(run, &row, stage.end, &dir, files)?;
        let earlier_attempts = stage.earlier.last().map_or(0, |(attempt, ..)| *attempt);
        let StageRow { node, visit, branch, .. } = row;
        dirs.push(StageDir { name, node, visit, branch, earlier_attempts });
    }
    Ok(dirs)
}

/// By rank, which tells stages apart that a restart visits for the first time again.
fn recorded<'a>(events: &[&'a Event]) -> BTreeMap<u32, Recorded<'a>> {
    let mut stages: BTreeMap<u32, Recorded<'a>> = BTreeMap::new();
    let mut ranks: BTreeMap<StageKey, u32> = BTreeMap::new();
    for event in events {
        let Some(key) = StageKey::of(event) else { continue };
        let new = |kind| Recorded { kind, earlier: Vec::new(), end: None, talk: Vec::new() };
        if let EventBody::StageStarted { rank, handler, .. } = &event.entry.body {
            stages.insert(*rank, new(*handler));
            ranks.insert(key, *rank);
            continue;
        }
        let Some(stage) = ranks.get(&key).and_then(|rank| stages.get_mut(rank)) else { continue };
        match &event.entry.body {
            EventBody::StageRetrying { attempt, failure, usage, .. } => {
                stage.earlier.push((*attempt, failure, usage.as_ref()));
                stage.talk.clear();
            }
            EventBody::StageCompleted(end) | EventBody::StageFailed(end) => stage.end = Some(end),
            body if is_message(body) => stage.talk.push(event),
            _ => {}
        }
    }
    stages
}

/// The conversation with the model, also of a stage that has not ended.
fn talk(
    run: &DumpRun<'_>,
    row: &StageRow,
    stage: &Recorded<'_>,
    dir: &str,
    files: &mut Files<'_>,
) -> Result<(), DumpError> {
    let key = row.key();
    let blobs = (!run.keep_references).then_some(run.blobs);
    let (given, messages) = transcript(&stage.talk, &key, blobs)?;
    if messages.is_empty() {
        return Ok(());
    }
    let text = markdown(&key.name(), &given, &messages);
    files.write(&format!("{dir}/conversation.md"), text.as_bytes())
}

/// Prompt and response of a model, output of a command.
fn texts(
    run: &DumpRun<'_>,
    row: &StageRow,
    stage: &Recorded<'_>,
    end: &CompletedStage,
    dir: &str,
    files: &mut Files<'_>,
) -> Result<(), DumpError> {
    let mut file = |name: &str, value: &Value| -> Result<(), DumpError> {
        let stage = format!("{}@{}", row.node, row.visit);
        files.text(run, &stage, &format!("{dir}/{name}"), value)
    };
    if let Some(prompt) = &end.prompt {
        file("prompt.md", &prompt.to_value())?;
    }
    let updates = &end.outcome.context_updates;
    if stage.kind == NodeKind::Command {
        for (name, key) in
            [("stdout.log", keys::COMMAND_OUTPUT), ("stderr.log", keys::COMMAND_STDERR)]
        {
            match updates.get(key) {
                Some(value) => file(name, value)?,
                None => file(name, &Value::from(""))?,
            }
        }
    } else if let Some(response) = response(&row.node, end) {
        file("response.md", &response)?;
    }
    Ok(())
}

fn status(
    run: &DumpRun<'_>,
    row: &StageRow,
    end: Option<&CompletedStage>,
    dir: &str,
    files: &mut Files<'_>,
) -> Result<(), DumpError> {
    let nothing = ContextPatch::new();
    let outcome = end.map(|end| &end.outcome);
    let mut context_updates = BTreeMap::new();
    for (key, value) in outcome.map_or(&nothing, |outcome| &outcome.context_updates) {
        context_updates.insert(&**key, run.filled(key, value)?);
    }
    let status = StageFile {
        node: &row.node,
        visit: row.visit,
        branch: row.branch.as_deref(),
        rank: row.rank,
        attempts: row.attempts,
        status: row.status,
        context_updates,
        preferred_label: outcome.and_then(|outcome| outcome.preferred_label.as_deref()),
        suggested_next_ids: outcome.map_or(&[], |outcome| &outcome.suggested_next_ids),
        failure: row.failure.as_ref(),
        notes: outcome.and_then(|outcome| outcome.notes.as_deref()),
        script: end.and_then(|end| end.script.as_deref()),
        usage: row.usage.as_ref(),
        files_touched: &row.files_touched,
        artifacts: outcome.map_or(&[], |outcome| &outcome.artifacts),
        duration_ms: row.duration_ms,
    };
    files.json(&format!("{dir}/status.json"), &status)?;
    Ok(())
}
