//! What each fidelity tells, to the letter.

use fabro_tokens::CharsPerFour;

use super::*;

const BLOB: &str = "/path/to/runtime/blobs/<blob_id>.json";

#[test]
fn compact_with_small_outputs() {
    let stages = vec![
        plan(Output::Text("The plan".into()), &["docs/plan.md"]),
        command("test", "running 42 tests … 41 passed, 1 failed\n", "", 0),
    ];
    assert_eq!(
        run(stages, json!({"tests_passed": false})).text(Fidelity::Compact),
        "Goal: Add a /health endpoint to the API server

## Completed stages
- **plan**: success
  - Model: claude-sonnet-4-5, 12.4k tokens in / 3.2k out
  - Files: docs/plan.md
- **test**: success
  - Script: `cargo test 2>&1 || true`
  - Stdout:
    ```
    running 42 tests … 41 passed, 1 failed
    ```
  - Stderr: (empty)

## Context
- tests_passed: false"
    );
}

#[test]
fn compact_with_offloaded_outputs() {
    let mut test = command("test", "", "", 0);
    if let Detail::Command { stdout, stderr, .. } = &mut test.detail {
        *stdout = Output::File(BLOB.into());
        *stderr = Output::None;
    }
    let stages = vec![plan(Output::File(BLOB.into()), &["src/main.rs", "tests/api_test.rs"]), test];
    let context = json!({
        "outcome": "succeeded", "last_stage": "test", "command.output": "x", "current_node": "a",
        "internal.run_id": "a", "graph.goal": "a", "thread.a": 1, "response.plan": "a",
        "failure_class": "", "preferred_label": "", "last_response": "a", "blank": " ", "none": null,
    });
    assert_eq!(
        run(stages, context).text(Fidelity::Compact),
        "Goal: Add a /health endpoint to the API server

## Completed stages
- **plan**: success
  - Model: claude-sonnet-4-5, 12.4k tokens in / 3.2k out
  - Files: src/main.rs, tests/api_test.rs
  - Response: See: /path/to/runtime/blobs/<blob_id>.json
- **test**: success
  - Script: `cargo test 2>&1 || true`
  - Stdout: See: /path/to/runtime/blobs/<blob_id>.json
  - Stderr: (empty)"
    );
}

#[test]
fn summary_low_is_a_line_a_stage() {
    insta::assert_snapshot!(every_kind().text(Fidelity::SummaryLow), @r"
    Goal: Add a /health endpoint to the API server

    ## Completed stages
    - **plan**: success
    - **gate**: success
    - **checks**: partial success
    - **test** (visit 2): fail: exit code 101
    - **pause**: skipped
    ");
}

#[test]
fn summary_medium_tells_what_is_notable() {
    insta::assert_snapshot!(every_kind().text(Fidelity::SummaryMedium), @r#"
    Goal: Add a /health endpoint to the API server

    ## Completed stages
    - **plan**: success
      - Notes: two files to change
      - Outcome: needs_dod
      - Preferred label: Fix
      - Suggested next: `fix`, `test`
      - Response:
        ```
        1. Route
        2. Test
        ```
    - **gate**: success
      - Answer: [N] Not yet
      - Text: rename it first
    - **checks**: partial success
      - Branches:
        - **lint**: success
          - Output:
            ```
            clean
            ```
        - **audit**: fail
    - **test** (visit 2): fail
      - Failure: exit code 101
      - Stdout:
        ```
        (57 lines omitted)
        line 58
        line 59
        line 60
        ```
      - Stderr:
        ````
        error: ``` unclosed
        ````
    - **pause**: skipped

    ## Context
    - human.gate.label: Not yet
    - list: [1,{"a":"b"}]
    - notes:
      ````
      one
      two ```
      ````
    - number: 7
    "#);
}

#[test]
fn compact_tells_by_handler() {
    let text = every_kind().text(Fidelity::Compact);
    let (head, tail) = text.split_once("    line 36\n").unwrap();
    insta::assert_snapshot!(head, @r"
    Goal: Add a /health endpoint to the API server

    ## Completed stages
    - **plan**: success
      - Model: claude-sonnet-4-5, 12.4k tokens in / 3.2k out
      - Notes: two files to change
    - **gate**: success
      - Question: Ship it?
      - Answer: [N] Not yet
      - Text: rename it first
    - **checks**: partial success
      - Branches:
        - **lint**: success
          - Output:
            ```
            clean
            ```
        - **audit**: fail
    - **test** (visit 2): fail
      - Script: `cargo test 2>&1 || true`
      - Stdout:
        ```
        (35 lines omitted)
    ");
    insta::assert_snapshot!(tail.split_once("    line 60\n").unwrap().1, @r#"
        ```
      - Stderr:
        ````
        error: ``` unclosed
        ````
      - Failure: exit code 101
    - **pause**: skipped

    ## Context
    - human.gate.label: Not yet
    - list: [1,{"a":"b"}]
    - notes:
      ````
      one
      two ```
      ````
    - number: 7
    "#);
}

#[test]
fn summary_high_is_a_section_a_stage() {
    let text = every_kind().text(Fidelity::SummaryHigh);
    assert!(text.contains("\n  (10 lines omitted)\n  line 11\n"));
    insta::assert_snapshot!(text.split_once("- Script").unwrap().0, @r"
    Goal: Add a /health endpoint to the API server

    ## Completed stages

    ### plan: success
    - Model: claude-sonnet-4-5, 12.4k tokens in / 3.2k out
    - Response:
      ```
      1. Route
      2. Test
      ```
    - Notes: two files to change
    - Outcome: needs_dod
    - Preferred label: Fix
    - Suggested next: `fix`, `test`

    ### gate: success
    - Question: Ship it?
    - Answer: [N] Not yet
    - Text: rename it first

    ### checks: partial success
    - Branches:
      - **lint**: success
        - Output:
          ```
          clean
          ```
      - **audit**: fail

    ### test (visit 2): fail
    ");
}

#[test]
fn full_and_truncate() {
    let run = every_kind();
    assert_eq!(run.render(Fidelity::Full, Limits::default(), &CharsPerFour), "");
    insta::assert_snapshot!(run.text(Fidelity::Truncate), @r"
    Goal: Add a /health endpoint to the API server
    Run: 01HF7YAT00000000000000001A
    ");
    let nothing = Run { goal: " ", stages: vec![], context: vec![], parent: None };
    assert_eq!(nothing.text(Fidelity::Compact), "");
    assert_eq!(nothing.text(Fidelity::Truncate), "Run: 01HF7YAT00000000000000001A");
}

#[test]
fn a_sub_workflow_is_told_what_happened_above() {
    let parent = run(vec![Stage::new("plan", Status::Succeeded)], json!({}));
    let parent = parent.text(Fidelity::Compact);
    let child = Run { parent: Some(&parent), ..run(vec![command("a", "", "", 0)], json!({})) };
    insta::assert_snapshot!(child.text(Fidelity::SummaryLow), @r"
    # Parent workflow

    Goal: Add a /health endpoint to the API server

    ## Completed stages
    - **plan**: success

    # This workflow

    Goal: Add a /health endpoint to the API server

    ## Completed stages
    - **a**: success
    ");
}

#[test]
fn keys_for_preambles() {
    for key in [
        "tests_passed",
        "output.audit",
        "human.gate.label",
        "parallel.fan_in.best_id",
        "x.internal.",
    ] {
        assert!(shows_key(key), "{key}");
    }
    for key in [
        "internal.run_id",
        "current_node",
        "graph.goal",
        "thread.a",
        "response.plan",
        "command.exit_code",
        "failure_class",
        "outcome",
        "last_stage",
        "last_response",
        "preferred_label",
    ] {
        assert!(!shows_key(key), "{key}");
    }
}
