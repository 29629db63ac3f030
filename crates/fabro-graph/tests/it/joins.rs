use fabro_graph::{Join, Workflow, join};

#[track_caller]
fn check(edges: &str, expect: &str) {
    let source = format!("digraph {{ m [shape=tripleoctagon]; fork [shape=component]; {edges} }}");
    let workflow = Workflow::from_source("x", &source).unwrap();
    let fork = workflow.find("fork").unwrap();
    let found = match join(&workflow, fork, &mut { usize::MAX }) {
        Join::At(node) => workflow.node(node).id.to_string(),
        other => format!("{other:?}"),
    };
    assert_eq!(found, expect, "{edges}");
}

#[test]
fn branches_meet_at_the_first_node_that_all_can_reach() {
    check("fork -> {a; b}; a -> m; b -> m; m -> exit", "m");
    check("fork -> {a; b}; a -> x -> y -> end; b -> end", "end");
    // A branch may lead straight to the join.
    check("fork -> {a; m}; a -> m", "m");
    // A fan-in goes before another node that is as near.
    check("fork -> {a; b}; a -> {c; m}; b -> {c; m}", "m");
    // The way back through the fan-out is none.
    check("fork -> {a; b}; a -> x -> y -> z -> m; b -> m -> fork", "m");
    check("fork -> {a; b}; a -> c; b -> d", "Nowhere");
    // Edges to one node are one place to begin.
    check("fork -> a; fork -> a; a -> m", "a");
    // Nested fan-outs have ends of their own.
    check("fork -> {a; inner}; inner -> {x; y} -> n -> m; a -> m", "m");
}

#[test]
fn a_search_can_be_bounded() {
    let source = "digraph { fork -> {a; b}; a -> m; b -> m }";
    let workflow = Workflow::from_source("x", source).unwrap();
    let fork = workflow.find("fork").unwrap();
    assert_eq!(join(&workflow, fork, &mut { 1 }), Join::GaveUp);
}
