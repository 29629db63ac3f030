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

/// Runs to a gate between two stages of a thread, then resumes with the answer.
fn resumed(scene: &Scene) -> String {
    scene.drive().unwrap();
    let message = answer("ask", "Y");
    now(fabro_store::Inbox::post(&*scene.store, scene.run_id(), &message)).unwrap();
    let story = scene.story();
    let warnings = story.lines().filter(|line| line.contains("warns")).map(str::trim);
    scene.asked() + &warnings.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_resume_drops_the_thread_with_a_warning_unless_resume_threads_is_set() {
    let source = r"digraph {
        start; exit; node [shape=tab]
        graph [default_fidelity=full, default_thread=all]
        start -> a -> ask; ask [shape=hexagon]; ask -> b [label=Yes]; b -> c -> exit
        a [prompt=A]; b [prompt=B]; c [prompt=C]
    }";
    let scene = || Scene::new(source).model(&named(&["a", "b", "c"]));
    let left = resumed(&scene());
    assert!(
        left.contains("b warns (thread) the first stage after a resume sees summary:high"),
        "{left}"
    );
    assert!(left.contains("\nb: > B\n") && left.contains("\nc: > A < a1 > "), "{left}");
    let kept = resumed(&scene().resuming_threads());
    assert!(!kept.contains("warns") && kept.contains("\nb: > A < a1 > B\n"), "{kept}");
    // Without an earlier stage of its thread, nothing is lost.
    let alone = source.replace("b [prompt=B]", "b [prompt=B, thread_id=b]");
    let alone = resumed(&Scene::new(&alone).model(&named(&["a", "b", "c"])));
    assert!(!alone.contains("warns"), "{alone}");
}
