//! What a run did, drawn into its workflow.

use askama::Template;
use fabro_engine::checkpoint;
use fabro_events::{Event, EventBody};
use fabro_graph::Workflow;
use fabro_inspect::StageRow;
use fabro_picture::{Marks, NodeMark, NodeResult, outline, svg_fragment};
use fabro_types::Status;

use crate::Links;
use crate::texts::render;

/// What a run did at each node and edge: its rows, and all its events.
pub fn marks(rows: &[StageRow], events: &[Event]) -> Marks {
    let mut marks = Marks::default();
    for row in rows {
        let result = result(row);
        let mark = marks.nodes.entry(row.node.to_string());
        let mark = mark.or_insert(NodeMark { result, visits: 0, duration_ms: 0 });
        mark.result = result;
        mark.visits += 1;
        mark.duration_ms += row.duration_ms;
    }
    for event in checkpoint::effective(events) {
        if let EventBody::EdgeSelected(choice) = &event.entry.body
            && let Some(from) = &event.entry.node_id
        {
            let label = choice.label.as_deref().map(str::to_owned);
            *marks.edges.entry((from.to_string(), choice.to.to_string(), label)).or_default() += 1;
        }
    }
    marks
}

/// How a stage ended, as far as a picture shows it.
pub(crate) fn result(row: &StageRow) -> NodeResult {
    match Status::parse_loosely(row.status) {
        Some(Status::Succeeded) => NodeResult::Succeeded,
        Some(Status::PartiallySucceeded) => NodeResult::PartiallySucceeded,
        Some(Status::Failed) => NodeResult::Failed,
        None if row.ended_at.is_none() => NodeResult::Running,
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
/// too large for a picture is an outline.
pub fn graph(workflow: &Workflow, rows: &[StageRow], marks: &Marks, links: &Links) -> String {
    let link = |node: &str| {
        let last = rows.iter().rfind(|row| &*row.node == node)?;
        Some(links.stage(&last.name()))
    };
    let picture = svg_fragment(workflow, Some(marks), &link).ok();
    let outline =
        if picture.is_none() { outline(workflow, Some(marks), 110) } else { String::new() };
    render(&Graph { picture, outline: &outline })
}
