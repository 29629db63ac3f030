//! Compares the engine with a reference model on generated workflows: both must run the same stages
//! and end the same way. Set `FABRO_MODEL_GRAPHS=1000000` to compare more workflows.

mod generate;
mod graph;
mod model;

use std::collections::BTreeSet;

use fabro_events::EventBody;

use self::graph::{Class, Graph, Kind, Reply as ModelReply};
use self::model::{End, Story};
use super::*;

const GRAPHS: u64 = 10_000;

fn replies(graph: &Graph) -> Vec<(String, Vec<Reply>)> {
    let stages = graph.nodes.iter().enumerate().filter(|(_, node)| node.kind == Kind::Stage);
    let with_replies = stages.filter(|(_, node)| !node.replies.is_empty());
    let reply = |it: &ModelReply| Reply::End(Box::new(outcome(graph, it)));
    let replies = with_replies
        .map(|(index, node)| (graph.id(index), node.replies.iter().map(reply).collect()));
    replies.collect()
}

fn outcome(graph: &Graph, reply: &ModelReply) -> Outcome {
    let outcome = match reply.failure {
        None => Outcome::succeeded(),
        Some((class, stated)) => {
            let (class, message) = match class {
                Class::Deterministic => (FailureClass::Deterministic, "wrong"),
                Class::Transient => (FailureClass::TransientInfra, "overloaded"),
            };
            Outcome::failed(Failure { stated, ..Failure::new(class, message) })
        }
    };
    let outcome = Outcome {
        preferred_label: reply.label.map(str::to_owned),
        suggested_next_ids: reply.suggested.iter().map(|node| graph.id(*node)).collect(),
        ..outcome
    };
    match reply.flag {
        Some(flag) => outcome.with_update("flag", flag),
        None => outcome,
    }
}

/// Runs the engine.
fn engine(graph: &Graph) -> Story {
    let replies = replies(graph);
    let replies: Vec<_> =
        replies.iter().map(|(node, list)| (node.as_str(), list.clone())).collect();
    let bench = Bench::new(&graph.source(), &replies);
    bench.drive(Input::Start);
    let runs: BTreeSet<String> = graph.nodes_that_run().map(|node| graph.id(node)).collect();
    let mut stages = Vec::new();
    let mut end = None;
    for event in bench.events() {
        let node = event.entry.node_id.as_deref().unwrap_or_default().to_owned();
        match &event.entry.body {
            EventBody::StageCompleted(done) | EventBody::StageFailed(done)
                if runs.contains(&node) =>
            {
                stages.push(format!("{node} {}", done.outcome.status.as_str()));
            }
            EventBody::RunCompleted { unhandled, .. } => {
                let unhandled: BTreeSet<String> =
                    unhandled.iter().map(|stage| stage.node.to_string()).collect();
                end = Some(End::Completed { unhandled });
            }
            EventBody::RunFailed { failure, .. } => end = Some(End::Failed(failure.class.as_str())),
            _ => {}
        }
    }
    Story { stages, end: end.expect("the run ends") }
}

/// Describes the difference between engine and model, if any.
fn difference(seed: u64) -> Option<String> {
    let graph = generate::graph(seed);
    let (engine, model) = (engine(&graph), model::run(&graph));
    let (source, replies) = (graph.source(), replies_text(&graph));
    (engine != model).then(|| {
        format!("seed {seed}: {source}\n{replies:?}\nengine {engine:#?}\nmodel {model:#?}")
    })
}

fn replies_text(graph: &Graph) -> Vec<(String, &[ModelReply])> {
    let nodes = graph.nodes.iter().enumerate();
    nodes.map(|(index, node)| (graph.id(index), node.replies.as_slice())).collect()
}

#[test]
fn the_engine_agrees_with_the_reference_model() {
    let count = std::env::var("FABRO_MODEL_GRAPHS").ok().and_then(|text| text.parse().ok());
    let seeds = 0..count.unwrap_or(GRAPHS);
    let differences: Vec<String> = seeds.filter_map(difference).collect();
    let shown = differences.iter().min_by_key(|text| text.len()).cloned().unwrap_or_default();
    assert!(differences.is_empty(), "{} differ; the smallest:\n{shown}", differences.len());
}
