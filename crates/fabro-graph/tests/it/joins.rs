use fabro_graph::{Join, Meeting, NodeIx, Workflow, join, meeting};

#[track_caller]
fn check(edges: &str, expect: &str) {
    let source = format!("digraph {{ m [shape=tripleoctagon]; fork [shape=component]; {edges} }}");
    let workflow = Workflow::from_source("x", &source).unwrap();
    let fork = workflow.find("fork").unwrap();
    let Meeting { join, others } = meeting(&workflow, fork, &mut { usize::MAX });
    let id = |node: NodeIx| workflow.node(node).id.to_string();
    let mut found = match join {
        Join::At(node) => id(node),
        other => format!("{other:?}"),
    };
    for other in others {
        found.push_str(&format!(" also {}", id(other)));
    }
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
    // The node after a success is preferred to the node after a failure; the ids decide last.
    let ok = "[condition=\"outcome = succeeded\"]";
    check(&format!("fork -> {{a; b}}; a -> z {ok}; a -> c; b -> z {ok}; b -> c"), "z");
    check("fork -> {a; b}; a -> {z; c}; b -> {z; c}; c -> z; a -> c; c [shape=box]", "c also z");
    let failed = "[condition=\"outcome!=success\"]";
    check(&format!("fork -> {{a; b}}; a -> c {failed}; a -> z; b -> c {failed}; b -> z"), "z");
    // The way back through the fan-out is none.
    check("fork -> {a; b}; a -> x -> y -> z -> m; b -> m -> fork", "m");
    check("fork -> {a; b}; a -> c; b -> d", "Nowhere");
    // Edges to one node are one place to begin.
    check("fork -> a; fork -> a; a -> m", "a");
    // Nested fan-outs have ends of their own.
    check("fork -> {a; inner}; inner -> {x; y} -> n -> m; a -> m", "m");
}

#[test]
fn the_path_of_a_list_ends_at_the_fan_in_that_is_its_own() {
    let list = |edges: &str| {
        format!(
            "fork [for_each=a]; inner [shape=component, for_each=b]; both [shape=component]; n [shape=tripleoctagon]; {edges}"
        )
    };
    check(&list("fork -> a -> b -> m -> n -> exit"), "m");
    check(&list("fork -> a -> m; a -> b -> n -> exit"), "m");
    // Of a list in a list the inner one ends first.
    check(&list("fork -> inner -> a -> n -> b -> m -> exit"), "m");
    // A fan-out on the way has an end of its own, be it a fan-in or not.
    check(&list("fork -> both -> {a; b} -> n -> c -> m -> exit"), "m");
    check(&list("fork -> both -> {a; b} -> c -> m -> n -> exit"), "m");
    // Two may share one.
    check(&list("fork -> inner -> a -> m -> exit"), "m");
    check(&list("fork -> both -> {a; b} -> m -> exit"), "m");
    check(&list("fork -> a -> exit"), "Nowhere");
    check(&list("fork -> a -> fork"), "Nowhere");
    check(&list("fork -> inner -> fork"), "Nowhere");
}

#[test]
fn a_search_can_be_bounded() {
    let source = "digraph { fork -> {a; b}; a -> m; b -> m }";
    let workflow = Workflow::from_source("x", source).unwrap();
    let fork = workflow.find("fork").unwrap();
    assert_eq!(join(&workflow, fork, &mut { 1 }), Join::GaveUp);
}
