use std::collections::BTreeMap;
use std::sync::Arc;

use fabro_events::{
    CompletedStage, EdgeChoice, Event, EventBody, ForkPoint, OverriddenCheck, PauseReason,
    StageFailure, Tier, timestamp,
};
use fabro_run::Gate;
use fabro_types::{Failure, RunId, RunStatus, Usage};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::at::StageKey;
use crate::cause::Cause;
use crate::driven_time::DrivenClock;

/// A run as a whole.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inspect {
    /// The run.
    pub id: RunId,
    /// The workflow's name.
    pub workflow: String,
    /// Its status.
    pub status: RunStatus,
    /// Why it failed; left out when it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// What it began with, when it failed or succeeded partially; left out otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The failures that nothing handled, the first cause first; left out when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unhandled: Vec<StageFailure>,
    /// The failed checks that a person has overridden at a gate; left out when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overridden: Vec<OverriddenCheck>,
    /// The goal; empty when there is none.
    pub goal: String,
    /// The inputs.
    pub inputs: Map<String, Value>,
    /// What decides random choices.
    pub seed: u64,
    /// When it was created or forked, RFC 3339.
    pub started_at: String,
    /// When it ended; left out while it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// How long it was driven, in milliseconds: pauses and interruptions do not count.
    pub duration_ms: u64,
    /// Nothing was executed; left out for other runs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// What it waits for, while it is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
    /// Where it was forked or rewound, until it is resumed.
    #[serde(skip)]
    pub forked: Option<ForkPoint>,
    /// Its stages, by rank.
    pub stages: Vec<StageRow>,
    /// Model usage of the whole run, running stages included.
    pub usage: Usage,
    /// The part of `usage` that the run spent from which this one was forked; left out when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inherited_usage: Option<Usage>,
    /// Its gates that wait for an answer; left out when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<Gate>,
    #[serde(skip)]
    pub(crate) last_event_ms: i64,
}

impl Inspect {
    /// Counts the time since the last event too: for a run that is being driven.
    pub fn until(&mut self, now_ms: i64) {
        let since = u64::try_from(now_ms.saturating_sub(self.last_event_ms)).unwrap_or_default();
        self.duration_ms = self.duration_ms.saturating_add(since);
        for row in self.stages.iter_mut().filter(|row| row.ended_at.is_none()) {
            row.duration_ms = row.duration_ms.saturating_add(since);
            row.until_ms = row.until_ms.saturating_add_unsigned(since);
        }
    }
}

/// What a paused run waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pause {
    /// The kind of it.
    pub reason: PauseReason,
    /// The same for people.
    pub message: String,
}

/// One visit of a node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageRow {
    /// Order of scheduling.
    pub rank: u32,
    /// The node.
    pub node: Arc<str>,
    /// Which visit of it.
    pub visit: u32,
    /// The branch it ran in; `None` on the main line.
    pub branch: Option<Arc<str>>,
    /// How it ended; while it has not, `running`, `paused` or `interrupted` as the run is, and
    /// `canceled` when it never will.
    pub status: &'static str,
    /// When it started, RFC 3339.
    pub started_at: String,
    /// When it ended.
    pub ended_at: Option<String>,
    /// How many attempts there were so far.
    pub attempts: u32,
    /// The next node.
    pub edge: Option<Arc<str>>,
    /// How long it took, retries included, in milliseconds; while it has not ended, until the last
    /// event. Times in which the run was not driven do not count.
    pub duration_ms: u64,
    /// What all its attempts used of a model; left out when they used none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Why it failed, or why its last attempt did while another one is to follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Why the run took the edge to the next node.
    #[serde(
        rename = "reason",
        serialize_with = "edge_reason",
        skip_serializing_if = "Option::is_none"
    )]
    pub choice: Option<EdgeChoice>,
    /// Files that it wrote, relative to the working directory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files_touched: Vec<String>,
    /// What was ignored or left out while it ran: directives, context keys, tools, artifacts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// When it started, in milliseconds since 1970 by a clock that was never set.
    #[serde(skip)]
    pub started_ms: i64,
    /// When it ended, or when something was last recorded, by the same clock.
    #[serde(skip)]
    pub until_ms: i64,
    /// The place in the log of its first event.
    #[serde(skip)]
    pub first_seq: u64,
    /// The place in the log of its last event.
    #[serde(skip)]
    pub last_seq: u64,
    /// Where in the log the edge to the next node was selected.
    #[serde(skip)]
    pub left_seq: Option<u64>,
}

impl StageRow {
    /// Which stage it is.
    pub fn key(&self) -> StageKey {
        StageKey { branch: self.branch.clone(), node: Arc::clone(&self.node), visit: self.visit }
    }

    /// `[BRANCH/]NODE@VISIT`, as commands take it.
    pub fn name(&self) -> String {
        self.key().full_name()
    }
}

/// The short form of a choice: the rule, and the condition or label that it was taken by.
#[expect(clippy::ref_option, reason = "serde's serialize_with passes &T")]
fn edge_reason<S: Serializer>(
    choice: &Option<EdgeChoice>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Reason<'c> {
        tier: Tier,
        #[serde(skip_serializing_if = "Option::is_none")]
        condition: Option<&'c str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        label: Option<&'c str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        gate: Option<&'c str>,
    }
    let reason = choice.as_ref().map(|choice| Reason {
        tier: choice.tier,
        condition: choice.taken_condition(),
        label: choice.label.as_deref(),
        gate: choice.gate.as_deref(),
    });
    reason.serialize(serializer)
}

/// What the events say of the run itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    pub(crate) started_ms: i64,
    /// What the clock showed when a fork began: the time before is that of the run it was copied from.
    pub(crate) driven_before: u64,
    pub(crate) pause: Option<Pause>,
    pub(crate) forked: Option<ForkPoint>,
    /// What was spent before a fork began.
    pub(crate) inherited: Option<Usage>,
}

impl Head {
    /// `clock` shows the time of this event.
    pub(crate) fn apply(&mut self, event: &Event, clock: DrivenClock) {
        match &event.entry.body {
            EventBody::RunCreated(_) => self.started_ms = event.ts_ms,
            EventBody::CheckpointForked(point) => {
                if !point.in_place {
                    self.started_ms = event.ts_ms;
                    self.driven_before = clock.now();
                }
                self.forked = Some(ForkPoint::clone(point));
            }
            EventBody::RunStarted {} | EventBody::RunResumed { .. } => self.forked = None,
            EventBody::RunPaused { reason, message, .. } => {
                self.pause = Some(Pause { reason: *reason, message: message.clone() });
            }
            _ => {}
        }
    }
}

/// The rows of these events, which count; a stage that has not ended has the status of the run.
pub(crate) fn rows(events: &[&Event], status: RunStatus) -> Vec<StageRow> {
    let mut rows = Rows::default();
    for event in events {
        rows.apply(event);
    }
    rows.finish(status)
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    pub(crate) clock: DrivenClock,
    pub(crate) list: Vec<OpenRow>,
    by_key: BTreeMap<StageKey, usize>,
    /// The running stage of each line.
    running: BTreeMap<Arc<str>, usize>,
}

/// A row, with what is known only while its stage runs.
#[derive(Clone, Debug)]
pub(crate) struct OpenRow {
    pub(crate) row: StageRow,
    /// What the clock showed when it started.
    started: u64,
    /// What the ended attempts used. Most stages use no model: a list of them stays small.
    usage: Option<Box<Usage>>,
    /// What the open attempt has used so far.
    spent: Option<Box<Usage>>,
}

impl OpenRow {
    /// An attempt has ended, and this is what all of it used.
    fn used(&mut self, usage: Option<&Usage>) {
        if let Some(usage) = usage {
            self.usage.get_or_insert_default().add(usage);
        }
        self.spent = None;
    }

    fn end(&mut self, clock: &DrivenClock, status: &'static str) {
        self.row.status = status;
        self.row.ended_at = Some(timestamp(clock.last_ms));
        self.row.until_ms = clock.steady_ms();
        self.row.duration_ms = clock.now().saturating_sub(self.started);
    }
}

impl Rows {
    pub(crate) fn apply(&mut self, event: &Event) {
        self.clock.apply(event);
        if let Some(open) = self.row(event) {
            open.row.last_seq = event.seq;
        }
        match &event.entry.body {
            EventBody::StageStarted { rank, .. } => self.start(event, *rank),
            EventBody::StageRetrying { attempt, failure, usage, .. } => {
                if let Some(open) = self.row(event) {
                    open.row.attempts = attempt + 1;
                    open.row.failure = Some(failure.clone());
                    open.used(usage.as_ref());
                }
            }
            EventBody::RunPaused { unavailable, used, .. } => {
                for stage in unavailable {
                    let line = stage.branch.as_deref().unwrap_or_default();
                    let at = self.by_key.get(&StageKey::of_failure(stage));
                    if let (Some(at), Some(usage)) = (at, used.get(line)) {
                        // The turns that are recorded stay beside it: the attempt has not ended.
                        self.list[*at].usage.get_or_insert_default().add(usage);
                    }
                }
            }
            EventBody::StageCompleted(end) | EventBody::StageFailed(end) => self.end(event, end),
            EventBody::EdgeSelected(choice) => {
                if let Some(open) = self.row(event) {
                    open.row.edge = Some(Arc::clone(&choice.to));
                    open.row.choice = Some(choice.clone());
                    open.row.left_seq = Some(event.seq);
                }
            }
            EventBody::BranchCompleted { canceled: true, .. } => self.cancel(event),
            EventBody::AgentWarning { message, window: None, .. } => {
                self.warn(event, message.clone());
            }
            EventBody::ContextRefused { key, reason } => {
                self.warn(event, format!("the context key `{key}` is refused: {reason}"));
            }
            body => {
                if let Some(usage) = body.request_usage() {
                    self.spend(event, usage);
                }
            }
        }
    }

    fn start(&mut self, event: &Event, rank: u32) {
        let Some(key) = StageKey::of(event) else { return };
        let row = StageRow {
            rank,
            node: Arc::clone(&key.node),
            visit: key.visit,
            branch: key.branch.clone(),
            status: "",
            started_at: timestamp(event.ts_ms),
            ended_at: None,
            attempts: 1,
            edge: None,
            duration_ms: 0,
            usage: None,
            failure: None,
            choice: None,
            files_touched: Vec::new(),
            warnings: Vec::new(),
            started_ms: self.clock.steady_ms(),
            until_ms: self.clock.steady_ms(),
            first_seq: event.seq,
            last_seq: event.seq,
            left_seq: None,
        };
        self.running.insert(key.branch.clone().unwrap_or_default(), self.list.len());
        self.by_key.insert(key, self.list.len());
        let started = self.clock.now();
        self.list.push(OpenRow { row, started, usage: None, spent: None });
    }

    fn warn(&mut self, event: &Event, message: String) {
        if let Some(open) = self.row(event).filter(|open| !open.row.warnings.contains(&message)) {
            open.row.warnings.push(message);
        }
    }

    /// An agent's turn in the open attempt, which the end of the attempt counts again.
    fn spend(&mut self, event: &Event, usage: &Usage) {
        if let Some(open) = self.row(event) {
            open.spent.get_or_insert_default().add(usage);
        }
    }

    fn end(&mut self, event: &Event, end: &CompletedStage) {
        self.running.remove(event.entry.branch.as_deref().unwrap_or_default());
        let clock = self.clock;
        if let Some(open) = self.row(event) {
            open.end(&clock, end.outcome.status.as_str());
            open.used(end.outcome.usage.as_ref());
            open.row.attempts = end.attempts;
            open.row.failure.clone_from(&end.outcome.failure);
            open.row.files_touched.clone_from(&end.outcome.files_touched);
        }
    }

    /// Stages that a join does not wait for never end.
    fn cancel(&mut self, event: &Event) {
        let Some(name) = event.entry.branch.as_deref() else { return };
        // The branches inside it: `0` is the character after `/`.
        let inside = Arc::from(format!("{name}/"))..Arc::from(format!("{name}0"));
        let own = self.running.remove(name);
        let inside = self.running.extract_if(inside, |_, _| true).map(|(_, at)| at);
        for at in own.into_iter().chain(inside) {
            self.list[at].end(&self.clock, RunStatus::Canceled.as_str());
        }
    }

    pub(crate) fn row(&mut self, event: &Event) -> Option<&mut OpenRow> {
        // In a long log of one line, the stage that an event concerns is nearly always the last one.
        let at = match self.list.last() {
            Some(last) if last.row.key().is(event) => self.list.len() - 1,
            _ => *self.by_key.get(&StageKey::of(event)?)?,
        };
        self.list.get_mut(at)
    }

    pub(crate) fn finish(self, run: RunStatus) -> Vec<StageRow> {
        let unfinished = if run.is_final() { RunStatus::Canceled } else { run }.as_str();
        let clock = self.clock;
        let close = |mut open: OpenRow| {
            if open.row.status.is_empty() {
                open.row.status = unfinished;
                open.row.duration_ms = clock.now().saturating_sub(open.started);
                open.row.until_ms = clock.steady_ms();
            }
            let mut usage = open.usage.take().map(|it| *it).unwrap_or_default();
            usage.add(open.spent.as_deref().unwrap_or(&Usage::default()));
            open.row.usage = Some(usage).filter(|usage| *usage != Usage::default());
            open.row
        };
        let mut list: Vec<StageRow> = self.list.into_iter().map(close).collect();
        list.sort_by_key(|row| row.rank);
        list
    }
}
