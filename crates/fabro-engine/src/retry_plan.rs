//! Plans the retry of an ended run: it discards failed stages, list elements and branches, and
//! everything that depends on them. Other finished work is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fabro_events::{Event, EventBody, RetryPoint};
use fabro_types::{BranchPath, NodeKind, Status};

/// Plans a retry of this run from its [effective](crate::checkpoint::effective) events. `None` when
/// the run has not ended, or no stage failed.
pub fn retry_plan(events: &[&Event]) -> Option<RetryPoint> {
    let mut planner = Planner::read(events);
    let end = events.iter().rev().find(|event| !event.entry.body.is_of_compaction())?;
    match &end.entry.body {
        // A sub-workflow whose stage was ended continues where it was.
        EventBody::RunCanceled { .. } => return Some(planner.finish()),
        EventBody::RunCompleted { .. } | EventBody::RunFailed { .. } => {}
        _ => return None,
    }
    let causes = end.entry.body.causes();
    for cause in causes {
        let line = cause.branch.clone().unwrap_or_default();
        planner.rerun_stage(&StageId { line, node: Arc::clone(&cause.node), visit: cause.visit });
    }
    if causes.is_empty() {
        if !matches!(end.entry.body, EventBody::RunFailed { .. }) {
            return None;
        }
        if planner.has_open_stage() {
            // The run was ended from outside, so it continues where it was.
            return Some(planner.finish());
        }
        let last = planner.last_end("")?;
        planner.rerun_stage(&last);
    }
    Some(planner.finish()).filter(|point| !point.lines.is_empty())
}

/// The identity of a stage in the log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct StageId {
    line: Arc<str>,
    node: Arc<str>,
    visit: u32,
}

/// What the log says about a stage.
struct StageLog {
    handler: NodeKind,
    /// The sequence number of its start.
    started: u64,
    /// The sequence number at which its last attempt began.
    attempt: u64,
}

/// What the log says about a fan-out.
struct FanOutLog {
    line: Arc<str>,
    started: u64,
    branches: Vec<Arc<str>>,
}

/// How a branch ended.
struct BranchEnd {
    seq: u64,
    status: Status,
    canceled: bool,
}

#[derive(Default)]
struct Planner {
    stages: BTreeMap<StageId, StageLog>,
    /// The finished stages of each line, in order.
    ends: BTreeMap<Arc<str>, Vec<StageId>>,
    /// The sequence number at which each branch started.
    branch_starts: BTreeMap<Arc<str>, u64>,
    branch_ends: BTreeMap<Arc<str>, BranchEnd>,
    /// Fan-outs by path.
    fan_outs: BTreeMap<Arc<str>, FanOutLog>,
    /// The path of the last fan-out of each stage.
    fan_out_of_stage: BTreeMap<StageId, Arc<str>>,
    /// The last event to keep of each line.
    lines: BTreeMap<Arc<str>, u64>,
    /// The fan-outs that are reopened.
    opened: BTreeSet<Arc<str>>,
    /// Failed stages, with the last event to keep of their lines.
    failed: BTreeMap<StageId, u64>,
}

impl Planner {
    fn read(events: &[&Event]) -> Self {
        let mut planner = Self::default();
        for event in events {
            planner.take(event);
        }
        planner
    }

    fn take(&mut self, event: &Event) {
        let entry = &event.entry;
        let seq = event.seq;
        let line = entry.branch.clone().unwrap_or_default();
        match &entry.body {
            EventBody::BranchStarted {} => drop(self.branch_starts.insert(Arc::clone(&line), seq)),
            EventBody::BranchCompleted { status, canceled, .. } => {
                let end = BranchEnd { seq, status: *status, canceled: *canceled };
                self.branch_ends.insert(Arc::clone(&line), end);
            }
            _ => {}
        }
        let Some((node, visit)) = entry.node_id.clone().zip(entry.visit) else { return };
        let name = StageId { line, node, visit };
        match &entry.body {
            EventBody::StageStarted { handler, .. } => {
                let stage = StageLog { handler: *handler, started: seq, attempt: seq };
                self.stages.insert(name, stage);
            }
            EventBody::StageRetrying { .. } => {
                if let Some(stage) = self.stages.get_mut(&name) {
                    stage.attempt = seq;
                }
                self.fan_out_of_stage.remove(&name);
            }
            EventBody::StageCompleted(_) | EventBody::StageFailed(_) => {
                self.ends.entry(Arc::clone(&name.line)).or_default().push(name);
            }
            EventBody::ParallelStarted { branches, .. } => {
                let path =
                    branches.first().and_then(|it| BranchPath::new(&it.branch).fan_out_path());
                let Some(path) = path.map(Arc::<str>::from) else { return };
                let branches = branches.iter().map(|it| Arc::clone(&it.branch)).collect();
                let line = Arc::clone(&name.line);
                self.fan_outs.insert(Arc::clone(&path), FanOutLog { line, started: seq, branches });
                self.fan_out_of_stage.insert(name, path);
            }
            _ => {}
        }
    }

    fn has_open_stage(&self) -> bool {
        let ended =
            |name: &StageId| self.ends.get(&name.line).is_some_and(|ends| ends.contains(name));
        let is_open = |name: &StageId| name.line.is_empty() && !ended(name);
        self.stages.keys().any(is_open)
    }

    fn last_end(&self, line: &str) -> Option<StageId> {
        let ends = self.ends.get(line)?.iter().rev();
        let works = |name: &&StageId| {
            self.stages.get(*name).is_some_and(|stage| stage.handler != NodeKind::Conditional)
        };
        ends.into_iter().find(works).cloned()
    }

    /// Reruns a failed stage.
    fn rerun_stage(&mut self, name: &StageId) {
        let Some(stage) = self.stages.get(name) else { return };
        let before = stage.started.saturating_sub(1);
        match stage.handler {
            NodeKind::Parallel => match self.fan_out_of_stage.get(name).cloned() {
                Some(path) => self.reopen_fan_out(&path),
                // Its branches never started.
                None => self.fail(name, before),
            },
            NodeKind::ManagerLoop => {
                let attempt = stage.attempt;
                self.fail(name, attempt);
            }
            _ => self.fail(name, before),
        }
    }

    fn fail(&mut self, name: &StageId, last: u64) {
        self.failed.insert(name.clone(), last);
        self.cut(&name.line, last);
    }

    /// Discards the events of a line after `last`, and the join that the line reached.
    fn cut(&mut self, line: &Arc<str>, last: u64) {
        let kept = self.lines.entry(Arc::clone(line)).or_insert(last);
        *kept = last.min(*kept);
        if let Some(path) = BranchPath::new(line).fan_out_path() {
            self.reopen_fan_out(path);
        }
    }

    /// Continues the branches of a fan-out that failed, or that were canceled because of others.
    fn reopen_fan_out(&mut self, path: &str) {
        let Some((path, fan_out)) = self.fan_outs.get_key_value(path) else { return };
        if !self.opened.insert(Arc::clone(path)) {
            return;
        }
        let line = Arc::clone(&fan_out.line);
        let started = fan_out.started;
        let branches = fan_out.branches.clone();
        self.cut(&line, started);
        for branch in branches {
            let Some(end) = self.branch_ends.get(&branch) else { continue };
            let last = end.seq.saturating_sub(1);
            if end.canceled {
                self.cut(&branch, last);
            } else if end.status == Status::Failed {
                if let Some(name) = self.last_end(&branch) {
                    self.rerun_stage(&name);
                } else {
                    let start = self.branch_starts.get(&branch).copied();
                    self.cut(&branch, start.unwrap_or(last));
                }
            }
        }
    }

    fn finish(self) -> RetryPoint {
        let Self { lines, fan_outs, failed, .. } = self;
        // Fan-outs of a rerun stage start over.
        let starts_over = |(_, it): &(&Arc<str>, &FanOutLog)| {
            lines.get(&it.line).is_some_and(|last| it.started > *last)
        };
        let fan_outs = fan_outs.iter().filter(starts_over).map(|(path, _)| Arc::clone(path));
        let fan_outs = fan_outs.collect();
        let point = RetryPoint { lines, fan_outs, stages: Vec::new() };
        // Later failed stages of a line follow from the first one.
        let is_first = |(name, last): &(&StageId, &u64)| {
            point.lines.get(&name.line) == Some(last) && !point.takes_back(**last, Some(&name.line))
        };
        let stages = failed
            .iter()
            .filter(is_first)
            .map(|(name, _)| BranchPath::new(&name.line).stage(&name.node, name.visit).into());
        let stages = stages.collect();
        RetryPoint { stages, ..point }
    }
}
