//! The first event of a run, and its log as a whole.

use std::sync::Arc;

use fabro_context::keys;
use fabro_events::{CreatedRun, EndedByParent, Entry, Event, EventBody, ParentStage, RunWorktree};
use fabro_store::{RunLog, Runs, StoreError};
use fabro_types::{BlobRef, ContextPatch, RunId};
use serde_json::{Map, Value};

use crate::Plan;
use crate::input::Commit;
use crate::offload::offload_patch;

/// The revision of the rules that decide edges, failures and the end of a run. A change of these rules
/// increments it, so that a replay can tell a changed rule from a changed workflow.
pub const RULES: u32 = 2;

/// What a run starts with, in addition to its workflow.
#[derive(Clone, Debug, Default)]
pub struct NewRun {
    /// The goal, rendered.
    pub goal: String,
    /// The inputs.
    pub inputs: Map<String, Value>,
    /// Decides every random choice.
    pub seed: u64,
    /// The working directory.
    pub work_dir: String,
    /// All that the run depends on: source, files, settings, as bytes the caller understands.
    pub bundle: Vec<u8>,
    /// A spending limit in US dollars, over the workflow's own.
    pub max_cost: Option<f64>,
    /// The stage that this run is the sub-workflow of.
    pub parent: Option<ParentStage>,
    /// Nothing is executed.
    pub dry_run: bool,
    /// The git worktree that the working directory is in.
    pub worktree: Option<RunWorktree>,
    /// What the context starts with, in addition to the graph's attributes.
    pub context: ContextPatch,
}

/// The commit that creates a run: one event, and the bundle it names. The context starts with
/// `graph.goal`, every graph attribute as `graph.{name}` and the caller's own values; large values
/// become blobs of the commit. Line breaks that end the goal, as
/// those of a file that it was read from, are left out.
pub fn begin(run_id: RunId, now_ms: i64, plan: &Plan, mut new: NewRun) -> Commit {
    new.goal.truncate(new.goal.trim_end_matches(['\n', '\r']).len());
    let mut context = ContextPatch::new();
    for attr in plan.workflow().attrs().iter() {
        let key = format!("{}{}", keys::GRAPH_PREFIX, attr.name);
        context.insert(key, Arc::new(json(&attr.value)));
    }
    context.insert(format!("{}goal", keys::GRAPH_PREFIX), Arc::new(new.goal.clone().into()));
    context.append(&mut new.context);
    let bundle = BlobRef::of(&new.bundle);
    let mut blobs = vec![(bundle, Arc::from(new.bundle))];
    offload_patch(&mut context, &mut blobs);
    let created = CreatedRun {
        workflow: plan.workflow().name().to_owned(),
        goal: new.goal,
        inputs: new.inputs,
        seed: new.seed,
        work_dir: new.work_dir,
        bundle,
        context,
        max_cost: new.max_cost,
        parent: new.parent,
        dry_run: new.dry_run,
        worktree: new.worktree,
        rules: RULES,
    };
    let entry = Entry::new(EventBody::RunCreated(Arc::new(created)));
    Commit { events: vec![Event { run_id, seq: 1, ts_ms: now_ms, entry }], blobs }
}

/// The event that cancels a run without a driver. `last_seq` is the last of its log.
pub fn cancel(
    run_id: RunId,
    last_seq: u64,
    now_ms: i64,
    reason: String,
    by_parent: Option<EndedByParent>,
) -> Event {
    let entry = Entry::new(EventBody::RunCanceled { reason, by_parent });
    Event { run_id, seq: last_seq + 1, ts_ms: now_ms, entry }
}

/// The whole log of a run, oldest event first; empty for an unknown run.
pub async fn read_all(
    store: &(impl RunLog + ?Sized),
    run: RunId,
) -> Result<Vec<Event>, StoreError> {
    const PAGE: usize = 4_096;
    let mut events: Vec<Event> = Vec::new();
    loop {
        let after = events.last().map_or(0, |event| event.seq);
        let page = store.read(run, after, PAGE).await?;
        let whole = page.len() < PAGE;
        events.extend(page);
        if whole {
            return Ok(events);
        }
    }
}

/// The last event of a run that a driver, a fork or a cancellation has recorded: compactions of
/// conversations, which may follow it, are skipped.
pub async fn last_state_event(
    store: &(impl RunLog + Runs + ?Sized),
    run: RunId,
) -> Result<Option<Event>, StoreError> {
    const PAGE: u64 = 16;
    let mut end = store.last_seq(run).await?;
    // Most often it is the last one.
    let mut count = 1;
    while end > 0 {
        let after = end.saturating_sub(count);
        let page = store.read(run, after, usize::try_from(end - after).unwrap_or(1)).await?;
        if let Some(event) = page.into_iter().rfind(|event| !event.entry.body.is_of_compaction()) {
            return Ok(Some(event));
        }
        end = after;
        count = PAGE;
    }
    Ok(None)
}

/// Numbers and booleans as such, everything else as it is written.
fn json(value: &fabro_graph::Value) -> Value {
    use fabro_graph::Value as Graph;
    match value {
        Graph::Int(number) => Value::from(*number),
        Graph::Float(number) => Value::from(*number),
        Graph::Bool(flag) => Value::from(*flag),
        other => Value::from(other.as_text()),
    }
}

#[cfg(test)]
mod tests {
    use fabro_graph::Workflow;
    use fabro_store::{Batch, MemoryStore};

    use super::*;

    #[test]
    fn a_goal_ends_with_its_last_line() {
        let workflow = Workflow::from_source("test", "digraph { start -> exit }").unwrap();
        let plan = Plan::compile(workflow).unwrap();
        let new = NewRun { goal: "Fix it.\n  Soon. \r\n\n".to_owned(), ..NewRun::default() };
        let commit = begin(RunId::from_parts(0, 1), 0, &plan, new);
        let EventBody::RunCreated(created) = &commit.events[0].entry.body else { panic!() };
        assert_eq!(created.goal, "Fix it.\n  Soon. ");
        assert_eq!(*created.context["graph.goal"], "Fix it.\n  Soon. ");
    }

    #[test]
    fn a_large_value_of_the_first_context_becomes_a_blob() {
        let workflow = Workflow::from_source("test", "digraph { start -> exit }").unwrap();
        let plan = Plan::compile(workflow).unwrap();
        let large = "x".repeat(fabro_blob::OFFLOAD_LIMIT);
        let context = [("small", "a".to_owned()), ("large", large)];
        let context = context.map(|(key, value)| (key.to_owned(), Arc::new(Value::from(value))));
        let new = NewRun { context: ContextPatch::from(context), ..NewRun::default() };
        let commit = begin(RunId::from_parts(0, 1), 0, &plan, new);
        let EventBody::RunCreated(created) = &commit.events[0].entry.body else { panic!() };
        assert_eq!(*created.context["small"], "a");
        let blob = BlobRef::from_value(&created.context["large"]).unwrap();
        assert!(commit.blobs.iter().any(|(name, _)| *name == blob));
    }

    #[tokio::test]
    async fn a_long_log_is_read_whole() {
        let store = MemoryStore::default();
        let run_id = RunId::from_parts(0, 1);
        let entry = || Entry::new(EventBody::RunStarted {});
        let events: Vec<Event> =
            (1..=9_000).map(|seq| Event { run_id, seq, ts_ms: 0, entry: entry() }).collect();
        store.append(run_id, 0, &Batch::of(&events)).await.unwrap();
        assert_eq!(read_all(&store, run_id).await.unwrap(), events);
        assert_eq!(read_all(&store, RunId::from_parts(0, 2)).await.unwrap(), []);
    }
}
