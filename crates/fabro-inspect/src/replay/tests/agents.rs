use fabro_events::EventBody;
use insta::assert_snapshot;

use super::{Taped, summary};

const AGENT: &str = r#"digraph {
    start -> fix -> check -> exit
    fix [prompt="Fix it."]
    check [shape=tab, prompt="Is it fixed?", output_schema="{\"type\": \"object\", \"required\": [\"ok\"]}"]
}"#;

const MODEL: &str = r#"{
    "fix": [
        {"text": "I look.", "tool_calls": [
            {"name": "read_file", "arguments": {"file_path": "a.txt"}},
            {"name": "shell", "arguments": {"command": "rm -rf /"}}]},
        {"tool_calls": [{"name": "write_file", "arguments": {"file_path": "b.txt", "content": "8"}}]},
        {"text": "Fixed."}],
    "check": [{"text": "Yes."}, {"text": "{\"ok\": true}"}]
}"#;

fn agent() -> Taped {
    Taped::new(AGENT).model(MODEL).record()
}

#[test]
fn tools_give_what_they_gave_and_do_nothing() {
    let taped = agent();
    let file = taped.dir.path().join("b.txt");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "8");
    std::fs::remove_file(&file).unwrap();
    std::fs::write(taped.dir.path().join("a.txt"), "changed\n").unwrap();
    let report = taped.replay();
    assert!(report.is_same() && report.is_whole, "{}", summary(&report));
    assert!(!file.exists());
    assert_snapshot!(summary(&taped.with("Fix it.", "Mend it.")), @r"
    20 compared
    prompt fix@1
    @@ -1,3 +1,3 @@
     Goal: Ship it
     
    -Fix it.
    +Mend it.
    ");
}

#[test]
fn a_schema_that_wants_more_has_no_answer() {
    let taped = agent();
    assert_snapshot!(summary(&taped.with(r#"[\"ok\"]"#, r#"[\"fine\"]"#)), @r#"
    16 compared
    prompt check@1
    @@ -1,4 +1,4 @@
     Your answer has no JSON object.
     It must match this JSON Schema:
    -{"type":"object","required":["ok"]}
    +{"type":"object","required":["fine"]}
     Answer with the corrected JSON only.
    event check@1
    - Some("stage.ended check@1: succeeded")
    + None
    check@1 needs something that was not recorded
    "#);
    // One that wants less takes the first answer that will do.
    assert_snapshot!(summary(&taped.with(r#"{\"type\": \"object\", \"required\": [\"ok\"]}"#, "routing")), @r#"
    16 compared
    prompt check@1
    @@ -1,4 +1,3 @@
    -Your answer has no JSON object.
    -It must match this JSON Schema:
    -{"type":"object","required":["ok"]}
    +Your answer has no JSON object with a routing field.
    +It must be a JSON object with at least one of these fields: outcome (a string: succeeded, failed, partially_succeeded or skipped), failure_reason (a string), preferred_next_label (a string), suggested_next_ids (an array of strings), context_updates (an object).
     Answer with the corrected JSON only.
    event check@1
    - Some("stage.ended check@1: succeeded")
    + None
    check@1 needs something that was not recorded
    "#);
}

#[test]
fn conversations_that_were_killed_anywhere_come_out_the_same() {
    Taped::check_everywhere(agent);
}

#[test]
fn agents_of_agents_say_what_they_said() {
    let source = r#"digraph { start -> lead -> exit; lead [prompt="Lead."] }"#;
    let model = r#"{"lead": [
        {"tool_calls": [{"name": "spawn_agent", "arguments": {"task": "Count."}}]},
        {"text": "I wait or count."}, {"text": "Done."}, {"text": "Really."}]}"#;
    let taped = Taped::new(source).model(model).record();
    let spawned = |body: &EventBody| matches!(body, EventBody::AgentSubSpawned { .. });
    assert!(taped.events().iter().any(|event| spawned(&event.entry.body)));
    let report = taped.replay();
    assert!(report.is_same() && report.is_whole, "{}", summary(&report));
}

/// An agent that is closed before it answers, and one with the same task that is waited for.
fn closed() -> Taped {
    let source = r#"digraph { start -> lead -> exit; lead [prompt="Lead."] }"#;
    let model = r#"{"lead": [
        {"tool_calls": [{"name": "spawn_agent", "arguments": {"task": "Count."}}]},
        {"text": "Too late.", "delay_ms": 60000},
        {"tool_calls": [{"name": "close_agent", "arguments": {"agent_id": "lead@1/a1"}}]},
        {"tool_calls": [{"name": "spawn_agent", "arguments": {"task": "Count."}}]},
        {"tool_calls": [{"name": "read_file", "arguments": {"file_path": "a.txt"}}]},
        {"tool_calls": [{"name": "wait", "arguments": {}}]},
        {"text": "Seven."}, {"text": "Done."}]}"#;
    Taped::new(source).model(model).record()
}

#[test]
fn agents_that_never_answered_get_no_answer_of_others() {
    let taped = closed();
    let answers = |id: &str| {
        let events = taped.events();
        let said = events.iter().filter(|event| {
            matches!(&event.entry.body, EventBody::AgentMessage { role, .. } if role == "assistant")
        });
        said.filter(|event| event.entry.session_id.as_deref() == Some(id)).count()
    };
    assert_eq!((answers("lead@1"), answers("lead@1/a1"), answers("lead@1/a2")), (5, 0, 2));
    let report = taped.replay();
    assert!(report.is_same() && report.is_whole, "{}", summary(&report));
    Taped::check_everywhere(closed);
}

/// An agent that is begun, or another one where the program stopped at that.
fn begun() -> Taped {
    let source = r#"digraph { start -> lead -> exit; lead [prompt="Lead."] }"#;
    let model = r#"{"lead": [
        {"tool_calls": [{"name": "spawn_agent", "arguments": {"task": "Count."}}]},
        {"tool_calls": [{"name": "spawn_agent", "arguments": {"task": "Add."}}]},
        {"text": "One."},
        {"tool_calls": [{"name": "send_input", "arguments": {"agent_id": "lead@1/a1", "text": "More."}}]},
        {"tool_calls": [{"name": "wait", "arguments": {}}]},
        {"text": "Two."}, {"text": "Done."}, {"text": "Really."}, {"text": "Yes."}]}"#;
    Taped::new(source).model(model).record()
}

#[test]
fn agents_that_were_never_begun_are_not_begun() {
    Taped::check_everywhere(begun);
}

#[test]
fn a_failure_of_the_model_is_that_of_the_record() {
    let source = r#"digraph { start -> fix -> exit; fix [prompt="Fix it.", on_unavailable=fail] }"#;
    let model = r#"{"fix": [
        {"tool_calls": [{"name": "read_file", "arguments": {"file_path": "a.txt"}}]}, {"error": "quota"}]}"#;
    let report = Taped::new(source).model(model).record().replay();
    assert!(report.is_same() && report.is_whole, "{}", summary(&report));
}
