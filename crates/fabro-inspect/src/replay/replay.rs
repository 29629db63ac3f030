use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use fabro_engine::{
    Commit, Input, Machine, NewRun, Plan, RunEnd, RunOptions, RunState, World, begin, checkpoint,
    drive,
};
use fabro_events::{CreatedRun, Event, EventBody};
use fabro_handlers::read_all;
use fabro_redact::Redactor;
use fabro_run::Bundle;
use fabro_store::{Batch, RunLog, Store};
use fabro_types::{BranchPath, RunId};

use crate::replay::compare::{Log, compare};
use crate::replay::handler::{Replayer, same_nodes};
use crate::replay::overlay::Overlay;
use crate::replay::record::Record;
use crate::replay::turnstile::Turnstile;
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
    /// The directory that the run had for its files. Where prompts name it, that is no difference.
    pub run_dir: Option<PathBuf>,
    /// Blanks out of prompts what the run's own did.
    pub redactor: Redactor,
}

impl Replay {
    /// This run, with its own workflow.
    pub fn new(store: Arc<dyn Store>, run: RunId) -> Self {
        Self { store, run, workflow: None, run_dir: None, redactor: Redactor::default() }
    }
}

/// Replays a run and compares what comes out with its record.
///
/// Needs a tokio runtime with time. Costs as much as driving the run without anything that takes
/// time.
///
/// # Errors
///
/// The record cannot be read, or the workflow cannot be run at all. That something else comes out is
/// no error.
pub async fn replay(replay: Replay) -> Result<Report, ReplayError> {
    let Replay { store, run, workflow, run_dir, redactor } = replay;
    let events = read_all(&*store, run).await?;
    let created = created(run, &events)?;
    let own = Bundle::load(&*store, &created.bundle)?;
    // What was copied from another run, or comes before a rewind, is not played.
    let is_cut = |event: &Event| matches!(event.entry.body, EventBody::CheckpointForked(_));
    let cut = events.iter().rposition(is_cut);
    let (before, _) = events.split_at(cut.map_or(1, |cut| cut + 1));
    let after = before.last().map_or(0, |event| event.seq);
    let recorded = counted(&events, after);
    let overdue = overdue(&recorded);
    let mut beginning = Commit { events: before.to_vec(), ..Commit::default() };

    let own_plan = Arc::new(own.plan()?);
    let (mut plan, mut same) = (Arc::clone(&own_plan), None);
    if let Some(other) = workflow {
        let other = Bundle { settings: own.settings.clone(), ..other };
        plan = Arc::new(other.plan()?);
        same = Some(same_nodes(&own_plan, &plan));
        let new = new_run(&created, &own, &other)?;
        let begun = begin(run, before.first().map_or(0, |event| event.ts_ms), &plan, new);
        beginning.blobs = begun.blobs;
        beginning.events.splice(..1, begun.events);
    }
    let overlay = Arc::new(Overlay::new(store));
    let Commit { events: begun, blobs } = &beginning;
    overlay.append(run, 0, &Batch { events: begun, blobs, consumed: &[] }).await?;

    let record = Record::read(&recorded, &*overlay)?;
    let turnstile = Arc::new(Turnstile::new(record.resumptions.clone()));
    let (settings, unanswered) = (own.settings, Mutex::default());
    let own = own_plan;
    let handler = Replayer { record, turnstile, settings, redactor, own, same, unanswered };
    let temp = tempfile::tempdir().map_err(ReplayError::TempDir)?;
    let player = Player {
        run,
        plan,
        overdue,
        overlay: Arc::clone(&overlay),
        handler: Arc::new(handler),
        now_ms: begun.last().map_or(0, |event| event.ts_ms),
        run_dir: temp.path().join(run.to_string()),
    };
    player.play(first_input(&recorded, cut.is_some(), &player.handler.turnstile)).await?;

    let events = read_all(&*overlay, run).await?;
    let moved = run_dir.map(|to| (text(&player.run_dir), text(&to)));
    let old = Log::read(&recorded, &*overlay, None)?;
    let new = Log::read(&counted(&events, after), &*overlay, moved.as_ref())?;
    let (compared, differences) = compare(&old, &new);
    let unanswered = player.handler.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
    let unanswered = unanswered.clone();
    Ok(Report { run_id: run, compared, is_whole: old.is_whole, differences, unanswered })
}

/// The events behind a place in the log that count.
fn counted(events: &[Event], after: u64) -> Vec<&Event> {
    checkpoint::effective(events).into_iter().filter(|event| event.seq > after).collect()
}

/// The attempts of fan-outs that reached their time limits, each with the place in the log: it alone
/// ends branches with a failure that is not theirs.
fn overdue(counted: &[&Event]) -> BTreeMap<Arc<str>, u64> {
    let ended = counted.iter().filter_map(|event| match &event.entry.body {
        EventBody::BranchCompleted { canceled: true, failure: Some(_), .. } => {
            let fan_out = BranchPath::new(event.entry.branch.as_deref()?).fan_out_path()?;
            Some((Arc::from(fan_out), event.seq))
        }
        _ => None,
    });
    ended.collect()
}

/// What plays a run.
struct Player {
    run: RunId,
    plan: Arc<Plan>,
    overdue: BTreeMap<Arc<str>, u64>,
    overlay: Arc<Overlay>,
    handler: Arc<Replayer>,
    now_ms: i64,
    run_dir: PathBuf,
}

impl Player {
    /// Drives the run to its end, or as far as the record goes, with the pauses of the record.
    async fn play(&self, first: Option<Input>) -> Result<(), ReplayError> {
        let mut next = first;
        while let Some(input) = next {
            let events = read_all(&*self.overlay, self.run).await?;
            let state = RunState::replay(self.run, &events);
            let now_ms = self.now_ms;
            let world = World {
                store: Arc::clone(&self.overlay) as _,
                handler: Arc::clone(&self.handler) as _,
                sink: Arc::new(|_: &Event| {}),
                clock: Arc::new(move || now_ms),
                run_dir: self.run_dir.clone(),
                stop: self.handler.turnstile.open(),
            };
            let options =
                RunOptions { replay_overdue: Some(self.overdue.clone()), ..RunOptions::default() };
            let machine = Machine::new(Arc::clone(&self.plan), state).with_options(options);
            next = match drive(machine, input, world).await? {
                RunEnd::Over(..) => None,
                RunEnd::Paused(_) | RunEnd::Stopped => resume(&self.handler.turnstile),
            };
        }
        Ok(())
    }
}

fn resume(turnstile: &Turnstile) -> Option<Input> {
    turnstile.resumption().map(|it| Input::Resume { max_cost: it.max_cost })
}

/// How the record goes on after its beginning; `None` when it does not.
fn first_input(counted: &[&Event], is_cut: bool, turnstile: &Turnstile) -> Option<Input> {
    if is_cut {
        return resume(turnstile);
    }
    match &counted.first()?.entry.body {
        // What has to be done before the first stage failed.
        EventBody::RunFailed { failure, .. } => Some(Input::Abort { failure: failure.clone() }),
        _ => Some(Input::Start),
    }
}

fn created(run: RunId, events: &[Event]) -> Result<Arc<CreatedRun>, ReplayError> {
    match events.first().map(|event| &event.entry.body) {
        Some(EventBody::RunCreated(created)) => Ok(Arc::clone(created)),
        _ => Err(ReplayError::NoBeginning { run }),
    }
}

/// The same run with another workflow. A goal that the old one stated gives way to the new one's.
fn new_run(created: &CreatedRun, own: &Bundle, other: &Bundle) -> Result<NewRun, ReplayError> {
    let stated = own.goal(&created.inputs)?.unwrap_or_default();
    let goal = if stated == created.goal {
        other.goal(&created.inputs)?.unwrap_or_default()
    } else {
        created.goal.clone()
    };
    // What the caller put into the context, besides what follows from the workflow.
    let context = created.context.iter().filter(|(key, _)| key.starts_with("internal."));
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
        context: context.collect(),
    })
}

fn text(path: &std::path::Path) -> String {
    path.to_string_lossy().into_owned()
}
