//! The runs that pages show, folded once for all readers. A request reads only the events that are new, and keeps
//! none of them: memory is bounded, by what the stages and pictures of all runs together take.

mod ahead;
mod stages;
mod whole;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use fabro_engine::checkpoint::takes_back;
use fabro_engine::{Cursor, RunState};
use fabro_events::{AnsweredBy, CreatedRun, Event, EventBody, ForkPoint};
use fabro_graph::Workflow;
use fabro_inspect::{
    Activity, ArtifactFold, ArtifactRow, CostReport, CostSum, EdgeTaken, Inspect, ReportError,
    RunFold, StageChange, StageRow, find_stage,
};
use fabro_page::Picture;
use fabro_run::{
    Bundle, BundleError, Gate, gate_names, gates_of_family, holding_stages, is_driven, now_ms,
};
use fabro_store::{Inbox as _, Message, RunLog as _, Runs as _, SqliteStore, StoreError};
use fabro_types::{RunId, RunStatus};

use crate::problem::Problem;
use ahead::ReadAhead;
use whole::{Whole, Wholes};

/// What all kept runs may take together, in bytes, unless one run alone takes more.
const MAX_BYTES: usize = 64 << 20;

/// What a run takes besides its stages and its workflow, in bytes: how it was created, its edges.
const RUN_BYTES: usize = 32 << 10;

/// What a stage takes, with its strings, in bytes.
const STAGE_BYTES: usize = size_of::<StageRow>() + 512;

/// What a node or an edge takes in a layout, with its strings, in bytes.
const PLACE_BYTES: usize = 512;

/// How many events are read from the store at a time.
const PAGE: usize = 512;

/// A run of so many events takes about as long to read as its workflow to lay out, or longer.
const LONG: u64 = 4 * PAGE as u64;

/// How long the times of a running run are good, in milliseconds.
const FRESH_MS: i64 = 1_000;

/// A run at one of its events.
pub(crate) struct View {
    /// The run, with the times of now if it is running.
    pub(crate) run: Inspect,
    /// Its last event.
    pub(crate) seq: u64,
    /// How it was created.
    pub(crate) created: Arc<CreatedRun>,
    /// Its workflow; `None` when it cannot be read: the stages are in the log.
    pub(crate) workflow: Option<Arc<Workflow>>,
    picture: Arc<LazyPicture>,
    /// Why it cannot be read.
    pub(crate) no_workflow: Option<Arc<str>>,
    /// How often each edge was taken.
    pub(crate) edges: Vec<(EdgeTaken, u64)>,
    /// What the running stages do, by their full names.
    pub(crate) activities: Vec<(String, Activity)>,
    /// The commits or trees of stages.
    pub(crate) changes: Vec<StageChange>,
    /// Those before the first and after the last of them, where they differ.
    pub(crate) whole_change: Option<(String, String)>,
    /// Rewinds and retries, which take events back.
    pub(crate) rewinds: Arc<[Rewind]>,
    /// What all readers of this view see alike, made by the first of them.
    pub(crate) fragments: OnceLock<Fragments>,
    driven: bool,
    made_ms: i64,
}

/// Parts of the page of a run.
pub(crate) struct Fragments {
    pub(crate) overview: String,
    pub(crate) graph: Option<String>,
    pub(crate) timeline: String,
}

impl Fragments {
    fn bytes(&self) -> usize {
        self.overview.len() + self.graph.as_ref().map_or(0, String::len) + self.timeline.len()
    }
}

impl View {
    /// Whether no rewind took the event back.
    pub(crate) fn counts(&self, event: &Event) -> bool {
        counts(&self.rewinds, event)
    }

    /// Its workflow laid out; `None` without a workflow, and when it is too large for a picture.
    pub(crate) fn picture(&self) -> Option<&Picture<Arc<Workflow>>> {
        laid_out(&self.picture, self.workflow.as_ref()?)
    }
}

/// The layout of a workflow, made when it is first used.
type LazyPicture = OnceLock<Option<Picture<Arc<Workflow>>>>;

fn laid_out<'p>(
    picture: &'p LazyPicture,
    workflow: &Arc<Workflow>,
) -> Option<&'p Picture<Arc<Workflow>>> {
    picture.get_or_init(|| Picture::new(Arc::clone(workflow)).ok()).as_ref()
}

fn counts(rewinds: &[Rewind], event: &Event) -> bool {
    !rewinds.iter().any(|rewind| event.seq < rewind.seq && takes_back(&rewind.point, event))
}

/// A run as far as it was read.
struct Kept {
    /// `None` once the run has ended: its view is enough until something follows.
    fold: Option<RunFold>,
    seq: u64,
    rewinds: Vec<Rewind>,
    workflow: Option<Arc<Workflow>>,
    picture: Arc<LazyPicture>,
    no_workflow: Option<Arc<str>>,
    /// About what the workflow takes.
    workflow_bytes: usize,
    /// The workflow was looked for; it may not be readable.
    has_looked: bool,
    view: Option<Arc<View>>,
}

impl Kept {
    fn new(run: RunId) -> Self {
        let fold = Some(RunFold::for_list(run));
        Self {
            fold,
            seq: 0,
            rewinds: Vec::new(),
            workflow: None,
            picture: Arc::default(),
            no_workflow: None,
            workflow_bytes: 0,
            has_looked: false,
            view: None,
        }
    }
}

impl Kept {
    /// The same run from its beginning.
    fn begin_again(&mut self, run: RunId) {
        let rewinds = std::mem::take(&mut self.rewinds);
        let workflow = self.workflow.take();
        let picture = std::mem::take(&mut self.picture);
        let no_workflow = self.no_workflow.take();
        let Self { workflow_bytes, has_looked, .. } = *self;
        *self = Self {
            rewinds,
            workflow,
            picture,
            no_workflow,
            workflow_bytes,
            has_looked,
            ..Self::new(run)
        };
    }

    /// About what it takes, in bytes.
    fn bytes(&self) -> usize {
        let of_view = self.view.as_ref().map_or(0, |view| {
            let fragments = view.fragments.get().map_or(0, Fragments::bytes);
            view.run.stages.len() * STAGE_BYTES + fragments
        });
        let stages = self.fold.as_ref().map_or(0, RunFold::stages);
        RUN_BYTES + self.workflow_bytes + of_view + stages * STAGE_BYTES
    }
}

type Shared = Arc<tokio::sync::Mutex<Kept>>;

/// A gate that waits, in the family of a run.
#[derive(Clone)]
pub(crate) struct OpenGate {
    /// What it is called in an answer.
    pub(crate) name: String,
    pub(crate) gate: Gate,
    /// The answer that its run takes when it is driven again: no other can be given.
    pub(crate) answered: Option<GivenAnswer>,
}

/// An answer that no driver has taken yet.
#[derive(Clone, Debug)]
pub(crate) struct GivenAnswer {
    pub(crate) choice: String,
    pub(crate) source: String,
    pub(crate) by: Option<AnsweredBy>,
}

/// A run's own gates, for the list of all runs.
struct Waiting {
    seq: u64,
    gates: Vec<Gate>,
    state: RunState,
}

impl Waiting {
    fn new(seq: u64, gates: Vec<Gate>, state: &RunState) -> Self {
        let mut state = state.clone();
        state.forget_values();
        Self { seq, gates, state }
    }
}

/// The folds of the runs that are looked at.
pub(crate) struct Folds {
    store: Arc<SqliteStore>,
    /// The one that was used last is the last one.
    kept: Mutex<Vec<(RunId, Shared)>>,
    waiting: Mutex<HashMap<RunId, Arc<Waiting>>>,
    wholes: Wholes,
}

impl Folds {
    pub(crate) fn new(store: Arc<SqliteStore>) -> Self {
        let wholes = Wholes::new(Arc::clone(&store));
        Self { store, kept: Mutex::default(), waiting: Mutex::default(), wholes }
    }

    /// What `fabro inspect RUN --json` prints, and the last event of the run.
    pub(crate) async fn json(&self, run: RunId) -> Result<(Bytes, u64), Problem> {
        let whole = self.wholes.get(run).await?;
        let gates = self.gates_beside(run, &whole).await?;
        self.wholes.json(run, whole, gates).await
    }

    /// The same as a value.
    pub(crate) async fn report(&self, run: RunId) -> Result<Inspect, Problem> {
        let whole = self.wholes.get(run).await?;
        let gates = self.gates_beside(run, &whole).await?;
        self.wholes.report(run, &whole, gates).await
    }

    /// The gates of a run and of its sub-workflows. Those of the run itself are taken from its fold: its log is not
    /// read a second time.
    async fn gates_beside(&self, run: RunId, whole: &Whole) -> Result<Vec<Gate>, Problem> {
        let state = whole.state();
        if state.status(true).is_final() {
            return Ok(Vec::new());
        }
        let known = self.known_gates(run, whole.seq());
        if known.is_none() {
            self.keep_waiting(run, Waiting::new(whole.seq(), whole.gates(), state));
        }
        // A change in between makes them newer than the report, which says so by its number.
        Ok(self.gates(run).await?.into_iter().map(|open| open.gate).collect())
    }

    /// The line of a run whose context is asked for: the main line as it is now, or a stage's own line as it was when
    /// the stage had ended. Large values are references.
    pub(crate) async fn line(&self, run: RunId, at: Option<&str>) -> Result<Cursor, Problem> {
        let Some(at) = at else { return Ok(self.wholes.get(run).await?.main()?) };
        let view = self.view(run).await?;
        let row = find_stage(&view.run.stages, at)?;
        self.line_after(&view, row).await
    }

    /// The artifacts of a run and of its sub-workflows, oldest first; of one stage, if it is named.
    pub(crate) async fn artifacts(
        &self,
        run: RunId,
        stage: Option<&str>,
    ) -> Result<Vec<ArtifactRow>, Problem> {
        let mut folds = Vec::new();
        for member in self.store.family(run).await? {
            folds.push(self.wholes.get(member).await?.files.clone());
        }
        Ok(ArtifactFold::rows(&folds, &self.store.runs_dir(), stage))
    }

    /// What a run and its sub-workflows spent.
    pub(crate) async fn cost(
        &self,
        run: RunId,
        is_free: impl Fn(&str) -> bool,
    ) -> Result<CostReport, Problem> {
        let mut folds = Vec::new();
        for member in self.store.family(run).await? {
            folds.push(self.wholes.get(member).await?.cost.clone());
        }
        let mut sum = CostSum::default();
        sum.add_folds(run, folds, &is_free);
        Ok(sum.finish())
    }

    /// The run as it is now.
    pub(crate) async fn view(&self, run: RunId) -> Result<Arc<View>, Problem> {
        let shared = self.shared(run);
        // Readers of one run wait for the first of them, and take what it made.
        let mut kept = shared.lock().await;
        self.prepare(run, &mut kept).await?;
        self.update(run, &mut kept).await?;
        let driven = is_driven(&*self.store, run).await?;
        let now = now_ms();
        if let Some(view) = &kept.view
            && view.seq == kept.seq
            && (view.run.status.is_final() || view.driven == driven)
            && (view.run.status != RunStatus::Running || now - view.made_ms < FRESH_MS)
        {
            return Ok(Arc::clone(view));
        }
        let created = kept.fold.as_ref().and_then(RunFold::created);
        let created = Arc::clone(created.ok_or(ReportError::Empty)?);
        self.look(&created, &mut kept);
        let Some(fold) = &kept.fold else { return Err(ReportError::Empty.into()) };
        let mut report = fold.report(driven)?;
        if report.status == RunStatus::Running {
            report.until(now);
        }
        let whole = fold.whole_change();
        let whole_change = whole.map(|(from, to)| (from.to_owned(), to.to_owned()));
        let view = Arc::new(View {
            run: report,
            seq: kept.seq,
            workflow: kept.workflow.clone(),
            picture: Arc::clone(&kept.picture),
            no_workflow: kept.no_workflow.clone(),
            edges: fold.edges().iter().map(|(edge, count)| (edge.clone(), *count)).collect(),
            activities: fold.activities(),
            changes: fold.changes().to_vec(),
            whole_change,
            rewinds: kept.rewinds.as_slice().into(),
            created,
            fragments: OnceLock::new(),
            driven,
            made_ms: now,
        });
        kept.view = Some(Arc::clone(&view));
        if view.run.status.is_final() {
            kept.fold = None;
        }
        let bytes = kept.bytes();
        drop(kept);
        self.trim(run, bytes);
        Ok(view)
    }

    /// The gates of a run and of its sub-workflows, those included whose answer waits for a driver.
    pub(crate) async fn gates(&self, run: RunId) -> Result<Vec<OpenGate>, Problem> {
        let mut members = Vec::new();
        for member in self.store.family(run).await? {
            members.push(self.waiting(member).await?);
        }
        let states: Vec<&RunState> = members.iter().map(|it| &it.state).collect();
        let within = holding_stages(run, &states);
        let pairs = within.into_iter().zip(&members);
        let of_members = pairs.filter_map(|(within, it)| Some((within?, it.gates.clone())));
        let gates = gates_of_family(of_members.collect());
        let mut answers: HashMap<RunId, Vec<Message>> = HashMap::new();
        let mut open = Vec::new();
        for (name, gate) in gate_names(&gates).into_iter().zip(gates) {
            let messages = match answers.entry(gate.run) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => {
                    let pending = self.store.pending(gate.run).await?;
                    place.insert(pending.into_iter().map(|(_, message)| message).collect())
                }
            };
            let given = messages.iter().find_map(|message| given(message, &gate));
            open.push(OpenGate { name, gate, answered: given });
        }
        Ok(open)
    }

    /// Forgets the gates of runs that are not in this list.
    pub(crate) fn keep_gates_of(&self, is_kept: impl Fn(RunId) -> bool) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|run, _| is_kept(*run));
    }

    async fn waiting(&self, run: RunId) -> Result<Arc<Waiting>, Problem> {
        let last = self.store.last_seq(run).await?;
        if let Some(known) = self.known_gates(run, last) {
            return Ok(known);
        }
        let shared = self.shared(run);
        let mut kept = shared.lock().await;
        self.update(run, &mut kept).await?;
        if kept.fold.is_none() {
            kept.begin_again(run);
            self.update(run, &mut kept).await?;
        }
        let Some(fold) = &kept.fold else { return Err(ReportError::Empty.into()) };
        let waiting = Waiting::new(kept.seq, fold.gates(), fold.state());
        let bytes = kept.bytes();
        drop(kept);
        self.trim(run, bytes);
        Ok(self.keep_waiting(run, waiting))
    }

    /// The gates of a run alone, if they were read at this event.
    fn known_gates(&self, run: RunId, seq: u64) -> Option<Arc<Waiting>> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.get(&run).filter(|it| it.seq == seq).cloned()
    }

    fn keep_waiting(&self, run: RunId, waiting: Waiting) -> Arc<Waiting> {
        let waiting = Arc::new(waiting);
        let mut all = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(run, Arc::clone(&waiting));
        waiting
    }

    fn shared(&self, run: RunId) -> Shared {
        let mut all = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.iter().position(|(id, _)| *id == run).map(|at| all.remove(at));
        let entry =
            found.unwrap_or_else(|| (run, Arc::new(tokio::sync::Mutex::new(Kept::new(run)))));
        let shared = Arc::clone(&entry.1);
        all.push(entry);
        shared
    }

    /// Forgets the runs that were used longest ago when all together take too much.
    fn trim(&self, run: RunId, bytes: usize) {
        let mut all = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sum = bytes;
        let mut keep = Vec::new();
        for (id, shared) in all.drain(..).rev() {
            if id != run {
                // One that is being read is counted when that is done.
                sum += shared.try_lock().map_or(RUN_BYTES, |kept| kept.bytes());
            }
            if id == run || sum <= MAX_BYTES {
                keep.push((id, shared));
            }
        }
        keep.reverse();
        *all = keep;
    }

    /// Begins to lay out the workflow of a long run beside its log, which takes about as long to read.
    async fn prepare(&self, run: RunId, kept: &mut Kept) -> Result<(), StoreError> {
        if kept.has_looked || self.store.last_seq(run).await? < LONG {
            return Ok(());
        }
        let first = self.store.read(run, 0, 1).await?;
        if let Some(EventBody::RunCreated(created)) = first.first().map(|it| &it.entry.body) {
            self.look(created, kept);
            let picture = Arc::clone(&kept.picture);
            if let Some(workflow) = kept.workflow.clone() {
                tokio::task::spawn_blocking(move || laid_out(&picture, &workflow).is_some());
            }
        }
        Ok(())
    }

    /// Looks for the workflow of a run, once.
    fn look(&self, created: &CreatedRun, kept: &mut Kept) {
        if kept.has_looked {
            return;
        }
        match workflow(&self.store, created) {
            Ok(workflow) => {
                kept.workflow_bytes = bytes_of(&workflow);
                kept.workflow = Some(Arc::new(workflow));
            }
            Err(reason) => kept.no_workflow = Some(reason.to_string().into()),
        }
        kept.has_looked = true;
    }

    /// Reads what was committed since.
    async fn update(&self, run: RunId, kept: &mut Kept) -> Result<(), StoreError> {
        let last = self.store.last_seq(run).await?;
        if last == kept.seq && last > 0 {
            return Ok(());
        }
        if last < kept.seq {
            // It was removed, and another one has its id.
            *kept = Kept::new(run);
        } else if kept.fold.is_none() {
            kept.begin_again(run);
        }
        let mut log = ReadAhead::new(&self.store, run);
        loop {
            let page = log.page(kept.seq).await?;
            if page.is_empty() {
                return Ok(());
            }
            for event in page {
                let rewind = rewind(&event);
                if let Some(rewind) = rewind.filter(|it| !kept.rewinds.contains(it)) {
                    kept.rewinds.push(rewind);
                    kept.begin_again(run);
                    break;
                }
                kept.seq = event.seq;
                if counts(&kept.rewinds, &event)
                    && let Some(fold) = &mut kept.fold
                {
                    fold.apply(&event);
                }
            }
            if kept.seq >= last {
                if let Some(fold) = &mut kept.fold {
                    fold.forget_values();
                }
                return Ok(());
            }
        }
    }
}

/// A rewind or a retry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rewind {
    seq: u64,
    point: ForkPoint,
}

/// The rewind or retry that an event records.
fn rewind(event: &Event) -> Option<Rewind> {
    match &event.entry.body {
        EventBody::CheckpointForked(point) if point.in_place => {
            Some(Rewind { seq: event.seq, point: ForkPoint::clone(point) })
        }
        _ => None,
    }
}

/// The answer that a message gives to a gate.
pub(crate) fn given(message: &Message, of: &Gate) -> Option<GivenAnswer> {
    match message {
        Message::Answer { node, visit, branch, choice, source, by }
            if *node == *of.node
                && *visit == of.visit
                && branch.as_deref() == of.branch.as_deref() =>
        {
            Some(GivenAnswer { choice: choice.clone(), source: source.clone(), by: by.clone() })
        }
        _ => None,
    }
}

/// About what a workflow takes, in bytes: its source, what the source becomes, the files it names, and its layout.
fn bytes_of(workflow: &Workflow) -> usize {
    let texts =
        workflow.nodes().flat_map(|node| ["prompt", "script"].map(|key| node.attrs.text(key)));
    let places = (workflow.nodes().len() + workflow.edges().len()) * PLACE_BYTES;
    places + workflow.source().len() * 4 + texts.flatten().map(str::len).sum::<usize>()
}

/// The workflow of a run.
fn workflow(store: &SqliteStore, created: &CreatedRun) -> Result<Workflow, BundleError> {
    Ok(Bundle::load(store, created)?.plan()?.workflow().clone())
}

#[cfg(test)]
mod tests {
    use fabro_events::Entry;
    use fabro_store::Batch;
    use fabro_types::BlobRef;

    use super::*;

    fn created(run: RunId) -> Event {
        let created = CreatedRun {
            workflow: "w".into(),
            goal: String::new(),
            inputs: serde_json::Map::new(),
            seed: 1,
            work_dir: "/w".into(),
            bundle: BlobRef::of(b"bundle"),
            context: fabro_types::ContextPatch::new(),
            max_cost: None,
            parent: None,
            dry_run: false,
            worktree: None,
            rules: 0,
        };
        let entry = Entry::new(EventBody::RunCreated(created.into()));
        Event { run_id: run, seq: 1, ts_ms: 1_000, entry }
    }

    /// Only the workflow of a long run is looked for before its log is read.
    #[tokio::test]
    async fn long_runs_are_prepared() {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(SqliteStore::open(&dir.path().join("store")).unwrap());
        let folds = Folds::new(Arc::clone(&store));
        for (number, last) in [(1, LONG - 1), (2, LONG)] {
            let run = RunId::from_parts(number, 7);
            let later = (2..=last).map(|seq| {
                let entry = Entry::new(EventBody::RunStarted {});
                Event { run_id: run, seq, ts_ms: 1_000, entry }
            });
            let events: Vec<Event> = std::iter::once(created(run)).chain(later).collect();
            store.append(run, 0, &Batch::of(&events)).await.unwrap();
            let mut kept = Kept::new(run);
            folds.prepare(run, &mut kept).await.unwrap();
            assert_eq!(kept.has_looked, last >= LONG);
            // The bundle is not in the store.
            assert_eq!(kept.no_workflow.is_some(), kept.has_looked);
        }
    }

    #[test]
    fn a_workflow_is_laid_out_once() {
        let source = "digraph { start -> exit }";
        let workflow = Arc::new(Workflow::from_source("w", source).unwrap());
        let mut kept = Kept::new(RunId::from_parts(1, 7));
        let first: *const _ = laid_out(&kept.picture, &workflow).unwrap();
        kept.begin_again(RunId::from_parts(1, 7));
        assert!(std::ptr::eq(first, laid_out(&kept.picture, &workflow).unwrap()));
    }

    /// More runs than a page of the inbox shows are all kept; a large one displaces those used longest ago.
    #[tokio::test]
    async fn runs_are_kept_by_what_they_take() {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(SqliteStore::open(&dir.path().join("store")).unwrap());
        let folds = Folds::new(Arc::clone(&store));
        let runs: Vec<RunId> = (0..40).map(|at| RunId::from_parts(1_000 + at, 7)).collect();
        for run in &runs {
            store.append(*run, 0, &Batch::of(&[created(*run)])).await.unwrap();
        }
        let mut views = Vec::new();
        for run in &runs {
            views.push(folds.view(*run).await.unwrap());
        }
        for (run, view) in runs.iter().zip(&views) {
            assert!(Arc::ptr_eq(view, &folds.view(*run).await.unwrap()), "folded again");
        }
        folds.trim(runs[39], MAX_BYTES - 2 * RUN_BYTES);
        let kept: Vec<RunId> = folds.kept.lock().unwrap().iter().map(|(run, _)| *run).collect();
        assert_eq!(kept, runs[37..]);
    }
}
