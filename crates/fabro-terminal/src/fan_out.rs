use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use fabro_events::{Event, EventBody};
use fabro_types::{BranchPath, Status};

use crate::line::{self, Line};
use crate::paint::Mark;

/// A fan-out whose branches are running.
#[derive(Debug)]
struct FanOut {
    /// Its name: `NODE`, or `NODE@VISIT` from the second visit.
    name: String,
    /// How many fan-outs and sub-workflows it is inside.
    depth: usize,
    /// How many branches it has.
    total: usize,
    /// How many of them have ended.
    done: usize,
    /// How many of those failed.
    failed: usize,
    /// How many of those were no longer needed.
    canceled: usize,
}

impl FanOut {
    /// `12/50 done, 1 failed`.
    fn count(&self) -> String {
        let mut text = format!("{}/{} done", self.done, self.total);
        for (count, word) in [(self.failed, "failed"), (self.canceled, "canceled")] {
            if count > 0 {
                let _ = write!(text, ", {count} {word}");
            }
        }
        text
    }
}

/// The running fan-outs of a run, by the branch they began on.
#[derive(Debug, Default)]
pub(crate) struct FanOuts(BTreeMap<Arc<str>, FanOut>);

impl FanOuts {
    /// How many branches of the fan-out that began on this branch are done.
    pub(crate) fn count(&self, branch: &str) -> Option<String> {
        self.0.get(branch).map(FanOut::count)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Reads an event of a run at this depth, and returns the line of a fan-out that has ended.
    pub(crate) fn take(&mut self, event: &Event, depth: usize) -> Option<Line> {
        let branch = event.entry.branch.as_deref().unwrap_or_default();
        match &event.entry.body {
            EventBody::ParallelStarted { branches, .. } => {
                let fan_out = FanOut {
                    name: line::name(event),
                    depth: line::depth(event) + depth,
                    total: branches.len(),
                    done: 0,
                    failed: 0,
                    canceled: 0,
                };
                self.0.insert(Arc::from(branch), fan_out);
            }
            EventBody::BranchCompleted { canceled, status, .. } => {
                let inside = format!("{branch}/");
                self.0.retain(|it, _| **it != *branch && !it.starts_with(&inside));
                let fan_out = self.0.get_mut(BranchPath::new(branch).parent().as_str())?;
                fan_out.done += 1;
                fan_out.canceled += usize::from(*canceled);
                fan_out.failed += usize::from(!canceled && *status == Status::Failed);
            }
            EventBody::ParallelCompleted { status } => {
                let fan_out = self.0.remove(branch)?;
                let mark = Mark::of(*status);
                let text = format!("{}: {}", fan_out.name, fan_out.count());
                return Some(Line { depth: fan_out.depth, mark, text });
            }
            _ => {}
        }
        None
    }
}
