//! The keys of the context, after every stage.

use super::*;

const SOURCE: &str = r#"digraph {
    graph [goal="Ship it", owner="ann", default_fidelity="summary:high"]
    start -> plan -> test -> gate -> fork; fork -> {a; b} -> join -> again -> end
    plan  [prompt="Plan", max_retries=2]
    test  [shape=parallelogram, script="test"]
    gate  [shape=hexagon]; gate -> plan [label="[R] Revise"]; gate -> fork [label="[A] Accept it"]
    fork  [shape=component, max_parallel=1]
    a     [shape=parallelogram, script="a"]; b [shape=tab, prompt="B"]
    join  [shape=tripleoctagon]
    again [shape=diamond]; again -> plan [condition="internal.node_visit_count < 2"]; again -> end
    end   [shape=Msquare]
}"#;

#[test]
fn every_key_of_the_engine_and_its_handlers() {
    let long = "word ".repeat(100);
    let model = json!({
        "plan": [
            {"error": "overloaded", "retry_after_s": 0},
            {"text": format!("{long}\n{{\"context_updates\": {{\"mine\": 7}}}}")},
            {"text": "second plan"},
        ],
        "b": [{"text": "from b"}],
    });
    let exec =
        FakeExec::new().with("test", Exit::Code(3), "41 passed").with("a", Exit::Code(0), "from a");
    let source = SOURCE.replace("gate -> fork;", "gate;").replace("again -> end\n", "again\n");
    let scene =
        Scene::new(&source).exec(exec).model(&model.to_string()).answers(r#"{"gate": ["A", "A"]}"#);
    let story = scene.story();
    let after = |node: &str, visit: u32, key: &str| {
        let events = scene.events();
        let end = events.iter().position(|event| {
            let body = &event.entry.body;
            let is_end = matches!(body, EventBody::StageCompleted(_) | EventBody::StageFailed(_));
            let at = (event.entry.node_id.as_deref(), event.entry.visit);
            is_end && at == (Some(node), Some(visit))
        });
        let end = end.unwrap_or_else(|| panic!("{node}@{visit} did not end:\n{story}"));
        let state = RunState::replay(scene.run_id, &events[..=end]);
        let value = state.main().unwrap().context.get(key).cloned();
        value.map(|value| match BlobRef::from_value(&value) {
            Some(blob) => fabro_engine::read_blob(&*scene.store, &blob).unwrap(),
            None => value,
        })
    };
    let work_dir = scene.value("internal.work_dir");
    assert!(work_dir.as_str().is_some_and(|dir| !dir.is_empty()), "{work_dir}");
    for (node, visit, key, expect) in [
        ("start", 1, "graph.goal", Some(json!("Ship it"))),
        ("start", 1, "graph.owner", Some(json!("ann"))),
        ("start", 1, "graph.default_fidelity", Some(json!("summary:high"))),
        ("start", 1, "internal.run_id", Some(json!(scene.run_id.to_string()))),
        ("start", 1, "internal.retry_count.plan", None),
        ("start", 1, "outcome", Some(json!("succeeded"))),
        ("plan", 1, "last_stage", Some(json!("plan"))),
        ("plan", 1, "last_response", Some(json!("word ".repeat(40)))),
        ("plan", 1, "mine", Some(json!(7))),
        ("plan", 1, "current_node", Some(json!("plan"))),
        ("plan", 1, "internal.fidelity", Some(json!("summary:high"))),
        ("plan", 1, "internal.thread_id", Some(Value::Null)),
        ("plan", 1, "internal.node_visit_count", Some(json!(1))),
        ("plan", 1, "internal.retry_count.plan", Some(json!(1))),
        ("plan", 1, "failure_class", Some(json!(""))),
        ("test", 1, "command.output", Some(json!("41 passed"))),
        ("test", 1, "command.stderr", Some(json!(""))),
        ("test", 1, "command.exit_code", Some(json!(3))),
        ("test", 1, "outcome", Some(json!("failed"))),
        ("test", 1, "failure_class", Some(json!("deterministic"))),
        ("test", 1, "last_stage", Some(json!("test"))),
        ("test", 1, "internal.retry_count.test", Some(json!(0))),
        ("test", 1, "internal.retry_count.plan", Some(json!(1))),
        ("gate", 1, "human.gate.selected", Some(json!("A"))),
        ("gate", 1, "preferred_label", Some(json!("Accept it"))),
        ("join", 1, "parallel.fan_in.best_id", Some(json!("a"))),
        ("join", 1, "parallel.fan_in.best_outcome", Some(json!("succeeded"))),
        ("join", 1, "parallel.fan_in.best_head_sha", Some(Value::Null)),
        ("join", 1, "preferred_label", Some(json!(""))),
        ("join", 1, "internal.retry_count.join", Some(json!(0))),
        ("again", 1, "last_stage", Some(json!("join"))),
        ("plan", 2, "internal.node_visit_count", Some(json!(2))),
        ("plan", 2, "internal.retry_count.plan", Some(json!(0))),
        ("plan", 2, "response.plan", Some(json!("second plan"))),
        ("plan", 2, "last_response", Some(json!("second plan"))),
    ] {
        assert_eq!(after(node, visit, key), expect, "{key} after {node}@{visit}:\n{story}");
    }
    let signature = after("test", 1, "failure_signature").unwrap();
    assert!(signature.as_str().is_some_and(|text| text.contains("test")), "{signature}");
}
