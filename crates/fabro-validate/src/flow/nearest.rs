use std::cell::Cell;
use std::collections::{HashSet, VecDeque};

use fabro_graph::{NodeIx, Workflow};

use super::graph::{Flow, StepKind};
use super::writer::Writer;

/// How many steps the searches for nearest writers may take in one workflow; after that a finding
/// names none.
const MAX_SEARCH: usize = 200_000;

/// Looks for the writer that is nearest to a place which it cannot help.
pub(crate) struct Nearest<'a> {
    workflow: &'a Workflow,
    flow: &'a Flow,
    left: Cell<usize>,
}

/// A writer, and why it cannot help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It is inside a fan-out.
    InBranch { writer: NodeIx, fan_out: NodeIx },
    /// A `loop_restart` edge lies between.
    BeforeRestart { writer: NodeIx },
    /// It only comes later.
    Later { writer: NodeIx },
    /// It is on another path.
    Elsewhere { writer: NodeIx },
}

impl<'a> Nearest<'a> {
    pub(crate) fn new(workflow: &'a Workflow, flow: &'a Flow) -> Self {
        Self { workflow, flow, left: Cell::new(MAX_SEARCH) }
    }

    /// Before `at` first, then behind it, then anywhere.
    pub(crate) fn find(&self, writer: Writer, at: usize) -> Option<Found> {
        let later = |node| Found::Later { writer: NodeIx::new(node) };
        let elsewhere = |node| Found::Elsewhere { writer: NodeIx::new(node) };
        self.before(writer, at)
            .or_else(|| self.behind(writer, at).map(later))
            .or_else(|| self.anywhere(writer).map(elsewhere))
    }

    fn before(&self, writer: Writer, at: usize) -> Option<Found> {
        let mut seen = HashSet::from([at]);
        let mut queue: VecDeque<(usize, Option<StepKind>)> = VecDeque::from([(at, None)]);
        while let Some((node, through)) = queue.pop_front() {
            for step in &self.flow.previous[node] {
                self.count()?;
                let through = through.or(Some(step.kind).filter(|kind| !kind.carries()));
                if self.is(writer, step.to)
                    && let Some(kind) = through
                {
                    let writer = NodeIx::new(step.to);
                    return Some(match kind {
                        StepKind::BranchEnd(fan_out) => Found::InBranch { writer, fan_out },
                        StepKind::Plain | StepKind::Restart => Found::BeforeRestart { writer },
                    });
                }
                if seen.insert(step.to) {
                    queue.push_back((step.to, through));
                }
            }
        }
        None
    }

    fn behind(&self, writer: Writer, at: usize) -> Option<usize> {
        let mut seen = HashSet::from([at]);
        let mut queue = VecDeque::from([at]);
        while let Some(node) = queue.pop_front() {
            self.count()?;
            if self.is(writer, node) {
                return Some(node);
            }
            let steps = self.flow.next[node].iter().map(|step| step.to);
            queue.extend(steps.filter(|to| seen.insert(*to)));
        }
        None
    }

    fn anywhere(&self, writer: Writer) -> Option<usize> {
        (0..self.workflow.nodes().len())
            .find(|node| self.count().is_some() && writer.is(self.workflow, *node))
    }

    /// The node behind the last stands for the goal gates, and writes nothing.
    fn is(&self, writer: Writer, node: usize) -> bool {
        node < self.workflow.nodes().len() && writer.is(self.workflow, node)
    }

    fn count(&self) -> Option<()> {
        self.left.set(self.left.get().checked_sub(1)?);
        Some(())
    }
}
