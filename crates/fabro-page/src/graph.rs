//! What a run did, drawn into its workflow.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use askama::Template;
use fabro_engine::checkpoint;
use fabro_events::{Event, EventBody};
use fabro_graph::Workflow;
use fabro_inspect::{EdgeTaken, StageRow};
use fabro_picture::{Marks, NodeMark, NodeResult, Picture, outline};
use fabro_types::{RunStatus, Status};

use crate::Links;
use crate::texts::render;

/// What a run did at each node and edge: its rows, and how often it took each edge.
pub fn marks<'e>(
    rows: &[StageRow],
    edges: impl IntoIterator<Item = (&'e EdgeTaken, &'e u64)>,
) -> Marks {
    let mut nodes: BTreeMap<&str, NodeMark> = BTreeMap::new();
    for row in rows {
        let result = result(row);
        let mark = nodes.entry(&row.node);
        let mark = mark.or_insert(NodeMark { result, visits: 0, duration_ms: 0 });
        mark.result = result;
        mark.visits += 1;
        mark.duration_ms += row.duration_ms;
    }
    let mut marks = Marks::default();
    marks.nodes.extend(nodes.into_iter().map(|(node, mark)| (node.to_owned(), mark)));
    let edge = |((from, to, label), count): (&EdgeTaken, &u64)| {
        let label = label.as_deref().map(str::to_owned);
        ((from.to_string(), to.to_string(), label), u32::try_from(*count).unwrap_or(u32::MAX))
    };
    marks.edges.extend(edges.into_iter().map(edge));
    marks
}

/// How often the events that count took each edge.
pub fn edges(events: &[Event]) -> BTreeMap<EdgeTaken, u64> {
    let mut edges: BTreeMap<EdgeTaken, u64> = BTreeMap::new();
    for event in checkpoint::effective(events) {
        if let EventBody::EdgeSelected(choice) = &event.entry.body
            && let Some(from) = &event.entry.node_id
        {
            let edge = (Arc::clone(from), Arc::clone(&choice.to), choice.label.clone());
            *edges.entry(edge).or_default() += 1;
        }
    }
    edges
}

/// How a stage ended, as far as a picture shows it.
pub(crate) fn result(row: &StageRow) -> NodeResult {
    match Status::parse_loosely(row.status) {
        Some(Status::Succeeded) => NodeResult::Succeeded,
        Some(Status::PartiallySucceeded) => NodeResult::PartiallySucceeded,
        Some(Status::Failed) => NodeResult::Failed,
        None if row.ended_at.is_none() && row.status == RunStatus::Running.as_str() => {
            NodeResult::Running
        }
        None if row.ended_at.is_none() => NodeResult::Waiting,
        Some(Status::Skipped) | None => NodeResult::Skipped,
    }
}

#[derive(Template)]
#[template(path = "graph.html")]
struct Graph<'a> {
    picture: Option<String>,
    outline: &'a str,
}

/// The picture of the workflow with what the run did. Nodes link to their last visit. A workflow that is
/// too large has no picture, and is an outline.
pub fn graph<W: Deref<Target = Workflow>>(
    workflow: &Workflow,
    picture: Option<&Picture<W>>,
    rows: &[StageRow],
    marks: &Marks,
    links: &Links,
) -> String {
    let link = |node: &str| {
        let last = rows.iter().rfind(|row| &*row.node == node)?;
        Some(links.stage(&last.name()))
    };
    let picture = picture.map(|it| it.fragment(Some(marks), &link));
    let outline =
        if picture.is_none() { outline(workflow, Some(marks), 110) } else { String::new() };
    render(&Graph { picture, outline: &outline })
}
