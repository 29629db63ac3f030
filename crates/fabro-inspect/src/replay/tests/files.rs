//! What agents leave in files.

use insta::assert_snapshot;

use super::{Taped, summary};

const SOURCE: &str = r#"digraph {
    start -> plan
    plan [prompt="Plan."ROUTING]
    plan -> big [label=big]
    plan -> exit [label=small]
    big [shape=parallelogram, script="true"]
    big -> exit
}"#;

/// An agent that writes this into a file, and answers after that.
fn writes(file: &str, text: &str, routing: bool, answers: &[&str]) -> Taped {
    let write = serde_json::json!({"name": "write_file", "arguments": {"file_path": file, "content": text}});
    let mut turns = vec![serde_json::json!({"tool_calls": [write]})];
    turns.extend(answers.iter().map(|text| serde_json::json!({"text": text})));
    let model = serde_json::json!({"plan": turns}).to_string();
    let routing = if routing { ", output_schema=routing" } else { "" };
    let source = SOURCE.replace("ROUTING", routing);
    Taped::new(&source).model(&model).exits("true", 0)
}

/// Replays it as it was, without the file, and with another one.
#[track_caller]
fn check(taped: &Taped, file: &str) {
    let path = taped.dir.path().join(file);
    let report = taped.replay();
    assert!(report.is_same() && report.is_whole, "{}", summary(&report));
    for now in ["{\"preferred_next_label\": \"small\"}", "{\"outcome\": 7}"] {
        std::fs::write(&path, now).unwrap();
        let report = taped.replay();
        assert!(report.is_same() && report.is_whole, "{now}: {}", summary(&report));
    }
    std::fs::remove_file(&path).unwrap();
    let report = taped.replay();
    assert!(report.is_same() && report.is_whole, "without it: {}", summary(&report));
    // A change elsewhere in the node leaves what the agent had left.
    let report = taped.with("Plan.", "Plan all.");
    assert_eq!(report.differences.len(), 1, "{}", summary(&report));
    assert_eq!(report.differences[0].stage.as_deref(), Some("plan@1"), "{}", summary(&report));
}

#[test]
fn directives_of_files_are_those_of_the_record() {
    let big = r#"{"preferred_next_label": "big", "context_updates": {"size": 3}}"#;
    for file in ["status.json", "notes.md"] {
        for routing in [false, true] {
            check(&writes(file, big, routing, &["Done."]).record(), file);
        }
        Taped::check_everywhere(|| writes(file, big, true, &["Done."]).record());
        // One that says no more than that the stage is done.
        let done = r#"{"outcome": "succeeded"}"#;
        check(&writes(file, done, true, &["Done."]).record(), file);
        let failed = r#"{"outcome": "failed", "failure_reason": "too big"}"#;
        check(&writes(file, failed, true, &["Done."]).record(), file);
    }
}

#[test]
fn what_was_wrong_with_a_file_is_that_of_the_record() {
    let answers = ["Done.", r#"{"preferred_next_label": "big"}"#];
    for text in [r#"{"preferred_next_label": 7}"#, "nothing"] {
        check(&writes("status.json", text, true, &answers).record(), "status.json");
        let never = writes("status.json", text, true, &["Done.", "Done.", "Done."]).record();
        check(&never, "status.json");
    }
}

#[test]
fn a_node_that_has_to_have_directives_now_has_those_of_its_files() {
    let big = writes("status.json", r#"{"preferred_next_label": "big"}"#, false, &["Done."]);
    let schema =
        |taped: Taped| summary(&taped.record().with("Plan.\"", "Plan.\", output_schema=routing"));
    assert_snapshot!(schema(big), @"15 compared");
    assert_snapshot!(schema(writes("status.json", "{}", false, &["Done."])), @r#"
    8 compared
    event plan@1
    - Some("stage.ended plan@1: succeeded")
    + None
    plan@1 needs something that was not recorded
    "#);
}
