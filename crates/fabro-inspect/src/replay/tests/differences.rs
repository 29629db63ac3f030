use insta::assert_snapshot;

use super::{Taped, summary};

const LINE: &str = r#"digraph {
    start -> look -> plan -> check
    check -> exit [condition="outcome=succeeded"]
    check -> plan [label="again", condition="outcome=failed && internal.node_visit_count < 2"]
    check -> exit
    look [shape=parallelogram, script="ls"]
    plan [shape=tab, prompt="Make a plan.\nFiles: {{ context.command.output }}\nBe short."]
    check [shape=parallelogram, script="test -e plan"]
}"#;

fn line() -> Taped {
    let taped = Taped::new(LINE).prints("ls", "a.txt\nb.txt\n").exits("test -e plan", 1);
    taped.model(r#"{"plan": [{"text": "First a."}, {"text": "Then b."}]}"#).record()
}

#[test]
fn the_same_workflow_comes_out_the_same() {
    let report = line().replay();
    assert!(report.is_same(), "{}", summary(&report));
    assert_snapshot!(summary(&report), @"25 compared");
}

#[test]
fn a_changed_prompt_is_shown() {
    assert_snapshot!(summary(&line().with("Be short.", "Be brief.")), @r"
    25 compared
    prompt plan@1
    @@ -15,3 +15,3 @@
     b.txt
     
    -Be short.
    +Be brief.
    prompt plan@2
    @@ -20,3 +20,3 @@
     Make a plan.
     Files: 
    -Be short.
    +Be brief.
    ");
}

#[test]
fn a_changed_edge_is_shown() {
    assert_snapshot!(summary(&line().with("internal.node_visit_count < 2", "internal.node_visit_count < 9")), @r#"
    23 compared
    edge check@2
    - Some("check@2 → exit")
    + Some("check@2 → plan \"again\"")
    event exit@1
    - Some("stage.started exit@1: exit, fidelity compact")
    + Some("stage.started plan@3: prompt, fidelity compact")
    plan@3 needs something that was not recorded
    "#);
    assert_snapshot!(summary(&line().with(r#"condition="outcome=failed && internal.node_visit_count < 2""#, r#"condition="outcome=succeeded""#)), @r#"
    15 compared
    edge check@1
    - Some("check@1 → plan \"again\"")
    + Some("check@1 → exit")
    event plan@2
    - Some("stage.started plan@2: prompt, fidelity compact")
    + Some("stage.started exit@1: exit, fidelity compact")
    "#);
    // Another way of saying the same is no difference.
    assert!(line().with("outcome=succeeded", "outcome!=failed").is_same());
}

#[test]
fn a_new_stage_has_no_answers() {
    assert_snapshot!(summary(&line().with("plan -> check", "plan -> more -> check; more [shape=tab, prompt=\"More?\"]")), @r#"
    12 compared
    edge plan@1
    - Some("plan@1 → check")
    + Some("plan@1 → more")
    event check@1
    - Some("stage.started check@1: command, fidelity compact")
    + Some("stage.started more@1: prompt, fidelity compact")
    more@1 needs something that was not recorded
    "#);
}

#[test]
fn a_run_that_was_killed_anywhere_is_replayed_as_far_as_it_came() {
    Taped::check_everywhere(line);
}

#[test]
fn retries_are_those_of_the_record() {
    let source = r#"digraph { start -> ask -> exit
        ask [shape=tab, prompt="Ask", retry_policy=standard] }"#;
    let script = r#"{"ask": [{"error": "overloaded"}, {"error": "timeout"}, {"text": "Yes."}]}"#;
    // Retries wait; the replay of them does not.
    let taped = Taped::new(source).model(script);
    let taped = taped.record();
    assert_snapshot!(summary(&taped.replay()), @"15 compared");
    assert_snapshot!(summary(&taped.with("retry_policy=standard", "max_retries=1")), @r#"
    8 compared
    event ask@1
    - Some("stage.retrying ask@1: attempt 2 failed: the model did not answer in time: try again later (transient_infra)")
    + Some("stage.ended ask@1: failed, after attempts: 2, because of the model did not answer in time: try again later (transient_infra)")
    "#);
}

#[test]
fn branches_end_in_the_order_of_the_record() {
    for policy in ["wait_all", "first_success"] {
        let source = format!(
            r#"digraph {{ start -> fan
            fan [shape=component, join_policy={policy}]
            fan -> a1; fan -> b1; fan -> c
            a1 -> a2 -> join; b1 -> b2 -> join; c -> join; join [shape=tripleoctagon]; join -> say -> exit
            a1 [shape=parallelogram, script="a1"]; a2 [shape=parallelogram, script="a2"]
            b1 [shape=tab, prompt="B?"]; b2 [shape=parallelogram, script="b2"]
            c [shape=parallelogram, script="c"]
            say [shape=tab, prompt="Best: {{{{ context.parallel.fan_in.best_id }}}}"] }}"#
        );
        let taped = Taped::new(&source).prints("a1", "1").prints("a2", "2").prints("b2", "3");
        let model = r#"{"b1": [{"text": "B."}], "say": [{"text": "Done."}]}"#;
        let taped = taped.exits("c", 1).model(model).record();
        let report = taped.replay();
        assert!(report.is_same() && report.is_whole, "{policy}: {}", summary(&report));
        let changed = taped.with("prompt=\"B?\"", "prompt=\"C?\"");
        assert_eq!(changed.differences[0].branch.as_deref(), Some("fan@1/b1"), "{policy}");
    }
}

#[test]
fn a_run_that_failed_before_its_first_stage() {
    let taped = line().cut(1);
    let failure = fabro_types::Failure::new(fabro_types::FailureClass::Deterministic, "prepare");
    taped.drive(fabro_engine::Input::Abort { failure });
    assert_snapshot!(summary(&taped.replay()), @"1 compared");
}

#[test]
fn a_rewound_run_is_replayed_from_there_on() {
    use fabro_engine::checkpoint;
    use fabro_store::{Batch, RunLog as _};
    let taped = line();
    let events = taped.events();
    let counted = checkpoint::effective(&events);
    let at = checkpoint::find(&counted, Some("plan@1")).unwrap();
    let last = events.len() as u64;
    let set = [("x".to_owned(), std::sync::Arc::new(1.into()))].into();
    let cut = checkpoint::rewind(taped.run, &at, last, 3_000, set);
    super::now(taped.store.append(taped.run, last, &Batch::of(&[cut]))).unwrap();
    assert_snapshot!(summary(&taped.replay()), @"0 compared, without an end");
    let taped = taped.resume();
    assert_snapshot!(summary(&taped.replay()), @"15 compared");
}
