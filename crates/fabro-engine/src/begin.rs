//! The first event of a run, and its log as a whole.

use std::sync::Arc;

use fabro_context::keys;
use fabro_events::{CreatedRun, Entry, Event, EventBody, ParentStage};
use fabro_store::{RunLog, StoreError};
use fabro_types::{BlobRef, ContextPatch, RunId};
use serde_json::{Map, Value};

use crate::Plan;
use crate::input::Commit;
use crate::offload::offload;

/// What a run starts with, besides its workflow.
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
}

/// The commit that creates a run: one event, and the bundle it names. The context starts with
/// `graph.goal` and every graph attribute as `graph.{name}`.
pub fn begin(run_id: RunId, now_ms: i64, plan: &Plan, new: NewRun) -> Commit {
    let mut context = ContextPatch::new();
    for attr in plan.workflow().attrs().iter() {
        let key = format!("{}{}", keys::GRAPH_PREFIX, attr.name);
        context.insert(key, Arc::new(json(&attr.value)));
    }
    context.insert(format!("{}goal", keys::GRAPH_PREFIX), Arc::new(new.goal.clone().into()));
    let bundle = BlobRef::of(&new.bundle);
    let mut blobs = vec![(bundle, Arc::from(new.bundle))];
    offload(&mut context, &mut blobs);
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
    };
    let entry = Entry::new(EventBody::RunCreated(Arc::new(created)));
    Commit { events: vec![Event { run_id, seq: 1, ts_ms: now_ms, entry }], blobs }
}

/// The event that ends a run that no driver is at work on. `last_seq` is the last of its log.
pub fn cancel(run_id: RunId, last_seq: u64, now_ms: i64, reason: String) -> Event {
    let entry = Entry::new(EventBody::RunCanceled { reason });
    Event { run_id, seq: last_seq + 1, ts_ms: now_ms, entry }
}

/// The whole log of a run.
pub fn read_all(store: &(impl RunLog + ?Sized), run: RunId) -> Result<Vec<Event>, StoreError> {
    const PAGE: usize = 4_096;
    let mut events: Vec<Event> = Vec::new();
    loop {
        let after = events.last().map_or(0, |event| event.seq);
        let page = store.read(run, after, PAGE)?;
        let whole = page.len() < PAGE;
        events.extend(page);
        if whole {
            return Ok(events);
        }
    }
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
