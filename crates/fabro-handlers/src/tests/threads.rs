use super::*;

/// A script in which every node says its name and the number of its turn.
fn named(nodes: &[&str]) -> String {
    let turns = |node: &str| -> Value {
        (1..4).map(|turn| json!({"text": format!("{node}{turn}")})).collect()
    };
    let lists: Vec<_> = nodes.iter().map(|node| (*node, turns(node))).collect();
    object(&lists).to_string()
}

#[test]
fn a_thread_is_one_conversation() {
    let source = r"digraph {
        start; exit; node [shape=tab, fidelity=full, thread_id=impl]
        start -> plan -> implement -> other -> review -> exit
        plan [prompt=Plan]; implement [prompt=Implement]; review [prompt=Review]
        other [prompt=Other, thread_id=else]
    }";
    let model = named(&["plan", "implement", "review", "other"]);
    insta::assert_snapshot!(check(source, &model, &["run succeeded"]).asked(), @r"
    plan: > Plan
    implement: > Plan < plan1 > Implement
    other: > Other
    review: > Plan < plan1 > Implement < implement1 > Review
    ");
}

#[test]
fn a_nodes_own_thread_is_its_id_and_the_edge_goes_first() {
    let source = r#"digraph {
        start; exit; node [shape=tab]
        start -> a -> b; b -> a [condition="internal.node_visit_count < 2"]
        b -> c [fidelity=full, thread_id=a]; c -> exit
        a [prompt=A, fidelity=full]; b [prompt=B, fidelity=truncate]; c [prompt=C]
    }"#;
    insta::assert_snapshot!(check(source, &named(&["a", "b", "c"]), &["run succeeded"]).asked(), @r"
    a: > A
    b: > B
    a: > A < a1 > A
    b: > B
    c: > A < a1 > A < a2 > C
    ");
}

#[test]
fn a_compact_stage_in_between_is_not_part_of_the_thread() {
    let source = r"digraph {
        start; exit; node [shape=tab]
        graph [default_fidelity=full, default_thread=all]
        start -> a -> b -> c -> exit
        a [prompt=A]; b [prompt=B, fidelity=truncate, thread_id=all]; c [prompt=C]
    }";
    insta::assert_snapshot!(check(source, &named(&["a", "b", "c"]), &["run succeeded"]).asked(), @r"
    a: > A
    b: > B
    c: > A < a1 > C
    ");
}

#[test]
fn branches_have_private_copies() {
    let source = r"digraph {
        start; exit; node [shape=tab]
        graph [default_fidelity=full, default_thread=all]
        start -> a -> fork; fork [shape=component, max_parallel=1]
        fork -> x; fork -> y; x -> x2 -> join; y -> join -> c -> exit
        join [shape=tripleoctagon]
        a [prompt=A]; x [prompt=X]; x2 [prompt=X2]; y [prompt=Y]; c [prompt=C]
    }";
    let model = named(&["a", "x", "x2", "y", "c"]);
    insta::assert_snapshot!(check(source, &model, &["run succeeded"]).asked(), @r"
    a: > A
    x: > A < a1 > X
    x2: > A < a1 > X < x1 > X2
    y: > A < a1 > Y
    c: > A < a1 > C
    ");
}

#[test]
fn failed_turns_are_no_part_of_the_conversation() {
    let source = r"digraph {
        start; exit; node [shape=tab, max_retries=1]
        graph [default_fidelity=full, default_thread=all]
        start -> a -> b -> exit
        a [prompt=A]; b [prompt=B]
    }";
    let model = r#"{"a": [{"error": "overloaded"}, {"text": "a2"}], "b": [{"text": "b1"}]}"#;
    insta::assert_snapshot!(check(source, model, &["run succeeded"]).asked(), @r"
    a: > A
    a: > A
    b: > A < a2 > B
    ");
}
