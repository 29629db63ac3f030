//! A run folded as its log is read, page by page: no event is kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use fabro_engine::checkpoint::{self, StageName};
use fabro_engine::{MAIN, Phase, RunState};
use fabro_events::{
    Candidate, CreatedRun, Event, EventBody, OverriddenCheck, StageFailure, timestamp,
};
use fabro_run::{AskedGates, Gate};
use fabro_types::{ClauseResult, RunId, RunStatus, one_line};

use crate::activity::{Activities, Activity};
use crate::at::StageKey;
use crate::cause::Cause;
use crate::changes::whole_of;
use crate::inspect::{Head, Rows};
use crate::{Inspect, ReportError, StageChange, StageRow};

/// The longest failure in a row of a list, in characters.
const FAILURE: usize = 400;

/// How many warnings of a stage a row of a list keeps.
const WARNINGS: usize = 4;

/// How often values are dropped, in events.
const FORGET_EVERY: u32 = 256;

/// A run so far, as a fold over the events that count: after a rewind it begins again.
///
/// What it holds grows with the stages of the run, by some hundreds of bytes each, and not with what they wrote
/// when it is made [for a list](Self::for_list).
#[derive(Clone, Debug)]
pub struct RunFold {
    state: RunState,
    head: Head,
    rows: Rows,
    gates: AskedGates,
    edges: BTreeMap<EdgeTaken, u64>,
    changes: Vec<StageChange>,
    cause: Option<Cause>,
    unhandled: Vec<StageFailure>,
    overridden: Vec<OverriddenCheck>,
    activities: Activities,
    is_list: bool,
    events: u32,
}

/// An edge: the node it leaves, its target, its label.
pub type EdgeTaken = (Arc<str>, Arc<str>, Option<Arc<str>>);

impl RunFold {
    /// A run before its first event.
    pub fn new(run: RunId) -> Self {
        Self {
            state: RunState::new(run),
            head: Head::default(),
            rows: Rows::default(),
            gates: AskedGates::default(),
            edges: BTreeMap::new(),
            changes: Vec::new(),
            cause: None,
            unhandled: Vec::new(),
            overridden: Vec::new(),
            activities: Activities::default(),
            is_list: false,
            events: 0,
        }
    }

    /// The same without what a list of stages does not show: long failures are cut, the edges that were not
    /// taken and the files that were written are left out.
    #[must_use]
    pub fn for_list(run: RunId) -> Self {
        Self { is_list: true, ..Self::new(run) }
    }

    /// Takes the next event in.
    pub fn apply(&mut self, event: &Event) {
        let entry = &event.entry;
        let line = entry.branch.as_deref().unwrap_or(MAIN);
        let before = match entry.body.git_sha() {
            Some(_) => self.state.worktrees.of(line).map(|worktree| worktree.head),
            None => None,
        };
        self.state.apply(event);
        self.rows.apply(event);
        self.head.apply(event, self.rows.clock);
        if let EventBody::CheckpointForked(point) = &entry.body
            && !point.in_place
        {
            self.head.inherited = Some(self.state.usage_so_far()).filter(|usage| usage.turns > 0);
        }
        self.gates.apply(event);
        self.activities.apply(event);
        if !entry.body.is_of_compaction() {
            self.cause = Cause::of(&entry.body);
            self.unhandled = match &entry.body {
                EventBody::RunCompleted { unhandled, .. } => unhandled.clone(),
                _ => Vec::new(),
            };
            self.overridden = entry.body.overridden().to_vec();
        }
        if let (Some(to), Some(key), Some(from)) =
            (entry.body.git_sha(), StageKey::of(event), before)
            // Else a sub-workflow that changed no file, beside a stage that did.
            && *from != *to
        {
            let from = from.to_string();
            self.changes.push(StageChange {
                stage: key.full_name(),
                from,
                to: to.to_owned(),
                shared: false,
                left_out: Vec::new(),
            });
        }
        self.changes.extend(StageChange::in_place(event));
        if let (EventBody::EdgeSelected(choice), Some(from)) = (&entry.body, &entry.node_id) {
            let edge = (Arc::clone(from), Arc::clone(&choice.to), choice.label.clone());
            *self.edges.entry(edge).or_default() += 1;
        }
        if self.is_list {
            self.cut(event);
        }
    }

    /// Drops what stages wrote. A fold [for a list](Self::for_list) does so now and then; one that is kept
    /// between events is smaller after this.
    pub fn forget_values(&mut self) {
        self.state.forget_values();
    }

    /// Drops the histories of stages, which only preambles need; contexts stay.
    pub fn forget_histories(&mut self) {
        self.state.forget_histories();
    }

    /// About what it takes in memory, in bytes.
    pub fn bytes(&self) -> usize {
        let rows = self.rows.list.iter().map(|open| bytes_of(&open.row)).sum::<usize>();
        rows + self.changes.len() * PER_CHANGE + self.state.value_bytes()
    }

    /// Drops what a list does not show.
    fn cut(&mut self, event: &Event) {
        self.events += 1;
        if self.events.is_multiple_of(FORGET_EVERY) {
            self.forget_values();
        }
        let Some(open) = self.rows.row(event) else { return };
        let row = &mut open.row;
        row.files_touched = Vec::new();
        row.warnings.truncate(WARNINGS);
        if let Some(failure) = &mut row.failure {
            failure.details = None;
            if failure.message.len() > FAILURE {
                failure.message = one_line(&failure.message, FAILURE);
            }
        }
        if let Some(choice) = &mut row.choice
            && !choice.candidates.is_empty()
        {
            // The label stands for the condition that held.
            let taken = choice.taken_condition().map(Arc::from);
            choice.label = taken.or_else(|| choice.label.take());
            choice.candidates = Vec::new();
        }
    }

    /// How the run was created; `None` before its first event.
    pub fn created(&self) -> Option<&Arc<CreatedRun>> {
        self.state.created.as_ref()
    }

    /// Where the run stands. Of a fold for a list it has no values.
    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// The last event that was taken in; 0 before the first.
    pub fn seq(&self) -> u64 {
        self.state.last_seq
    }

    /// How many stages there are so far.
    pub fn stages(&self) -> usize {
        self.rows.list.len()
    }

    /// The gates of this run alone that wait for an answer.
    pub fn gates(&self) -> Vec<Gate> {
        self.gates.open(&self.state)
    }

    /// What the running stages do, by their full names.
    pub fn activities(&self) -> Vec<(String, Activity)> {
        let running = self.state.active().filter_map(|(branch, stage)| {
            let branch = (!branch.is_empty()).then(|| Arc::clone(branch));
            let key = StageKey { branch, node: Arc::clone(&stage.node), visit: stage.visit };
            Some((key.full_name(), self.activities.of(&key)?))
        });
        running.collect()
    }

    /// How often each edge was taken.
    pub fn edges(&self) -> &BTreeMap<EdgeTaken, u64> {
        &self.edges
    }

    /// The commits, or the trees, before and after each stage that changed files.
    pub fn changes(&self) -> &[StageChange] {
        &self.changes
    }

    /// The commits, or the trees, before and after all of them; `None` when they are the same.
    pub fn whole_change(&self) -> Option<(&str, &str)> {
        let created = self.state.created.as_ref()?;
        let Some(worktree) = &created.worktree else { return whole_of(&self.changes) };
        let last = self.state.worktrees.head(MAIN)?;
        (**last != *worktree.base).then(|| (&*worktree.base, &**last))
    }

    /// The run as a whole. `driven` tells whether it has a driver.
    ///
    /// # Errors
    ///
    /// There was no event.
    pub fn report(&self, driven: bool) -> Result<Inspect, ReportError> {
        let created = self.state.created.clone().ok_or(ReportError::Empty)?;
        let status = self.state.status(driven);
        let (head, clock) = (&self.head, self.rows.clock);
        Ok(Inspect {
            cause: self.cause.clone(),
            unhandled: self.unhandled.clone(),
            overridden: self.overridden.clone(),
            id: self.state.run_id,
            workflow: created.workflow.clone(),
            status,
            failure: match &self.state.phase {
                Phase::Ended(RunStatus::Failed, failure) => failure.clone(),
                _ => None,
            },
            goal: created.goal.clone(),
            inputs: created.inputs.clone(),
            seed: created.seed,
            started_at: timestamp(head.started_ms),
            ended_at: status.is_final().then(|| timestamp(clock.last_ms)),
            duration_ms: clock.now().saturating_sub(head.driven_before),
            dry_run: created.dry_run,
            pause: head.pause.clone().filter(|_| status == RunStatus::Paused),
            forked: head.forked.clone(),
            last_event_ms: clock.last_ms,
            stages: self.rows.clone().finish(status),
            gates: self.gates(),
            usage: self.state.usage_so_far(),
            inherited_usage: head.inherited.clone(),
        })
    }
}

/// What a commit of a stage takes, in bytes.
const PER_CHANGE: usize = 256;

/// What a row takes besides its strings, in bytes: itself, with its key and what it used.
const PER_ROW: usize = size_of::<StageRow>() + 512;

/// What a candidate takes besides its condition, in bytes.
const PER_CANDIDATE: usize = size_of::<Candidate>() + 128;

/// About what a row takes in memory, in bytes.
fn bytes_of(row: &StageRow) -> usize {
    let failure = row.failure.as_ref().map_or(0, |failure| {
        failure.message.len() + failure.details.as_ref().map_or(0, String::len)
    });
    let candidates = row.choice.iter().flat_map(|choice| &choice.candidates);
    let clauses = |it: &Candidate| it.clauses.len() * 2 * size_of::<ClauseResult>();
    let choice = candidates
        .map(|it| PER_CANDIDATE + it.condition.as_ref().map_or(0, |text| text.len()) + clauses(it));
    let texts = row.files_touched.iter().chain(&row.warnings);
    let texts: usize = texts.map(|text| size_of::<String>() + text.len()).sum();
    PER_ROW + failure + choice.sum::<usize>() + texts
}

/// The stage of a [name](StageName) in a list of rows; of those that one without a visit means, the one that
/// started last.
///
/// # Errors
///
/// There is none, or the name has a visit and means stages of several branches.
pub fn find_stage<'r>(rows: &'r [StageRow], text: &str) -> Result<&'r StageRow, ReportError> {
    find_row(rows, text, |row| row.first_seq)
}

/// The same for [`explain_row`](crate::explain_row): of the stages that a name without a visit means, the one that
/// started or was left last.
///
/// # Errors
///
/// There is none, or the name has a visit and means stages of several branches.
pub fn find_left_stage<'r>(rows: &'r [StageRow], text: &str) -> Result<&'r StageRow, ReportError> {
    find_row(rows, text, |row| row.left_seq.unwrap_or(row.first_seq))
}

fn find_row<'r>(
    rows: &'r [StageRow],
    text: &str,
    place: impl Fn(&StageRow) -> u64,
) -> Result<&'r StageRow, ReportError> {
    let name = StageName::parse(text.trim());
    let found: Vec<&StageRow> = rows.iter().filter(|row| row.key().is_called(name)).collect();
    let mut names: Vec<String> = Vec::new();
    for row in found.iter().filter(|_| name.visit.is_some()) {
        let full = row.name();
        // A restart may visit it for the first time again.
        if !names.contains(&full) {
            names.push(full);
        }
    }
    if names.len() > 1 {
        return Err(ReportError::SeveralStages { stage: text.to_owned(), stages: names });
    }
    found.into_iter().max_by_key(|row| place(row)).ok_or_else(|| {
        let mut stages: Vec<String> = Vec::new();
        for row in rows {
            // A loop visits the same few nodes again and again.
            if stages.len() <= 8 && !stages.iter().any(|name| **name == *row.node) {
                stages.push(row.node.to_string());
            }
        }
        ReportError::NoStage { stage: text.to_owned(), stages }
    })
}

/// A run as a whole. `driven` tells whether it has a driver.
pub fn inspect(events: &[Event], driven: bool) -> Result<Inspect, ReportError> {
    let first = events.first().ok_or(ReportError::Empty)?;
    let mut fold = RunFold::new(first.run_id);
    for event in checkpoint::effective(events) {
        fold.apply(event);
    }
    fold.report(driven)
}
