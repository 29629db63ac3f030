//! How stages are called where a person or another program names one.

use fabro_types::BranchPath;

use crate::{Entry, Event, EventBody};

/// How a stage is called: `NODE`, which is its last visit, `NODE@VISIT`, or `BRANCH/NODE@VISIT`,
/// for branches of one fan-out may make the same visit of a node. Of the branch the end is enough, as
/// in `work[3]/check@1`; and of the branches of lists the element, as in `check[3]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageName<'a> {
    /// The branch, as events name it, or the end of that; `None` for any line.
    pub branch: Option<BranchPath<'a>>,
    /// The node.
    pub node: &'a str,
    /// The last elements of lists that the stage is for, as `[3]`; empty for any.
    pub elements: &'a str,
    /// Which visit of it, from 1; `None` for the last.
    pub visit: Option<u32>,
}

impl<'a> StageName<'a> {
    /// Takes a name apart.
    pub fn parse(text: &'a str) -> Self {
        let (branch, stage) = BranchPath::split_stage(text);
        let (node, visit) = split(stage);
        let node = node.unwrap_or_default();
        let (node, elements) = node.split_at(node.find('[').unwrap_or(node.len()));
        Self { branch, node, elements, visit }
    }

    /// Whether the entry is about a stage of this name.
    pub fn is_of(&self, entry: &Entry) -> bool {
        let path = BranchPath::new(entry.branch.as_deref().unwrap_or_default());
        entry.node_id.as_deref() == Some(self.node)
            && self.visit.is_none_or(|visit| entry.visit == Some(visit))
            && self.branch.is_none_or(|branch| path.is_called(branch))
            && (self.elements.is_empty() || path.elements().ends_with(self.elements))
    }
}

/// The stages that a name means, in full, in the order in which they started: more than one where
/// several branches made that visit of the node.
pub fn meant(events: &[&Event], name: StageName<'_>) -> Vec<String> {
    let started = events.iter().map(|event| &event.entry);
    let started = started.filter(|it| matches!(it.body, EventBody::StageStarted { .. }));
    let Some(last) = started.clone().rfind(|entry| name.is_of(entry)) else { return Vec::new() };
    let name = StageName { visit: last.visit, ..name };
    let full = |entry: &Entry| {
        let branch = BranchPath::new(entry.branch.as_deref().unwrap_or_default());
        branch.stage(name.node, entry.visit.unwrap_or(1))
    };
    started.filter(|entry| name.is_of(entry)).map(full).collect()
}

/// Splits `NODE@VISIT`; the visit is absent when there is none or it is no number.
pub fn split(stage: &str) -> (Option<&str>, Option<u32>) {
    match stage.rsplit_once('@') {
        Some((node, visit)) if visit.parse::<u32>().is_ok() => (Some(node), visit.parse().ok()),
        _ => (Some(stage), None),
    }
}
