use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use fabro_events::{CompletedStage, Event, EventBody};
use fabro_types::{NodeKind, Status};

use crate::agent_line::call;
use crate::line::{self, Line, why};
use crate::summary::Summary;
use fabro_types::one_line;

/// Tells a run while it goes on: a line a finished stage, with the edge taken after it, and a line
/// for whatever else a person who watches wants to know. Events go in, in order; lines come out.
#[derive(Debug, Default)]
pub struct Story {
    at_work: BTreeMap<Arc<str>, AtWork>,
    /// Stages that have ended and whose edge is not known yet, by branch.
    pending: BTreeMap<Arc<str>, StageLine>,
    summary: Summary,
}

/// A stage at work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtWork {
    /// Its name: `NODE`, or `NODE@VISIT` from the second visit.
    pub name: String,
    /// The node's label, when it has one of its own.
    pub label: Option<Arc<str>>,
    /// The handler that runs it.
    pub handler: Arc<str>,
    /// How many fan-outs it stands inside.
    pub depth: usize,
    /// When it started, or was taken up after a pause, in milliseconds since 1970.
    pub since_ms: i64,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// It has asked a person.
    pub asks: bool,
    /// How many times its model has answered in this attempt.
    pub turns: u32,
    /// Model tokens of the stage so far, sent and received.
    pub tokens: u64,
    /// Calls of tools that have not ended, each with what it is used on.
    calls: Vec<(String, String)>,
    compacts: bool,
}

impl AtWork {
    /// What its agent is doing right now: a tool and what it is used on; `None` while the model
    /// thinks.
    pub fn doing(&self) -> Option<String> {
        if self.compacts {
            return Some("shortens its conversation".to_owned());
        }
        let (_, last) = self.calls.last()?;
        let others = self.calls.len() - 1;
        Some(if others == 0 { last.clone() } else { format!("{last} and {others} more") })
    }

    fn take(&mut self, event: &Event) {
        match &event.entry.body {
            EventBody::StageRetrying { attempt, .. } => {
                self.attempt = attempt + 1;
                self.turns = 0;
                self.rest();
            }
            EventBody::GateAsked { .. } => self.asks = true,
            EventBody::GateAnswered { .. } => self.asks = false,
            EventBody::AgentMessage { role, usage, .. } if role == "assistant" => {
                self.turns += 1;
                let usage = usage.as_ref();
                self.tokens += usage.map_or(0, |usage| usage.input_tokens + usage.output_tokens);
            }
            EventBody::AgentToolStarted { call_id, tool, arguments } => {
                self.calls.push((call_id.clone(), call(tool, arguments)));
            }
            EventBody::AgentToolCompleted(end) => {
                self.calls.retain(|(call_id, _)| *call_id != end.call_id);
            }
            EventBody::AgentCompactionStarted { .. } => self.compacts = true,
            EventBody::AgentCompactionCompleted(_) | EventBody::AgentError { .. } => {
                self.compacts = false;
            }
            _ => {}
        }
    }

    /// A driver takes it up again: nothing worked on it in between.
    fn resume(&mut self, now_ms: i64) {
        self.since_ms = now_ms;
        self.rest();
    }

    fn rest(&mut self) {
        self.calls.clear();
        self.compacts = false;
    }
}

/// What there is to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Told {
    /// A stage has ended.
    Stage(StageLine),
    /// Something else.
    Note(Line),
}

/// A stage that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageLine {
    /// Its name: `NODE`, or `NODE@VISIT` from the second visit.
    pub name: String,
    /// The node's label, when it has one of its own.
    pub label: Option<Arc<str>>,
    /// How many fan-outs it stands inside.
    pub depth: usize,
    /// How it ended.
    pub status: Status,
    /// The word that `outcome` reads as, when it is not the status.
    pub word: Option<String>,
    /// How long its last attempt took, in milliseconds.
    pub duration_ms: u64,
    /// How many attempts there were.
    pub attempts: u32,
    /// Why it failed, or what it has to remark.
    pub remark: Option<String>,
    /// The node the run went on to; `None` when it ended there.
    pub to: Option<Arc<str>>,
    /// Why it was that one; empty when there was nothing to choose.
    pub why: String,
}

impl Story {
    /// Takes one event, and tells what there is to tell.
    pub fn tell(&mut self, event: &Event) -> Vec<Told> {
        let mut told = Vec::new();
        let branch: Arc<str> = event.entry.branch.clone().unwrap_or_default();
        if let EventBody::EdgeSelected(choice) = &event.entry.body
            && let Some(stage) = self.pending.remove(&branch)
        {
            let to = Some(Arc::clone(&choice.to));
            told.push(Told::Stage(StageLine { to, why: why(choice), ..stage }));
            return told;
        }
        if event.entry.node_id.is_none() && event.entry.branch.is_none() {
            told.extend(std::mem::take(&mut self.pending).into_values().map(Told::Stage));
        } else {
            told.extend(self.pending.remove(&branch).map(Told::Stage));
        }
        self.keep_books(event, &branch);
        if deserves_a_line(event) {
            told.push(Told::Note(line::line(event)));
        }
        told
    }

    /// The stages at work, the main line's first.
    pub fn at_work(&self) -> impl Iterator<Item = &AtWork> {
        self.at_work.values()
    }

    /// All nodes so far, and how they did.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    fn keep_books(&mut self, event: &Event, branch: &Arc<str>) {
        match &event.entry.body {
            EventBody::StageStarted { handler, .. } => {
                self.at_work.insert(Arc::clone(branch), at_work(event, handler));
            }
            // What the last driver was doing when it died is done by nobody.
            EventBody::RunResumed { .. } => {
                self.at_work.values_mut().for_each(|stage| stage.resume(event.ts_ms));
            }
            EventBody::StageCompleted(end) | EventBody::StageFailed(end) => {
                let stage = self.at_work.remove(branch);
                if stage.as_ref().is_none_or(|stage| is_work(&stage.handler)) {
                    let line = finished(event, end);
                    self.summary.add(event, end, line.duration_ms);
                    self.pending.insert(Arc::clone(branch), line);
                }
            }
            EventBody::BranchCompleted { .. } => {
                remove_line(&mut self.at_work, branch);
            }
            EventBody::CheckpointForked(point) if point.in_place => self.at_work.clear(),
            _ => {
                if let Some(stage) = self.at_work.get_mut(branch) {
                    stage.take(event);
                }
            }
        }
    }
}

/// Takes what a map holds of a branch and of the branches inside it, at a cost of these alone.
fn remove_line<V>(map: &mut BTreeMap<Arc<str>, V>, branch: &str) {
    let below = format!("{branch}/");
    let inside = map.range::<str, _>((Bound::Included(below.as_str()), Bound::Unbounded));
    let inside = inside.map(|(name, _)| name).take_while(|name| name.starts_with(&below));
    let gone: Vec<Arc<str>> = inside.map(Arc::clone).collect();
    map.remove(branch);
    for name in gone {
        map.remove(&name);
    }
}

/// False for stages that only mark a place.
fn is_work(handler: &str) -> bool {
    let kind = NodeKind::from_type(handler);
    !matches!(kind, Some(NodeKind::Start | NodeKind::Exit | NodeKind::Conditional))
}

fn at_work(event: &Event, handler: &Arc<str>) -> AtWork {
    AtWork {
        name: line::name(event),
        label: event.entry.node_label.clone(),
        handler: Arc::clone(handler),
        depth: line::depth(event),
        since_ms: event.ts_ms,
        attempt: 1,
        asks: false,
        turns: 0,
        tokens: 0,
        calls: Vec::new(),
        compacts: false,
    }
}

fn finished(event: &Event, end: &CompletedStage) -> StageLine {
    let outcome = &end.outcome;
    let notes = || outcome.notes.as_deref().map(|notes| one_line(notes, line::QUOTED));
    StageLine {
        name: line::name(event),
        label: event.entry.node_label.clone(),
        depth: line::depth(event),
        status: outcome.status,
        word: outcome.word.clone(),
        duration_ms: outcome.duration_ms,
        attempts: end.attempts,
        remark: outcome.failure.as_ref().map(line::failure).or_else(notes),
        to: None,
        why: String::new(),
    }
}

/// Starts, ends and edges of stages are told otherwise, and branches by their stages. An edge that
/// is left over comes from a place that does no work: it is told when there was a choice.
fn deserves_a_line(event: &Event) -> bool {
    match &event.entry.body {
        EventBody::RunResumed { .. }
        | EventBody::RunPaused { .. }
        | EventBody::RunCompleted { .. }
        | EventBody::RunFailed { .. }
        | EventBody::RunCanceled { .. }
        | EventBody::StageRetrying { .. }
        | EventBody::LoopRestart { .. }
        | EventBody::ParallelStarted { .. }
        | EventBody::GateAsked { .. }
        | EventBody::GateAnswered { .. }
        | EventBody::ContextRefused { .. }
        | EventBody::AgentCompactionCompleted(_)
        | EventBody::AgentSteered { .. }
        | EventBody::AgentSubFailed { .. }
        | EventBody::AgentWarning { .. }
        | EventBody::AgentError { .. }
        | EventBody::CheckpointForked(_) => true,
        EventBody::BranchCompleted { canceled, .. } => *canceled,
        EventBody::EdgeSelected(choice) => !why(choice).is_empty(),
        _ => false,
    }
}
