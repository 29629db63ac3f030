use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use fabro_blob::BlobStore;
use fabro_engine::{
    Commit, Input, Machine, NewRun, Plan, RULES, RunState, begin, checkpoint, keys,
};
use fabro_events::{CreatedRun, Event, EventBody};
use fabro_graph::Node;
use fabro_handlers::{Agents, LlmHandler, read_all};
use fabro_llm::{ModelSource, SimulatedModel};
use fabro_redact::Redactor;
use fabro_run::{Bundle, RunSettings};
use fabro_store::{Batch, MemoryStore, RunLog, Store};
use fabro_types::RunId;
use serde_json::Value;

use crate::replay::compare::{AfterDivergence, Log, compare, input_difference, with_run_dir};
use crate::replay::player::Player;
use crate::replay::record::Record;
use crate::replay::tools::RecordedTools;
use crate::replay::{ReplayError, Report};

/// What is to be replayed.
#[derive(Clone)]
#[non_exhaustive]
pub struct Replay {
    /// Where the run is recorded. It is only read.
    pub store: Arc<dyn Store>,
    /// The run.
    pub run: RunId,
    /// The workflow to replay it with; `None` for the one kept with the run. The settings are always
    /// those that the run was started with.
    pub workflow: Option<Bundle>,
    /// The directory of the run's files. A prompt that names the temporary one instead is the same.
    pub run_dir: Option<PathBuf>,
    /// Redacts prompts as the run's own redactor did.
    pub redactor: Redactor,
}

impl Replay {
    /// This run, with its own workflow.
    pub fn new(store: Arc<dyn Store>, run: RunId) -> Self {
        Self { store, run, workflow: None, run_dir: None, redactor: Redactor::default() }
    }
}

/// The ids of a run and of its sub-workflows: paths of files contain the former, results of sub-workflows the latter.
fn ids(events: &[Event]) -> BTreeSet<String> {
    fn add_of(value: &Value, ids: &mut BTreeSet<String>) {
        for (key, value) in value.as_object().into_iter().flatten() {
            match value.as_str() {
                Some(id) if key == keys::RUN_ID => drop(ids.insert(id.to_owned())),
                _ => add_of(value, ids),
            }
        }
    }
    let mut ids: BTreeSet<_> =
        events.first().map(|event| event.run_id.to_string()).into_iter().collect();
    for event in events {
        if let EventBody::StageCompleted(done) = &event.entry.body {
            let updates = done.outcome.context_updates.iter();
            let results = updates.filter(|(key, _)| key.starts_with(keys::CHILD_PREFIX));
            results.for_each(|(_, result)| add_of(result, &mut ids));
        }
    }
    ids
}

/// Compares two recorded runs like a record and its replay: `recorded` is of the first, older run, and `replayed` of the
/// second one. Where they diverge, the comparison continues at the next common stage.
///
/// # Errors
///
/// A record cannot be read.
pub fn compare_runs(
    first: &[Event],
    second: &[Event],
    blobs: &dyn BlobStore,
) -> Result<Report, ReplayError> {
    let run_id = first.first().map_or(RunId::from_parts(0, 0), |event| event.run_id);
    let read = |events: &[Event]| {
        let ids = ids(events);
        let without_ids = |text: &str| {
            let found = ids.iter().filter(|id| text.contains(id.as_str()));
            found.fold(None, |text_now: Option<String>, id| {
                Some(text_now.as_deref().unwrap_or(text).replace(id, "RUN"))
            })
        };
        Log::read(&checkpoint::effective(events), blobs, without_ids)
    };
    let recorded = read(first)?;
    let replayed = read(second)?;
    let (compared, found) = compare(&recorded, &replayed, AfterDivergence::NextCommonStage);
    let inputs = {
        let old = created(run_id, first).ok();
        input_difference(old.as_deref(), created(run_id, second).ok().as_deref())
    };
    let differences = inputs.into_iter().chain(found).collect();
    Ok(Report {
        run_id,
        compared,
        is_whole: recorded.is_whole,
        since_fork: false,
        rules_changed: rules(first) != rules(second),
        differences,
        unanswered: Vec::new(),
    })
}

/// Replays a run and compares it with its record.
///
/// Needs a tokio runtime with time. Costs as much as driving the run without models, tools and delays.
///
/// # Errors
///
/// The record cannot be read, or the workflow cannot be run at all. A difference is not an error.
pub async fn replay(replay: Replay) -> Result<Report, ReplayError> {
    let Replay { store, run, workflow, run_dir, redactor } = replay;
    let events = read_all(&*store, run).await?;
    let created = created(run, &events)?;
    let own = Bundle::load(&*store, &created)?;
    // Events before a fork or a rewind are not replayed.
    let is_cut = |event: &Event| matches!(event.entry.body, EventBody::CheckpointForked(_));
    let cut = events.iter().rposition(is_cut);
    let (before, _) = events.split_at(cut.map_or(1, |cut| cut + 1));
    let after = before.last().map_or(0, |event| event.seq);
    let recorded = counted(&events, after);
    let mut beginning = Commit { events: before.to_vec(), ..Commit::default() };

    let own_plan = Arc::new(own.plan()?);
    let mut plan = Arc::clone(&own_plan);
    let mut same = None;
    if let Some(other) = workflow {
        let other =
            Bundle { settings: own.settings.clone(), constants: own.constants.clone(), ..other };
        plan = Arc::new(other.plan()?);
        same = Some(same_nodes(&own_plan, &plan));
        let new = new_run(&created, &own, &other)?;
        let begun = begin(run, before.first().map_or(0, |event| event.ts_ms), &plan, new);
        beginning.blobs = begun.blobs;
        beginning.events.splice(..1, begun.events);
    }
    let overlay = Arc::new(MemoryStore::above(Arc::new(store)));
    let Commit { events: begun, blobs } = &beginning;
    overlay.append(run, 0, &Batch { events: begun, blobs, consumed: &[] }).await?;

    let temp = tempfile::tempdir().map_err(ReplayError::TempDir)?;
    let run_dir_now = temp.path().join(run.to_string());
    let begun = read_all(&*overlay, run).await?;
    let mut player = Player {
        machine: Machine::new(plan, RunState::replay(run, &begun)),
        run,
        store: Arc::clone(&overlay),
        record: Record::read(&recorded),
        own: own_plan,
        same,
        llm: requests(&own.settings, redactor.clone()),
        redactor,
        run_dir: run_dir_now.clone(),
        now_ms: begun.last().map_or(0, |event| event.ts_ms),
        attempts: BTreeMap::new(),
        unanswered: Vec::new(),
    };
    // The driver knew of these failures before it recorded them at the end of their branch.
    for event in &recorded {
        if let EventBody::BranchCompleted { canceled: true, failure: Some(failure), .. } =
            &event.entry.body
            && failure.unavailable.is_some()
            && let Some(branch) = &event.entry.branch
        {
            player.machine.branch_waits(branch, failure.clone());
        }
    }
    if let Some(first) = first_input(&recorded, cut.is_some(), &mut player.record) {
        player.play(first).await?;
    }

    let events = read_all(&*overlay, run).await?;
    let run_dir = run_dir.as_deref();
    let in_run_dir = |text: &str| run_dir.and_then(|dir| with_run_dir(text, dir));
    let old = Log::read(&recorded, &*overlay, in_run_dir)?;
    let new = Log::read(&counted(&events, after), &*overlay, in_run_dir)?;
    let (compared, differences) = compare(&old, &new, AfterDivergence::Nothing);
    let unanswered = player.unanswered;
    Ok(Report {
        run_id: run,
        compared,
        is_whole: old.is_whole,
        since_fork: cut.is_some(),
        rules_changed: created.rules != RULES,
        differences,
        unanswered,
    })
}

/// The effective events after a position in the log.
fn counted(events: &[Event], after: u64) -> Vec<&Event> {
    checkpoint::effective(events).into_iter().filter(|event| event.seq > after).collect()
}

/// The first input of the record; `None` without one.
fn first_input(counted: &[&Event], is_cut: bool, record: &mut Record) -> Option<Input> {
    if is_cut {
        return record.take_run_input();
    }
    match &counted.first()?.entry.body {
        // A step before the first stage failed.
        EventBody::RunFailed { failure, .. } => Some(Input::Abort { failure: failure.clone() }),
        _ => Some(Input::Start),
    }
}

/// Prepares requests as the recorded run did, without tools or a model.
fn requests(settings: &RunSettings, redactor: Redactor) -> LlmHandler {
    let toolbox = Arc::new(RecordedTools { settings: settings.agent.clone() });
    let agents =
        Agents { settings: settings.agent.clone(), redactor, toolbox, ..Agents::default() };
    let models: ModelSource =
        Arc::new(|stage| Arc::new(SimulatedModel { node: stage.node.into() }));
    // No request is priced.
    let defaults = settings.model_defaults();
    LlmHandler::new(models, defaults, agents, Arc::default(), Arc::new(|| 0))
}

/// The nodes that are the same in both: kind and attributes.
fn same_nodes(one: &Plan, other: &Plan) -> BTreeSet<Arc<str>> {
    let attrs = |node: &Node| -> Vec<(String, String)> {
        node.attrs.iter().map(|it| (it.name.to_string(), it.value.as_text().into_owned())).collect()
    };
    let is_same = |node: &&Node| {
        other.node(&node.id).is_some_and(|(_, it)| it.kind == node.kind && attrs(it) == attrs(node))
    };
    one.workflow().nodes().filter(is_same).map(|node| Arc::clone(&node.id)).collect()
}

fn created(run: RunId, events: &[Event]) -> Result<Arc<CreatedRun>, ReplayError> {
    match events.first().map(|event| &event.entry.body) {
        Some(EventBody::RunCreated(created)) => Ok(Arc::clone(created)),
        _ => Err(ReplayError::NoBeginning { run }),
    }
}

fn rules(events: &[Event]) -> Option<u32> {
    match &events.first()?.entry.body {
        EventBody::RunCreated(created) => Some(created.rules),
        _ => None,
    }
}

/// The same run with another workflow. A goal of the old workflow is replaced by that of the new one.
fn new_run(created: &CreatedRun, own: &Bundle, other: &Bundle) -> Result<NewRun, ReplayError> {
    let stated = own.goal(&created.inputs)?.unwrap_or_default();
    let goal = if stated == created.goal {
        other.goal(&created.inputs)?.unwrap_or_default()
    } else {
        created.goal.clone()
    };
    // What the caller put into the context, besides what follows from the workflow.
    let context = created
        .context
        .iter()
        .filter(|(key, _)| key.starts_with(fabro_engine::keys::INTERNAL_PREFIX));
    let context = context.map(|(key, value)| (key.clone(), Arc::clone(value)));
    Ok(NewRun {
        goal,
        inputs: created.inputs.clone(),
        seed: created.seed,
        work_dir: created.work_dir.clone(),
        bundle: other.to_bytes(),
        max_cost: created.max_cost,
        parent: created.parent.clone(),
        dry_run: created.dry_run,
        worktree: created.worktree.clone(),
        context: context.collect(),
    })
}
