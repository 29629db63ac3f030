//! What the run knew when each stage had ended.
//!
//! A checkpoint is whole as long as all of them together stay small. After that it has only what
//! changed since the one before, until the changes since the last whole one are as large as that was:
//! so a dump grows with its log, and not with the square of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use fabro_context::keys;
use fabro_engine::{Cursor, MAIN, NodeEnd, RunState};
use fabro_events::{Event, EventBody};
use fabro_types::{BranchPath, Failure, Status};
use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use serde::Serialize;
use serde_json::Value;

use super::{DumpError, DumpRun, Files};
use crate::ReportError;
use crate::at::StageKey;

#[derive(Serialize)]
struct Checkpoint<'a> {
    seq: u64,
    position: Position<'a>,
    next_node: Option<&'a str>,
    /// The file that this one continues; the rest is what changed since then.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<&'a str>,
    /// In order, a node as often as it was visited.
    completed_nodes: Vec<&'a str>,
    /// How many retries the last visit of each node took.
    retries: BTreeMap<String, Arc<Value>>,
    /// How each node ended last.
    outcomes: BTreeMap<&'a str, NodeOutcome<'a>>,
    context: BTreeMap<String, Arc<Value>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    removed_from_context: Vec<String>,
    /// The commit that has the files, where the run has a git worktree.
    #[serde(skip_serializing_if = "Option::is_none")]
    git_sha: Option<Arc<str>>,
    /// How often each failure left its node, by node and signature.
    failure_signatures: BTreeMap<&'a str, &'a OrdMap<String, u32>>,
}

#[derive(Serialize)]
struct Position<'a> {
    node: &'a str,
    visit: u32,
    branch: Option<&'a str>,
}

#[derive(Serialize)]
struct NodeOutcome<'a> {
    status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<&'a Failure>,
}

impl<'a> NodeOutcome<'a> {
    fn of(end: &'a NodeEnd) -> Self {
        Self { status: end.status, failure: end.failure.as_deref() }
    }
}

/// The last checkpoint of a line of the run.
#[derive(Clone)]
struct Last {
    file: String,
    cursor: Cursor,
    /// The size of the last whole one, and of those since.
    whole: usize,
    changes: usize,
}

pub(super) fn write(
    run: &DumpRun<'_>,
    events: &[&Event],
    mut left: usize,
    files: &mut Files<'_>,
) -> Result<(), DumpError> {
    let Some(first) = events.first() else { return Ok(()) };
    let next = next_nodes(events);
    let nothing = Cursor::default();
    let mut state = RunState::new(first.run_id);
    let mut lines: BTreeMap<Arc<str>, Last> = BTreeMap::new();
    for event in events {
        state.apply(event);
        let branch = event.entry.branch.as_deref().unwrap_or(MAIN);
        if matches!(&event.entry.body, EventBody::LoopRestart { .. }) {
            lines.remove(branch);
        }
        let is_end =
            matches!(&event.entry.body, EventBody::StageCompleted(_) | EventBody::StageFailed(_));
        let (true, Some(key), Some(cursor)) =
            (is_end, StageKey::of(event), state.cursor(Some(branch)))
        else {
            continue;
        };
        // The first of a branch continues that of the line it came from.
        let parent = BranchPath::new(branch).parent();
        let last = lines.get(branch).or_else(|| lines.get(parent.as_str()));
        let since = last.filter(|last| left < last.whole && last.changes < last.whole).cloned();
        let next_node = next.get(&event.seq).map(|node| &**node);
        let checkpoint = Checkpoint {
            git_sha: state.worktrees.of(branch).map(|worktree| worktree.head),
            ..checkpoint(run, event.seq, &key, next_node, cursor, since.as_ref(), &nothing)?
        };
        let file = format!("{:04}.json", event.seq);
        let size = files.json(&format!("checkpoints/{file}"), &checkpoint)?;
        let (whole, changes) = match since {
            Some(last) => (last.whole, last.changes + size),
            None => (size, 0),
        };
        left = left.saturating_sub(size);
        lines.insert(branch.into(), Last { file, cursor: cursor.clone(), whole, changes });
    }
    Ok(())
}

fn checkpoint<'a>(
    run: &DumpRun<'_>,
    seq: u64,
    key: &'a StageKey,
    next_node: Option<&'a str>,
    cursor: &'a Cursor,
    since: Option<&'a Last>,
    nothing: &'a Cursor,
) -> Result<Checkpoint<'a>, ReportError> {
    let before = since.map_or(nothing, |last| &last.cursor);
    let mut context = BTreeMap::new();
    let mut retries = BTreeMap::new();
    let mut removed_from_context = Vec::new();
    for change in before.context.diff(&cursor.context) {
        let Some(value) = change.after else {
            removed_from_context.push(change.key);
            continue;
        };
        if let Some(node) = change.key.strip_prefix(keys::RETRY_COUNT_PREFIX) {
            retries.insert(node.to_owned(), Arc::clone(&value));
        }
        let value = run.filled(&change.key, &value)?;
        context.insert(change.key, value);
    }
    Ok(Checkpoint {
        seq,
        position: Position { node: &key.node, visit: key.visit, branch: key.branch.as_deref() },
        next_node,
        since: since.map(|last| last.file.as_str()),
        completed_nodes: {
            let known = before.history.len();
            cursor.history.iter().skip(known).map(|stage| &*stage.node).collect()
        },
        retries,
        outcomes: changed(&before.ends, &cursor.ends)
            .map(|(node, end)| (node, NodeOutcome::of(end)))
            .collect(),
        context,
        removed_from_context,
        git_sha: None,
        failure_signatures: changed(&before.breaker, &cursor.breaker).collect(),
    })
}

/// The entries that are new or other than before.
fn changed<'a, T: PartialEq>(
    before: &'a OrdMap<Arc<str>, T>,
    after: &'a OrdMap<Arc<str>, T>,
) -> impl Iterator<Item = (&'a str, &'a T)> {
    before.diff(after).filter_map(|item| match item {
        DiffItem::Add(key, value) | DiffItem::Update { new: (key, value), .. } => {
            Some((&**key, value))
        }
        DiffItem::Remove(..) => None,
    })
}

/// The node that the run went to from each end of a stage, by the place of the end in the log.
fn next_nodes(events: &[&Event]) -> BTreeMap<u64, Arc<str>> {
    let mut ended: BTreeMap<StageKey, u64> = BTreeMap::new();
    let mut next = BTreeMap::new();
    for event in events {
        let Some(key) = StageKey::of(event) else { continue };
        match &event.entry.body {
            EventBody::StageCompleted(_) | EventBody::StageFailed(_) => {
                ended.insert(key, event.seq);
            }
            EventBody::EdgeSelected(choice) => {
                if let Some(seq) = ended.remove(&key) {
                    next.insert(seq, Arc::clone(&choice.to));
                }
            }
            _ => {}
        }
    }
    next
}
