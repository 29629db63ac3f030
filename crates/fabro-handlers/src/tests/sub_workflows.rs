use fabro_engine::BlobStore as _;
use fabro_types::BlobRef;

use super::*;

const PARENT: &str = r#"digraph {
    start -> c -> sub -> next -> exit
    c [shape=parallelogram, script="c"]
    sub [shape=house, stack.child_workflow="lib/child.fabro"]
    next [shape=tab, prompt="Next."]
}"#;

const CHILD: &str = r#"digraph child {
    graph [goal="Check it"]
    start -> look -> exit
    look [shape=tab, prompt="@look.md"]
}"#;

const MODEL: &str = r#"{"look": [{"text": "{\"context_updates\": {\"found\": 3}}", "usage": {"input_tokens": 10}}], "next": [{"text": "ok"}]}"#;

fn nested(child: &str) -> Scene {
    Scene::new(PARENT)
        .file("lib/child.fabro", child)
        .file("lib/look.md", "Look closely.")
        .model(MODEL)
        .prints(&[("c", "parent's output"), ("d", "child's output"), ("slow", "")])
}

fn child_of(scene: &Scene) -> RunId {
    let children: Vec<_> = now(scene.store.list()).unwrap().into_iter().map(|run| run.id).collect();
    *children.iter().find(|id| **id != scene.run_id()).unwrap()
}

fn child_story(scene: &Scene) -> String {
    story(&now(scene.store.read(child_of(scene), 0, usize::MAX)).unwrap())
}

#[test]
fn the_childs_final_context_is_the_parents() {
    let scene = nested(
        &CHILD.replace("look -> exit", "look -> d -> exit; d [shape=parallelogram, script=d]"),
    );
    insta::assert_snapshot!(scene.story(), @r"
    001 start@1 succeeded -> c (unconditional)
    002 c@1 succeeded -> sub (unconditional)
    003 sub@1 succeeded -> next (unconditional)
    004 next@1 succeeded -> exit (unconditional)
    005 exit@1 succeeded
    run succeeded
    ");
    insta::assert_snapshot!(child_story(&scene), @r"
    001 start@1 succeeded -> look (unconditional)
    002 look@1 succeeded -> d (unconditional)
    003 d@1 succeeded -> exit (unconditional)
    004 exit@1 succeeded
    run succeeded
    ");
    let child = scene.value("child.sub");
    assert_eq!(child["found"], 3);
    assert_eq!(child["outcome"], "succeeded");
    assert_eq!(child["graph.goal"], "Check it");
    assert_eq!(
        child["command.output"], "child's output",
        "read back, for conditions and templates"
    );
    assert_eq!(scene.value("found"), 3, "without inputs.* its changes come back");
    assert_eq!(scene.value("graph.goal"), "Ship it");
    assert_eq!(scene.state().usage.input_tokens, 10);
}

#[test]
fn a_child_without_inputs_of_its_own_shares_the_context() {
    const CHILD: &str = r#"digraph child {
        start -> look -> write -> exit
        look  [shape=tab, prompt="Look at {{ context.plan | default(\"nothing\") }}."]
        write [shape=tab, prompt="Write."]
    }"#;
    const MODEL: &str = r#"{"plan": [{"text": "{\"context_updates\": {\"plan\": \"p.md\", \"round\": 1}}"}],
        "write": [{"text": "{\"context_updates\": {\"round\": 2, \"done\": true}}"}], "*": [{"text": "ok"}]}"#;
    let run = |inputs: &str| {
        let parent = PARENT
            .replace("c [shape=parallelogram, script=\"c\"]", "c [shape=tab, prompt=\"Plan.\"]")
            .replace("c ->", "plan ->")
            .replace("-> c", "-> plan")
            .replace("c [", "plan [")
            .replace("shape=house", &format!("shape=house{inputs}"));
        let scene = Scene::new(&parent).file("lib/child.fabro", CHILD).model(MODEL);
        scene.drive().unwrap();
        scene
    };
    let prompt_of = |scene: &Scene, stage: &str| {
        let dir = scene.run_dir().with_file_name(child_of(scene).to_string());
        std::fs::read_to_string(dir.join(format!("stages/{stage}/prompt.md"))).unwrap()
    };
    let shared = run("");
    insta::assert_snapshot!(prompt_of(&shared, "002-look@1"), @r"
    # Parent workflow

    Goal: Ship it

    ## Completed stages
    - **plan**: success
      - Model: scripted, 0 tokens in / 0 out

    ## Context
    - plan: p.md
    - round: 1

    # This workflow

    Goal: Ship it

    Look at p.md.
    ");
    assert_eq!((shared.value("round"), shared.value("done")), (2.into(), true.into()));
    assert_eq!(shared.value("response.look"), "ok");
    assert_eq!(shared.value("plan"), "p.md");
    let child = shared.value("child.sub");
    assert_eq!((&child["round"], &child["plan"]), (&2.into(), &Value::Null), "its changes alone");
    let isolated = run(", inputs.x=1");
    assert!(prompt_of(&isolated, "002-look@1").ends_with("Look at nothing."));
    assert_eq!((isolated.value("round"), isolated.value("done")), (1.into(), Value::Null));
    assert_eq!(isolated.value("child.sub")["round"], 2);
}

#[test]
fn the_childs_turns_are_usage_but_move_no_script_of_the_parents_on() {
    let scene = nested(CHILD).model(r#"{"*": [{"text": "first"}, {"text": "second"}]}"#);
    scene.drive().unwrap();
    let turns = |node: &str| {
        scene.events().into_iter().find_map(|event| match event.entry.body {
            EventBody::StageCompleted(end) if event.entry.node_id.as_deref() == Some(node) => {
                end.outcome.usage.as_ref().map(|usage| usage.turns)
            }
            _ => None,
        })
    };
    assert_eq!((turns("sub"), turns("next")), (Some(1), Some(1)));
    assert_eq!(scene.state().usage.turns, 2);
    assert_eq!(scene.value("response.next"), "first");
}

#[test]
fn the_parents_preamble_comes_first() {
    let scene = nested(CHILD);
    scene.drive().unwrap();
    let dir = scene.run_dir().with_file_name(child_of(&scene).to_string());
    let prompt = std::fs::read_to_string(dir.join("stages/002-look@1/prompt.md")).unwrap();
    insta::assert_snapshot!(prompt, @r"
    # Parent workflow

    Goal: Ship it

    ## Completed stages
    - **c**: success
      - Script: `c`
      - Stdout:
        ```
        parent's output
        ```
      - Stderr: (empty)

    # This workflow

    Goal: Check it

    Look closely.
    ");
    assert!(dir.join("stages/002-look@1/status.json").exists());
    insta::assert_snapshot!(scene.read("004-next@1/prompt.md"), @r"
    Goal: Ship it

    ## Completed stages
    - **c**: success
      - Script: `c`
      - Stdout:
        ```
        parent's output
        ```
      - Stderr: (empty)
    - **sub**: success

    ## Context
    - found: 3

    Next.
    ");
}

#[test]
fn a_sub_workflow_starts_fresh_even_where_conversations_are_shared() {
    let mut scene = nested(CHILD);
    scene.bundle.source =
        PARENT.replacen("digraph {", "digraph { graph [default_fidelity=full]", 1);
    scene.drive().unwrap();
    let dir = scene.run_dir().with_file_name(child_of(&scene).to_string());
    let prompt = std::fs::read_to_string(dir.join("stages/002-look@1/prompt.md")).unwrap();
    assert!(prompt.starts_with("# Parent workflow\n\nGoal: Ship it\n"), "{prompt}");
}

#[test]
fn a_condition_reads_what_the_child_left() {
    let mut scene = nested(CHILD);
    scene.bundle.source = r#"digraph {
        start -> sub; sub [shape=house, stack.child_workflow="lib/child.fabro"]
        sub -> exit [condition="child.sub.found > 2"]
        sub -> next; next -> exit
    }"#
    .into();
    assert!(scene.story().contains("sub@1 succeeded -> exit (condition)"));
}

#[test]
fn the_childs_failure_is_the_stages() {
    let scene = nested(&CHILD.replace("look -> exit", "look -> d; d [shape=parallelogram, script=nope]; d -> exit [condition=\"outcome=success\"]"));
    insta::assert_snapshot!(scene.story(), @r"
    001 start@1 succeeded -> c (unconditional)
    002 c@1 succeeded -> sub (unconditional)
    003 sub@1 failed: sub-workflow: `d` failed: exit code 127: this script has no result: see stage d@1 of run 01HF7YAT00TG3988HQR5SKDW1M -> next (unconditional)
    004 next@1 succeeded -> exit (unconditional)
    005 exit@1 succeeded
    run partially_succeeded
    ");
}

#[test]
fn a_child_inline_or_invalid() {
    let inline = |source: &str| {
        let parent = format!(
            "digraph {{ start -> sub -> exit; sub [shape=house, stack.child_dot_source=\"{source}\"] }}"
        );
        Scene::new(&parent).story()
    };
    insta::assert_snapshot!(inline("digraph { start -> exit }"), @r"
    001 start@1 succeeded -> sub (unconditional)
    002 sub@1 succeeded -> exit (unconditional)
    003 exit@1 succeeded
    run succeeded
    ");
    insta::assert_snapshot!(inline("digraph { start -> "), @r"
    001 start@1 succeeded -> sub (unconditional)
    002 sub@1 failed: test.fabro is not valid: expected a name, a quoted string or `{`, found the end (structural) -> exit (unconditional)
    003 exit@1 succeeded
    run partially_succeeded
    ");
    insta::assert_snapshot!(Scene::new("digraph { start -> sub -> exit; sub [shape=house] }").story(), @r"
    001 start@1 succeeded -> sub (unconditional)
    002 sub@1 failed: `sub` names no workflow: set stack.child_workflow (structural) -> exit (unconditional)
    003 exit@1 succeeded
    run partially_succeeded
    ");
}

#[test]
fn the_child_stops_when_its_condition_holds() {
    let mut scene = nested(
        r#"digraph { start -> look -> d -> look; look [shape=tab]; d [shape=parallelogram, script=d]; d -> exit [condition="never=1"] }"#,
    );
    scene.bundle.source = PARENT.replace(
        "stack.child_workflow",
        "manager.stop_condition=\"found=3\", stack.child_workflow",
    );
    insta::assert_snapshot!(scene.story(), @r"
    001 start@1 succeeded -> c (unconditional)
    002 c@1 succeeded -> sub (unconditional)
    003 sub@1 succeeded (ended: its stop condition holds) -> next (unconditional)
    004 next@1 succeeded -> exit (unconditional)
    005 exit@1 succeeded
    run succeeded
    ");
    insta::assert_snapshot!(child_story(&scene), @r"
    001 start@1 succeeded -> look (unconditional)
    002 look@1 succeeded -> d (unconditional)
    run canceled: its stop condition holds
    ");
    assert_eq!(scene.value("child.sub")["found"], 3);
}

#[test]
fn a_child_that_its_condition_stops_keeps_its_failures() {
    let mut scene = nested(
        r"digraph { start -> bad -> look -> d -> exit; look [shape=tab]; bad [shape=parallelogram, script=unknown]; d [shape=parallelogram, script=d] }",
    );
    scene.bundle.source = PARENT.replace(
        "stack.child_workflow",
        "manager.stop_condition=\"found=3\", stack.child_workflow",
    );
    insta::assert_snapshot!(scene.story(), @r"
    001 start@1 succeeded -> c (unconditional)
    002 c@1 succeeded -> sub (unconditional)
    003 sub@1 partially_succeeded: sub-workflow: `bad` failed: exit code 127: this script has no result: see stage bad@1 of run 01HF7YAT00TG3988HQR5SKDW1M (ended: its stop condition holds) -> next (unconditional)
    004 next@1 succeeded -> exit (unconditional)
    005 exit@1 succeeded
    run partially_succeeded
    ");
}

#[test]
fn the_child_has_max_cycles_times_poll_interval() {
    let mut scene = nested(
        &CHILD.replace("look -> exit", "look -> w -> exit; w [shape=insulator, duration=5m]"),
    );
    scene.bundle.source = PARENT.replace(
        "stack.child_workflow",
        "manager.poll_interval=10s, manager.max_cycles=6, stack.child_workflow",
    );
    insta::assert_snapshot!(scene.story(), @r"
    001 start@1 succeeded -> c (unconditional)
    002 c@1 succeeded -> sub (unconditional)
    003 sub@1 failed: sub-workflow: it took longer than max_cycles × poll_interval (transient_infra) -> next (unconditional)
    004 next@1 succeeded -> exit (unconditional)
    005 exit@1 succeeded
    run partially_succeeded
    ");
    insta::assert_snapshot!(child_story(&scene), @r"
    001 start@1 succeeded -> look (unconditional)
    002 look@1 succeeded -> w (unconditional)
    run canceled: it took longer than max_cycles × poll_interval
    ");
}

#[test]
fn a_paused_child_pauses_its_parent_and_goes_on_with_it() {
    let child = CHILD.replace("look -> exit", "look -> ask -> exit; ask [shape=hexagon]");
    let scene = nested(&child);
    scene.drive().unwrap();
    now(fabro_store::Inbox::post(&*scene.store, child_of(&scene), &answer("ask", "exit"))).unwrap();
    insta::assert_snapshot!(scene.story(), @r#"
    001 start@1 succeeded -> c (unconditional)
    002 c@1 succeeded -> sub (unconditional)
    paused: Human ["sub"]
    resumed
    003 sub@1 succeeded -> next (unconditional)
    004 next@1 succeeded -> exit (unconditional)
    005 exit@1 succeeded
    run succeeded
    "#);
    insta::assert_snapshot!(child_story(&scene), @r#"
    001 start@1 succeeded -> look (unconditional)
    002 look@1 succeeded -> ask (unconditional)
    ask asks "ask": [E] exit
    paused: Human ["ask"]
    resumed
    ask is told E "exit" None by inbox
    003 ask@1 succeeded -> exit (suggested_next)
    004 exit@1 succeeded
    run succeeded
    "#);
    assert_eq!(now(scene.store.list()).unwrap().len(), 2);
    assert_eq!(scene.asked(), "look: > Look closely.\nnext: > Next.\n");
}

#[test]
fn a_child_that_ended_is_not_run_again() {
    let whole = nested(CHILD);
    whole.drive().unwrap();
    let child = child_of(&whole);
    let events = whole.events();
    let end = events.iter().position(|event| {
        matches!(event.entry.body, EventBody::StageStarted { .. })
            && event.entry.node_id.as_deref() == Some("sub")
    });
    // The parent died before it could record what the child came to.
    let again = nested(CHILD);
    again.drive().unwrap();
    let cut = nested(CHILD);
    now(cut.store.append(cut.run_id(), 0, &Batch::of(&events[..=end.unwrap()]))).unwrap();
    fabro_blob::BlobStore::put(&*cut.store, &cut.bundle.to_bytes()).unwrap();
    let childs = now(whole.store.read(child, 0, usize::MAX)).unwrap();
    for event in &events[..=end.unwrap()] {
        if let EventBody::StageCompleted(done) = &event.entry.body {
            for value in done.outcome.context_updates.values() {
                if let Some(blob) = BlobRef::from_value(value) {
                    let bytes = fabro_blob::BlobStore::get(&*whole.store, &blob).unwrap();
                    fabro_blob::BlobStore::put(&*cut.store, &bytes).unwrap();
                }
            }
        }
    }
    now(cut.store.append(child, 0, &Batch::of(&childs))).unwrap();
    assert!(cut.story().ends_with("run succeeded\n"));
    assert_eq!(cut.asked(), "next: > Next.\n");
    assert_eq!(cut.value("child.sub")["found"], 3);
}

#[test]
fn a_rewind_runs_the_child_again() {
    let scene = nested(CHILD);
    scene.drive().unwrap();
    let events = scene.events();
    let counted = fabro_engine::checkpoint::effective(&events);
    let at = fabro_engine::checkpoint::find(&counted, Some("c")).unwrap();
    let last = events.len() as u64;
    let rewound = fabro_engine::checkpoint::rewind(
        scene.run_id(),
        &at,
        last,
        scene.state().updated_ms,
        fabro_types::ContextPatch::new(),
    );
    now(scene.store.append(scene.run_id(), last, &Batch::of(&[rewound]))).unwrap();
    scene.drive().unwrap();
    assert_eq!(now(scene.store.list()).unwrap().len(), 3);
    assert_eq!(scene.asked().matches("look:").count(), 2);
}

#[test]
fn grandchildren_run_too() {
    let scene = nested(r#"digraph { start -> deep -> exit; deep [shape=house, stack.child_workflow="more/grand.fabro"] }"#)
        .file("lib/more/grand.fabro", "digraph { start -> look -> exit; look [shape=tab, prompt=\"Look.\"] }");
    scene.drive().unwrap();
    assert_eq!(now(scene.store.list()).unwrap().len(), 3);
    assert_eq!(scene.value("child.sub")["child.deep"]["found"], 3);
}

#[test]
fn a_workflow_that_names_itself_comes_to_an_end() {
    let own = "digraph { start -> deep -> exit [condition=\"outcome=success\"]; deep [shape=house, stack.child_workflow=\"child.fabro\"] }";
    let scene = nested(&own.replace("-> exit [", "; deep -> exit ["));
    let story = scene.story();
    assert!(
        story.contains("sub-workflows nest more than 16 deep: see stage deep@1 of run "),
        "{story}"
    );
    assert_eq!(now(scene.store.list()).unwrap().len(), 17);
}

#[test]
fn the_childs_scripts_know_where_their_workflow_is() {
    let child = CHILD.replace(
        "look -> exit",
        "look -> w -> exit; w [shape=parallelogram, script=\"echo $FABRO_WORKFLOW_DIR\"]",
    );
    let mut scene = nested(&child).local();
    scene.bundle.source = PARENT.replace("script=\"c\"", "script=\"echo $FABRO_WORKFLOW_DIR\"");
    scene.workflow_dir = "/project".into();
    scene.drive().unwrap();
    assert_eq!(scene.value("internal.workflow_dir"), "/project");
    assert_eq!(scene.value("child.sub")["command.output"], "/project/lib");
}

#[test]
fn a_stop_condition_that_held_before_the_driver_died_still_holds() {
    let child = CHILD.replace("look -> exit", "look -> ask -> exit; ask [shape=hexagon]");
    let mut scene = nested(&child);
    scene.drive().unwrap();
    // The child waits at its gate; what the parent says meanwhile is for a driver that comes later.
    scene.bundle.source = PARENT.replace(
        "stack.child_workflow",
        "manager.stop_condition=\"found=3\", stack.child_workflow",
    );
    let story = scene.story();
    assert!(story.contains("sub@1 succeeded (ended: its stop condition holds)"), "{story}");
    assert!(child_story(&scene).ends_with("run canceled: its stop condition holds\n"));
}

#[test]
fn a_childs_budget_pauses_the_parent_and_is_lifted_with_the_parents() {
    let child = CHILD
        .replace("start -> look", "graph [max_cost=0.5]; start -> dear -> look")
        .replace("look [", "dear [shape=tab]; look [");
    let model = MODEL.replacen('{', r#"{"dear": [{"text": "1", "usage": {"cost_usd": 0.7}}], "#, 1);
    let scene = nested(&child).model(&model);
    scene.drive().unwrap();
    scene.drive().unwrap();
    let end = scene.drive_with(Some(1.0)).unwrap();
    insta::assert_snapshot!(story(&scene.events()), @r"
    001 start@1 succeeded -> c (unconditional)
    002 c@1 succeeded -> sub (unconditional)
    paused: Budget []
    resumed
    paused: Budget []
    resumed
    003 sub@1 succeeded -> next (unconditional)
    004 next@1 succeeded -> exit (unconditional)
    005 exit@1 succeeded
    run succeeded
    ");
    insta::assert_snapshot!(child_story(&scene), @r"
    001 start@1 succeeded -> dear (unconditional)
    002 dear@1 succeeded -> look (unconditional)
    paused: Budget []
    resumed
    paused: Budget []
    resumed
    look warns (price) the price of scripted is not known, so max_cost does not count it
    003 look@1 succeeded -> exit (unconditional)
    004 exit@1 succeeded
    run succeeded
    ");
    assert!(matches!(end, RunEnd::Over(..)));
}

#[test]
fn a_child_spends_no_more_than_its_parent_may() {
    let parent = PARENT.replacen("start ->", "graph [max_cost=0.5]; start ->", 1);
    let child = CHILD
        .replace("start -> look", "start -> dear -> look")
        .replace("look [", "dear [shape=tab]; look [");
    let model = MODEL.replacen('{', r#"{"dear": [{"text": "1", "usage": {"cost_usd": 0.7}}], "#, 1);
    let scene = Scene::new(&parent)
        .file("lib/child.fabro", &child)
        .file("lib/look.md", "Look closely.")
        .model(&model)
        .prints(&[("c", "")]);
    scene.drive().unwrap();
    insta::assert_snapshot!(child_story(&scene), @r"
    001 start@1 succeeded -> dear (unconditional)
    002 dear@1 succeeded -> look (unconditional)
    paused: Budget []
    ");
    scene.drive_with(Some(1.0)).unwrap();
    insta::assert_snapshot!(story(&scene.events()), @r"
    001 start@1 succeeded -> c (unconditional)
    002 c@1 succeeded -> sub (unconditional)
    paused: Budget []
    resumed
    003 sub@1 succeeded -> next (unconditional)
    004 next@1 succeeded -> exit (unconditional)
    005 exit@1 succeeded
    run succeeded
    ");
}

#[test]
fn concurrent_sub_workflows_share_the_limit() {
    let subs = (0..10)
        .map(|n| {
            format!(
                "s{n} [shape=house, stack.child_workflow=\"lib/child.fabro\"] fork -> s{n} -> join;"
            )
        })
        .collect::<Vec<_>>()
        .concat();
    let parent = format!(
        "digraph {{ graph [max_cost=0.10]; start -> fork; fork [shape=component, max_parallel=10] {subs} join [shape=tripleoctagon] join -> exit }}"
    );
    let child =
        "digraph child { start -> a -> b -> c -> d -> exit; node [shape=tab, prompt=x] a b c d }";
    let model = r#"{"*": [{"text": "x", "delay_ms": 1000, "usage": {"cost_usd": 0.03}}]}"#;
    let scene = Scene::new(&parent).file("lib/child.fabro", child).model(model);
    let spent = || {
        let runs = now(scene.store.list()).unwrap();
        let spent = runs.iter().map(|run| {
            let events = now(scene.store.read(run.id, 0, usize::MAX)).unwrap();
            let state = RunState::replay(run.id, &events);
            // The parent also counts finished sub-workflows.
            if run.parent.is_some() { state.usage_so_far().cost_usd } else { 0.0 }
        });
        spent.sum::<f64>()
    };
    let end = scene.drive().unwrap();
    assert!(matches!(end, RunEnd::Paused(fabro_events::PauseReason::Budget)), "{end:?}");
    // Each starts a turn before the first turn ends.
    assert!((spent() - 0.3).abs() < 1e-9, "{}", spent());
    let paused = scene.events().into_iter().rev().find_map(|event| match event.entry.body {
        EventBody::RunPaused { message, .. } => Some(message),
        _ => None,
    });
    assert_eq!(paused.as_deref(), Some("spent $0.30 of max_cost $0.10, sub-workflows included"));
    scene.drive().unwrap();
    assert!((spent() - 0.3).abs() < 1e-9, "{}", spent());
    assert!(matches!(scene.drive_with(Some(5.0)).unwrap(), RunEnd::Over(..)));
    assert!((spent() - 1.2).abs() < 1e-9, "{}", spent());
}

#[test]
fn a_child_whose_stage_is_called_off_ends_with_all_that_it_holds() {
    let source = r#"digraph {
        start -> fork; fork [shape=component, join_policy=first_success]
        fork -> sub; fork -> quick; sub -> join; quick -> join; join -> exit
        sub [shape=house, stack.child_workflow="lib/child.fabro"]
        quick [shape=insulator, duration=2s]; join [shape=tripleoctagon]
    }"#;
    let child = "digraph { start -> deep -> exit; deep [shape=house, stack.child_workflow=\"grand.fabro\"] }";
    let grand = "digraph { start -> ask -> exit; ask [shape=hexagon, timeout=1h] }";
    let scene = Scene::new(source).file("lib/child.fabro", child).file("lib/grand.fabro", grand);
    assert!(scene.story().ends_with("run succeeded\n"));
    let runs = now(scene.store.list()).unwrap();
    assert_eq!(runs.len(), 3);
    for run in runs.iter().filter(|run| run.id != scene.run_id()) {
        let told = story(&now(scene.store.read(run.id, 0, usize::MAX)).unwrap());
        assert!(told.ends_with("run canceled: its stage was canceled\n"), "{told}");
    }
}

#[test]
fn a_child_whose_parent_is_stopped_stays_to_be_resumed() {
    let child =
        CHILD.replace("look -> exit", "look -> w -> exit; w [shape=insulator, duration=5m]");
    let mut scene = nested(&child);
    scene.stop_after = Some(std::time::Duration::from_mins(1));
    assert_eq!(scene.drive().unwrap(), RunEnd::Stopped);
    assert!(!child_story(&scene).contains("canceled"));
}

#[test]
fn a_stop_condition_that_cannot_be_decided_is_told_once() {
    let child =
        CHILD.replace("look -> exit", "look -> d -> exit; d [shape=parallelogram, script=d]");
    let large = vec![b'1'; 16 << 20 | 1];
    let name = format!("\\\"{}\\\"", BlobRef::of(&large));
    let mut scene =
        nested(&child).model(&MODEL.replace("found\\\": 3", &format!("found\\\": {name}")));
    scene.store.put(&large).unwrap();
    scene.bundle.source = PARENT.replace(
        "stack.child_workflow",
        "manager.stop_condition=\"found=3\", stack.child_workflow",
    );
    insta::assert_snapshot!(scene.story(), @r"
    001 start@1 succeeded -> c (unconditional)
    002 c@1 succeeded -> sub (unconditional)
    sub warns (stop_condition) manager.stop_condition cannot be decided: `found` cannot be read: the value is too large: 16777217 bytes (limit 16 MB)
    003 sub@1 succeeded -> next (unconditional)
    004 next@1 succeeded -> exit (unconditional)
    005 exit@1 succeeded
    run succeeded
    ");
}

#[test]
fn a_child_uses_no_more_tokens_than_its_parent_may() {
    let parent = PARENT.replacen("start ->", "graph [max_tokens_total=15]; start ->", 1);
    let child = CHILD.replace("look -> exit", "look -> look2 -> exit; look2 [shape=tab]");
    let model = MODEL.replacen('{', r#"{"look2": [{"text": "2"}], "#, 1);
    let mut scene = nested(&child).model(&model.replace("10}", "20}"));
    scene.bundle.source = parent;
    scene.drive().unwrap();
    insta::assert_snapshot!(child_story(&scene), @r"
    001 start@1 succeeded -> look (unconditional)
    002 look@1 succeeded -> look2 (unconditional)
    paused: Budget []
    ");
    scene.drive_with(Some(1.0)).unwrap();
    insta::assert_snapshot!(story(&scene.events()), @r"
    001 start@1 succeeded -> c (unconditional)
    002 c@1 succeeded -> sub (unconditional)
    paused: Budget []
    resumed
    003 sub@1 succeeded -> next (unconditional)
    004 next@1 succeeded -> exit (unconditional)
    005 exit@1 succeeded
    run succeeded
    ");
}

#[test]
fn a_sub_workflow_has_the_inputs_of_its_node() {
    let parent = r#"digraph {
        start -> plan -> sub -> next -> exit
        plan [shape=tab, prompt="Plan.", output_schema="{}"]
        sub [shape=house, stack.child_workflow="lib/child.fabro", inputs.list="{{ context.output.plan.list }}", inputs.tone="calm: {{ goal }}", inputs.n=3]
        next [shape=tab, prompt="{{ context.child.sub.output.look.score }} {{ context.child.sub.child.deep.output.in.x }}"]
        next -> exit [condition="context.child.sub.output.look.score = 7 && child.sub.child.deep.output.in.x = true"]
    }"#;
    let child = r#"digraph child {
        start -> look -> deep -> exit
        look [shape=tab, prompt="{{ inputs.tone }} {{ inputs.n }} {{ inputs.list.1 }}", output_schema="{}"]
        deep [shape=house, inputs.x="{{ context.output.look }}", stack.child_dot_source="digraph { start -> in -> exit; in [shape=tab, prompt=\"{{ inputs.x.score }}\", output_schema=\"{}\"] }"]
    }"#;
    let model = r#"{"plan": [{"text": "{\"list\": [1, \"two\"]}"}], "look": [{"text": "{\"score\": 7}"}],
        "in": [{"text": "{\"x\": true}"}], "next": [{"text": "ok"}]}"#;
    let scene = Scene::new(parent).file("lib/child.fabro", child).model(model);
    insta::assert_snapshot!(scene.story(), @r"
    001 start@1 succeeded -> plan (unconditional)
    002 plan@1 succeeded -> sub (unconditional)
    003 sub@1 succeeded -> next (unconditional)
    004 next@1 succeeded -> exit (condition)
    005 exit@1 succeeded
    run succeeded
    ");
    let mut inputs = Vec::new();
    for run in now(scene.store.list()).unwrap() {
        for event in now(scene.store.read(run.id, 0, 1)).unwrap() {
            if let EventBody::RunCreated(created) = event.entry.body {
                inputs.push(serde_json::to_string(&created.inputs).unwrap());
            }
        }
    }
    inputs.sort();
    insta::assert_snapshot!(inputs.join("\n"), @r#"
    {"list":[1,"two"],"n":3,"tone":"calm: Ship it"}
    {"x":{"score":7}}
    {}
    "#);
}

#[test]
fn an_input_that_is_not_there_fails_the_stage() {
    let parent = PARENT.replace("shape=house,", "shape=house, inputs.x=\"{{ context.gone }}\",");
    let scene = Scene::new(&parent).file("lib/child.fabro", CHILD).file("lib/look.md", "Look.");
    let scene = scene.model(MODEL).prints(&[("c", "")]);
    insta::assert_snapshot!(scene.story(), @r#"
    001 start@1 succeeded -> c (unconditional)
    002 c@1 succeeded -> sub (unconditional)
    003 sub@1 failed: the context has no key `gone`; write it in an earlier stage, or give a default: `{{ context.gone | default("") }}` -> next (unconditional)
    004 next@1 succeeded -> exit (unconditional)
    005 exit@1 succeeded
    run partially_succeeded
    "#);
}

#[test]
fn a_dry_run_walks_past_a_manager_without_a_workflow() {
    let scene = Scene::new("digraph { start -> sub -> exit; sub [shape=house] }");
    insta::assert_snapshot!(scene.dry().story(), @r"
    001 start@1 succeeded -> sub (unconditional)
    002 sub@1 succeeded -> exit (unconditional)
    003 exit@1 succeeded
    run succeeded
    ");
}

#[test]
fn a_dry_run_walks_through_a_sub_workflow_with_inputs() {
    let parent = r#"digraph {
        start -> sub -> exit
        sub [shape=house, inputs.issue="{{ context.issue }}", stack.child_dot_source="digraph { start -> a -> exit; a [shape=tab, prompt=\"{{ inputs.issue.title }}\"] }"]
    }"#;
    insta::assert_snapshot!(Scene::new(parent).dry().story(), @r"
    001 start@1 succeeded -> sub (unconditional)
    002 sub@1 succeeded -> exit (unconditional)
    003 exit@1 succeeded
    run succeeded
    ");
}
