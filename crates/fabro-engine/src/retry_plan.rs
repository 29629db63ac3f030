//! What a retry of an ended run takes back: failed stages, failed elements of a list, failed branches, and what depends
//! on them. What else was finished stays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fabro_events::{Event, EventBody, RetryPoint};
use fabro_types::{BranchPath, NodeKind, Status};

/// What a retry of this run does, by its [effective](crate::checkpoint::effective) events. `None` when the run has not
/// ended, or no stage failed in it.
pub fn retry_plan(events: &[&Event]) -> Option<RetryPoint> {
    let mut planner = Planner::read(events);
    let end = events.iter().rev().find(|event| !event.entry.body.is_of_compaction())?;
    match &end.entry.body {
        // A sub-workflow whose stage was ended: it goes on where it was.
        EventBody::RunCanceled { .. } => return Some(planner.finish()),
        EventBody::RunCompleted { .. } | EventBody::RunFailed { .. } => {}
        _ => return None,
    }
    let causes = end.entry.body.causes();
    for cause in causes {
        let line = cause.branch.clone().unwrap_or_default();
        planner.stage(&Name { line, node: Arc::clone(&cause.node), visit: cause.visit });
    }
    if causes.is_empty() {
        if !matches!(end.entry.body, EventBody::RunFailed { .. }) {
            return None;
        }
        if planner.has_open_stage() {
            // The run was ended from outside: it goes on where it was.
            return Some(planner.finish());
        }
        let last = planner.last_end("")?;
        planner.stage(&last);
    }
    Some(planner.finish()).filter(|point| !point.lines.is_empty())
}

/// A stage.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    line: Arc<str>,
    node: Arc<str>,
    visit: u32,
}

/// What the log has of a stage.
struct Found {
    handler: NodeKind,
    /// Its start.
    started: u64,
    /// The start of its last attempt.
    attempt: u64,
}

/// A fan-out of the log.
struct FanOutFound {
    line: Arc<str>,
    started: u64,
    branches: Vec<Arc<str>>,
}

/// How a branch ended.
struct BranchFound {
    seq: u64,
    status: Status,
    canceled: bool,
}

#[derive(Default)]
struct Planner {
    stages: BTreeMap<Name, Found>,
    /// The stages that ended, the last one last, by line.
    ends: BTreeMap<Arc<str>, Vec<Name>>,
    /// Where each branch began.
    begun: BTreeMap<Arc<str>, u64>,
    branch_ends: BTreeMap<Arc<str>, BranchFound>,
    /// By the paths of their branches.
    fan_outs: BTreeMap<Arc<str>, FanOutFound>,
    /// The last fan-out of each stage.
    of_stage: BTreeMap<Name, Arc<str>>,
    lines: BTreeMap<Arc<str>, u64>,
    opened: BTreeSet<Arc<str>>,
    /// Stages that failed, with the last event that stays of their lines.
    failed: BTreeMap<Name, u64>,
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
            EventBody::BranchStarted {} => drop(self.begun.insert(Arc::clone(&line), seq)),
            EventBody::BranchCompleted { status, canceled, .. } => {
                let end = BranchFound { seq, status: *status, canceled: *canceled };
                self.branch_ends.insert(Arc::clone(&line), end);
            }
            _ => {}
        }
        let Some((node, visit)) = entry.node_id.clone().zip(entry.visit) else { return };
        let name = Name { line, node, visit };
        match &entry.body {
            EventBody::StageStarted { handler, .. } => {
                let found = Found { handler: *handler, started: seq, attempt: seq };
                self.stages.insert(name, found);
            }
            EventBody::StageRetrying { .. } => {
                if let Some(found) = self.stages.get_mut(&name) {
                    found.attempt = seq;
                }
                self.of_stage.remove(&name);
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
                self.fan_outs
                    .insert(Arc::clone(&path), FanOutFound { line, started: seq, branches });
                self.of_stage.insert(name, path);
            }
            _ => {}
        }
    }

    fn has_open_stage(&self) -> bool {
        let ended = |name: &Name| self.ends.get(&name.line).is_some_and(|ends| ends.contains(name));
        let is_open = |name: &Name| name.line.is_empty() && !ended(name);
        self.stages.keys().any(is_open)
    }

    fn last_end(&self, line: &str) -> Option<Name> {
        let ends = self.ends.get(line)?.iter().rev();
        let works = |name: &&Name| {
            self.stages.get(*name).is_some_and(|found| found.handler != NodeKind::Conditional)
        };
        ends.into_iter().find(works).cloned()
    }

    /// A stage that failed: it runs again.
    fn stage(&mut self, name: &Name) {
        let Some(found) = self.stages.get(name) else { return };
        let before = found.started.saturating_sub(1);
        match found.handler {
            NodeKind::Parallel => match self.of_stage.get(name).cloned() {
                Some(path) => self.open(&path),
                // It could not begin.
                None => self.fail(name, before),
            },
            NodeKind::ManagerLoop => {
                let attempt = found.attempt;
                self.fail(name, attempt);
            }
            _ => self.fail(name, before),
        }
    }

    fn fail(&mut self, name: &Name, last: u64) {
        self.failed.insert(name.clone(), last);
        self.cut(&name.line, last);
    }

    /// The events of a line after this one are taken back, and so is the join that it came to.
    fn cut(&mut self, line: &Arc<str>, last: u64) {
        let kept = self.lines.entry(Arc::clone(line)).or_insert(last);
        *kept = last.min(*kept);
        if let Some(path) = BranchPath::new(line).fan_out_path() {
            self.open(path);
        }
    }

    /// The branches of a fan-out that failed, or that were canceled because of others, go on.
    fn open(&mut self, path: &str) {
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
                    self.stage(&name);
                } else {
                    let begun = self.begun.get(&branch).copied();
                    self.cut(&branch, begun.unwrap_or(last));
                }
            }
        }
    }

    fn finish(self) -> RetryPoint {
        let Self { lines, fan_outs, failed, .. } = self;
        // Fan-outs of a stage that runs again begin again.
        let begins_again = |(_, it): &(&Arc<str>, &FanOutFound)| {
            lines.get(&it.line).is_some_and(|last| it.started > *last)
        };
        let fan_outs = fan_outs.iter().filter(begins_again).map(|(path, _)| Arc::clone(path));
        let fan_outs = fan_outs.collect();
        let point = RetryPoint { lines, fan_outs, stages: Vec::new() };
        // Other failed stages of a line follow the first one.
        let is_first = |(name, last): &(&Name, &u64)| {
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
