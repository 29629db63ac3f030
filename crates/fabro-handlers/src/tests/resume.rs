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
    fabro_store::Inbox::post(&*scene.store, scene.run_id(), &answer("ask", "b")).unwrap();
    insta::assert_snapshot!(scene.story(), @r#"
    001 start@1 succeeded -> a (unconditional)
    002 a@1 succeeded -> ask (unconditional)
    ask asks "ask": [B] b
    paused: Human ["ask"]
    resumed
    ask is told B "b" None by inbox
    003 ask@1 succeeded -> b (suggested_next)
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
    fabro_store::Inbox::post(&*scene.store, scene.run_id(), &answer("ask", "p")).unwrap();
    scene.drive().unwrap();
    assert_eq!(scene.value("response.p"), "second");
    assert_eq!(scene.value("internal.retry_count.p"), 1);
}
