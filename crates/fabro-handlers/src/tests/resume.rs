use super::*;

const LINE: &str = r"digraph {
    start; exit; node [shape=tab]
    graph [default_fidelity=full, default_thread=all]
    start -> a -> ask -> b -> c -> exit
    ask [shape=hexagon]
    a [prompt=A]; b [prompt=B]; c [prompt=C]
}";

#[test]
fn the_first_stage_after_a_resume_starts_without_its_conversation() {
    let model = r#"{"*": [{"text": "one"}, {"text": "two"}, {"text": "three"}]}"#;
    let scene = Scene::new(LINE).model(model);
    scene.drive().unwrap();
    now(fabro_store::Inbox::post(&*scene.store, scene.run_id(), &answer("ask", "b"))).unwrap();
    insta::assert_snapshot!(scene.story(), @r#"
    001 start@1 succeeded -> a (unconditional)
    002 a@1 succeeded -> ask (unconditional)
    ask asks "ask": [B] b
    paused: Human ["ask"]
    resumed
    ask is told B "b" None by inbox
    003 ask@1 succeeded -> b (suggested_next)
    b warns (thread) the first stage after a resume sees summary:high instead of fidelity=full; [run] resume_threads = true keeps the conversation of its thread
    004 b@1 succeeded -> c (unconditional)
    005 c@1 succeeded -> exit (unconditional)
    006 exit@1 succeeded
    run succeeded
    "#);
    insta::assert_snapshot!(scene.asked(), @r"
    a: > A
    b: > B
    c: > A < one > B < two > C
    ");
    insta::assert_snapshot!(scene.read("004-b@1/prompt.md"), @r"
    Goal: Ship it

    ## Completed stages

    ### a: success
    - Model: scripted, 0 tokens in / 0 out
    - Response:
      ```
      one
      ```

    ### ask: success
    - Question: ask
    - Answer: b
    - Suggested next: `b`

    ## Context
    - human.gate.label: b
    - human.gate.selected: B

    B
    ");
}

#[test]
fn retries_and_the_script_go_on_where_they_were() {
    let source = r"digraph { start -> p -> ask -> p; ask -> exit [label=done]; ask [shape=hexagon]; p [shape=tab, max_retries=2, fidelity=truncate] }";
    let model = r#"{"p": [{"error": "timeout"}, {"text": "first"}, {"text": "second"}]}"#;
    let scene = Scene::new(source).model(model);
    scene.drive().unwrap();
    now(fabro_store::Inbox::post(&*scene.store, scene.run_id(), &answer("ask", "p"))).unwrap();
    scene.drive().unwrap();
    assert_eq!(scene.value("response.p"), "second");
    assert_eq!(scene.value("internal.retry_count.p"), 0, "of the second visit");
}

/// A log cut after any commit, as by a driver that died, and resumed, comes to the same end.
#[test]
fn a_run_can_die_after_any_commit() {
    let source = r#"digraph {
        start -> c -> p; p [shape=tab, prompt="{{ context.command.output }}", max_retries=1]
        c [shape=parallelogram, script=c]; p -> ask; ask [shape=hexagon]
        ask -> p [label="Again"]; ask -> say [freeform=true]; ask -> fork [label="Go"]
        say [shape=parallelogram, script="echo {{ context.human.gate.text }}"]; say -> ask
        fork [shape=component]; fork -> {x; y} -> join; join [shape=tripleoctagon]
        x [shape=tab]; y [shape=parallelogram, script=c]
        join -> sub -> exit
        sub [shape=house, stack.child_workflow="child.fabro"]
    }"#;
    let model = r#"{
        "p": [{"error": "timeout"}, {"text": "{\"context_updates\": {\"a\": 1}}"}, {"text": "{\"context_updates\": {\"command.x\": 1, \"b\": 2}}"}],
        "*": [{"text": "other"}, {"text": "another"}]
    }"#;
    let scene = Scene::new(source)
        .model(model)
        .answers(r#"{"ask": ["again", "nearly", "go"]}"#)
        .file("child.fabro", "digraph { start -> look -> exit; look [shape=tab] }")
        .prints(&[("c", "out"), ("echo 'nearly'", "nearly")]);
    assert!(scene.story().ends_with("run succeeded\n"));
    let end = scene.state();
    let context = |state: &RunState| state.main().unwrap().context.to_json().to_string();
    let children = now(scene.store.list()).unwrap().into_iter().filter(|run| run.parent.is_some());
    let childs: Vec<_> = children.flat_map(|run| scene.beginnings(run.id)).collect();
    for log in scene.beginnings(scene.run_id()) {
        let last = &log[log.len() - 1].entry;
        let is_parent = last.node_id.as_deref() == Some("sub");
        let childs = childs.iter().filter(|_| is_parent).map(Some);
        for child in childs.chain([None]) {
            now(scene.store.delete(scene.run_id())).unwrap();
            now(scene.store.append(scene.run_id(), 0, &Batch::of(&log))).unwrap();
            if let Some(child) = child {
                now(scene.store.append(child[0].run_id, 0, &Batch::of(child))).unwrap();
            }
            scene.drive().unwrap();
            let again = scene.state();
            assert_eq!(again.phase, end.phase, "cut after {last:?}");
            assert_eq!(context(&again), context(&end), "cut after {last:?}");
            assert_eq!(again.usage, end.usage, "cut after {last:?}");
        }
    }
}
