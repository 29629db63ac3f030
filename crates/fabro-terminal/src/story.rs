use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fabro_events::{CompletedStage, Event, EventBody};
use fabro_types::{BranchPath, NodeKind, RunId, Status, Usage, one_line};

use crate::agent_line::call;
use crate::fan_out::FanOuts;
use crate::line::{self, Line, SubWorkflowLabel, why};
use crate::paint::Mark;
use crate::summary::Summary;
use crate::text::QUOTED;

/// A run while it is running: a line for each finished stage, with the edge taken after it, and for
/// other events of interest. Events go in, in order; lines come out.
#[derive(Debug, Default)]
pub struct Story {
    running: BTreeMap<Arc<str>, RunningStage>,
    /// How many fan-outs and sub-workflows the run itself is inside.
    depth: usize,
    sub_workflow: SubWorkflowLabel,
    /// Finished stages whose edge is not known yet, by branch.
    pending: BTreeMap<Arc<str>, StageLine>,
    fan_outs: FanOuts,
    summary: Summary,
    /// Nodes whose visits nothing limits.
    pub(crate) unlimited: BTreeSet<Arc<str>>,
}

/// At which visit of a node without a limit there is a warning first; then at twice as many.
const MANY_VISITS: u32 = 10;

/// Which stage it is, as its directory is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagePlace {
    /// The run, or that of the sub-workflow.
    pub run: RunId,
    /// The rank of the stage.
    pub rank: u32,
    /// The node.
    pub node: Arc<str>,
    /// Which visit of it.
    pub visit: u32,
}

/// A running stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningStage {
    /// Its name: `NODE`, or `NODE@VISIT` from the second visit.
    pub name: String,
    /// The node's label, when it has one of its own.
    pub label: Option<Arc<str>>,
    /// The handler that runs it.
    pub handler: NodeKind,
    /// How many fan-outs and sub-workflows it is inside.
    pub depth: usize,
    /// When it was started or resumed, in milliseconds since 1970.
    pub since_ms: i64,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// It waits for the answer of a person.
    pub asks: bool,
    /// How many times its model has answered in this attempt.
    pub turns: u32,
    /// Model tokens of the stage so far, sent and received.
    pub tokens: u64,
    /// Running calls of tools: the id, and the call in a few words.
    calls: Vec<(String, String)>,
    /// The beginning of what its model has said last.
    pub(crate) said: String,
    /// Where its files are.
    pub(crate) place: StagePlace,
    compacts: bool,
    /// Of a fan-out: how many of its branches are done.
    branches: Option<String>,
}

impl RunningStage {
    /// The running tool of its agent, or how many branches of a fan-out are done; `None` while the
    /// model is generating.
    pub fn activity(&self) -> Option<String> {
        if self.branches.is_some() {
            return self.branches.clone();
        }
        if self.compacts {
            return Some("compacts its conversation".to_owned());
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
                self.clear_activity();
            }
            EventBody::GateAsked { question, .. } => {
                self.asks = true;
                if self.label.as_ref().is_some_and(|label| label.contains("{{")) {
                    self.label = Some(question.as_str().into());
                }
            }
            EventBody::GateAnswered { .. } => self.asks = false,
            EventBody::AgentMessage { role, text, usage, .. } if role == "assistant" => {
                self.turns += 1;
                if !text.trim().is_empty() {
                    self.said.clone_from(text);
                }
                self.count(usage.as_ref());
            }
            EventBody::AgentToolStarted { call_id, tool, arguments } => {
                self.calls.push((call_id.clone(), call(tool, arguments)));
            }
            EventBody::AgentToolCompleted(end) => {
                self.calls.retain(|(call_id, _)| *call_id != end.call_id);
            }
            EventBody::AgentCompactionStarted { .. } => self.compacts = true,
            EventBody::AgentCompactionCompleted(_) => self.compacts = false,
            EventBody::AgentError { usage, .. } => {
                self.compacts = false;
                self.count(usage.as_ref());
            }
            _ => {}
        }
    }

    fn count(&mut self, usage: Option<&Usage>) {
        self.tokens += usage.map_or(0, |usage| usage.input_tokens + usage.output_tokens);
    }

    /// Another driver resumes it.
    /// The clock shows another time, but no more of it has passed.
    fn clock_was_set(&mut self, by_ms: i64) {
        self.since_ms = self.since_ms.saturating_add(by_ms);
    }

    fn resume(&mut self, now_ms: i64) {
        self.since_ms = now_ms;
        self.clear_activity();
    }

    fn clear_activity(&mut self) {
        self.calls.clear();
        self.compacts = false;
    }
}

/// A line of a story.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoryLine {
    /// A finished stage.
    Stage(StageLine),
    /// Another event.
    Note(Line),
}

/// A finished stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageLine {
    /// Its name: `NODE`, or `NODE@VISIT` from the second visit.
    pub name: String,
    /// The node's label, when it has one of its own.
    pub label: Option<Arc<str>>,
    /// How many fan-outs and sub-workflows it is inside.
    pub depth: usize,
    /// How it ended.
    pub status: Status,
    /// The word that `outcome` reads as, when it is not the status.
    pub word: Option<String>,
    /// How long its last attempt took, in milliseconds.
    pub duration_ms: u64,
    /// How many attempts there were.
    pub attempts: u32,
    /// Why it failed, or its notes.
    pub remark: Option<String>,
    /// The next node; `None` when the run ended there.
    pub to: Option<Arc<str>>,
    /// Why it was that one; empty when there was nothing to choose.
    pub why: String,
}

impl Story {
    /// The story of a sub-workflow, indented below its parent.
    pub(crate) fn below(depth: usize, sub_workflow: SubWorkflowLabel) -> Self {
        Self { depth, sub_workflow, ..Self::default() }
    }

    pub(crate) fn sub_workflow(&self) -> &SubWorkflowLabel {
        &self.sub_workflow
    }

    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// Reads one event, and returns the lines that are due.
    pub fn tell(&mut self, event: &Event) -> Vec<StoryLine> {
        let mut lines = Vec::new();
        let branch: Arc<str> = event.entry.branch.clone().unwrap_or_default();
        if let EventBody::EdgeSelected(choice) = &event.entry.body
            && let Some(stage) = self.pending.remove(&branch)
        {
            let to = Some(Arc::clone(&choice.to));
            lines.push(StoryLine::Stage(StageLine { to, why: why(choice), ..stage }));
            return lines;
        }
        if event.entry.node_id.is_none() && event.entry.branch.is_none() {
            lines.extend(std::mem::take(&mut self.pending).into_values().map(StoryLine::Stage));
        } else {
            lines.extend(self.pending.remove(&branch).map(StoryLine::Stage));
        }
        self.update(event, &branch);
        lines.extend(self.many_visits(event).map(StoryLine::Note));
        lines.extend(self.fan_outs.take(event, self.depth).map(StoryLine::Note));
        let fork = match &event.entry.body {
            EventBody::BranchCompleted { .. } => BranchPath::new(&branch).parent().as_str(),
            _ => &branch,
        };
        if let Some(stage) = self.running.get_mut(fork) {
            stage.branches = self.fan_outs.count(fork);
        }
        if has_own_line(event) {
            let line = line::line_of(event, &line::name_in(event, &self.sub_workflow));
            lines.push(StoryLine::Note(Line { depth: line.depth + self.depth, ..line }));
        }
        lines
    }

    /// The running stages, the main line's first.
    pub fn running(&self) -> impl Iterator<Item = &RunningStage> {
        self.running.values()
    }

    /// The same with the branch of each, which is empty on the main line.
    pub(crate) fn running_branches(&self) -> impl Iterator<Item = (&str, &RunningStage)> {
        self.running.iter().map(|(branch, stage)| (&**branch, stage))
    }

    /// The results of all nodes so far.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Sets the total model usage of the run.
    pub(crate) fn set_spent(&mut self, tokens: u64, cost_usd: f64) {
        self.summary.spent = Some((tokens, cost_usd));
    }

    /// A warning about the 10th, 20th, 40th … visit of a node that has no limit.
    fn many_visits(&self, event: &Event) -> Option<Line> {
        let node = event.entry.node_id.as_ref().filter(|node| self.unlimited.contains(*node))?;
        let visit = event.entry.visit?;
        let is_due = visit.is_multiple_of(MANY_VISITS) && (visit / MANY_VISITS).is_power_of_two();
        let starts = matches!(event.entry.body, EventBody::StageStarted { .. });
        let text = format!(
            "{node} is entered {visit} times now, and no limit is set: max_visits=N on the node, or max_cost=DOLLARS on the graph"
        );
        (starts && is_due).then_some(Line { depth: self.depth, mark: Mark::Odd, text })
    }

    fn update(&mut self, event: &Event, branch: &Arc<str>) {
        if let Some(set_ms) = event.entry.clock_set_ms {
            self.running.values_mut().for_each(|stage| stage.clock_was_set(set_ms));
        }
        match &event.entry.body {
            EventBody::StageStarted { rank, handler, .. } => {
                let stage = self.start(event, *rank, *handler);
                self.running.insert(Arc::clone(branch), stage);
            }
            EventBody::RunResumed { .. } => {
                self.running.values_mut().for_each(|stage| stage.resume(event.ts_ms));
            }
            EventBody::StageCompleted(end) | EventBody::StageFailed(end) => {
                let stage = self.running.remove(branch);
                if stage.as_ref().is_none_or(|stage| is_work(stage.handler)) {
                    let label =
                        stage.map_or_else(|| event.entry.node_label.clone(), |stage| stage.label);
                    let line = StageLine { label, ..self.finish(event, end) };
                    self.summary.add(event, end);
                    self.pending.insert(Arc::clone(branch), line);
                }
            }
            EventBody::BranchCompleted { .. } => {
                self.running.remove(branch);
                // The branches inside it: `0` is the character after `/`.
                let inside = Arc::from(format!("{branch}/"))..Arc::from(format!("{branch}0"));
                self.running.extract_if(inside, |_, _| true).for_each(drop);
            }
            EventBody::CheckpointForked(point) if point.in_place && point.retry.is_none() => {
                self.running.clear();
                self.fan_outs.clear();
            }
            _ => {
                if let Some(stage) = self.running.get_mut(branch) {
                    stage.take(event);
                }
            }
        }
    }

    fn start(&self, event: &Event, rank: u32, handler: NodeKind) -> RunningStage {
        let place = StagePlace {
            run: event.run_id,
            rank,
            node: event.entry.node_id.clone().unwrap_or_default(),
            visit: event.entry.visit.unwrap_or(1),
        };
        RunningStage {
            name: line::name_in(event, &self.sub_workflow),
            label: event.entry.node_label.clone(),
            handler,
            depth: line::depth(event) + self.depth,
            since_ms: event.ts_ms,
            attempt: 1,
            asks: false,
            turns: 0,
            tokens: 0,
            calls: Vec::new(),
            said: String::new(),
            place,
            compacts: false,
            branches: None,
        }
    }

    fn finish(&self, event: &Event, end: &CompletedStage) -> StageLine {
        let outcome = &end.outcome;
        let notes = || outcome.notes.as_deref().map(|notes| one_line(notes, QUOTED));
        StageLine {
            name: line::name_in(event, &self.sub_workflow),
            label: event.entry.node_label.clone(),
            depth: line::depth(event) + self.depth,
            status: outcome.status,
            word: outcome.word.clone(),
            duration_ms: outcome.duration_ms,
            attempts: end.attempts,
            remark: outcome.failure.as_ref().map(line::failure).or_else(notes),
            to: None,
            why: String::new(),
        }
    }
}

/// False for nodes without work of their own.
fn is_work(handler: NodeKind) -> bool {
    !matches!(handler, NodeKind::Start | NodeKind::Exit | NodeKind::Conditional)
}

/// Starts, ends and edges of stages are lines of stages. An edge that is left over comes from a node
/// without work: it has a line when there was a choice.
fn has_own_line(event: &Event) -> bool {
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
