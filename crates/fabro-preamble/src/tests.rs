use fabro_tokens::{CharsPerFour, CountTokens, O200k};
use fabro_types::Fidelity;
use proptest::prelude::*;
use serde_json::json;

use super::*;

const GOAL: &str = "Add a /health endpoint to the API server";

/// A run to render: stages oldest first, as people tell them.
struct Run<'a> {
    goal: &'a str,
    stages: Vec<Stage>,
    context: Vec<(String, Shown)>,
    parent: Option<&'a str>,
}

impl Run<'_> {
    fn render(&self, fidelity: Fidelity, limits: Limits, count: &dyn CountTokens) -> Preamble {
        let input = Input {
            goal: self.goal,
            run_id: "01HF7YAT00000000000000001A",
            total_stages: self.stages.len(),
            stages: &mut self.stages.iter().rev().cloned(),
            context: &mut self.context.iter().cloned(),
            parent: self.parent,
        };
        render(input, fidelity, &limits, count)
    }

    fn text(&self, fidelity: Fidelity) -> String {
        self.render(fidelity, Limits::default(), &O200k).text
    }
}

fn run(stages: Vec<Stage>, context: serde_json::Value) -> Run<'static> {
    let serde_json::Value::Object(context) = context else { panic!("an object") };
    let context =
        context.into_iter().map(|(key, value)| (key, Shown::Value(Arc::new(value)))).collect();
    Run { goal: GOAL, stages, context, parent: None }
}

fn command(node: &str, stdout: &str, stderr: &str, exit_code: i32) -> Stage {
    let detail = Detail::Command {
        script: "cargo test 2>&1 || true".into(),
        stdout: Output::Text(stdout.into()),
        stderr: Output::Text(stderr.into()),
        exit_code: Some(exit_code),
    };
    let status = if exit_code == 0 { Status::Succeeded } else { Status::Failed };
    let failure = (exit_code != 0).then(|| format!("exit code {exit_code}"));
    Stage { detail, failure, ..Stage::new(node, status) }
}

fn plan(response: Output, files: &[&str]) -> Stage {
    let detail = Detail::Llm {
        model: "claude-sonnet-4-5".into(),
        input_tokens: 12_400,
        output_tokens: 3_200,
        response,
    };
    let files = files.iter().map(|file| (*file).to_owned()).collect();
    Stage { detail, files, ..Stage::new("plan", Status::Succeeded) }
}

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

/// One stage of every kind, with everything that can be told about it.
fn every_kind() -> Run<'static> {
    let branch = |id: &str, status, output| Branch { id: id.into(), status, notes: None, output };
    let plan = Stage {
        word: Some("needs_dod".into()),
        preferred_label: Some("Fix".into()),
        suggested_next_ids: vec!["fix".into(), "test".into()],
        notes: Some("two files\nto change".into()),
        ..plan(Output::Text("1. Route\n2. Test".into()), &[])
    };
    let gate = Stage {
        detail: Detail::Human {
            question: "Ship it?".into(),
            answer: "[N] Not yet".into(),
            text: Some("rename it first".into()),
        },
        ..Stage::new("gate", Status::Succeeded)
    };
    let checks = Stage {
        detail: Detail::Parallel {
            branches: vec![
                branch("lint", Status::Succeeded, Output::Text("clean\n".into())),
                branch("audit", Status::Failed, Output::None),
            ],
        },
        ..Stage::new("checks", Status::PartiallySucceeded)
    };
    let lines = (1..=60).map(|n| format!("line {n}")).collect::<Vec<_>>().join("\n");
    let test = Stage { visit: 2, ..command("test", &lines, "error: ``` unclosed\n", 101) };
    let wait = Stage::new("pause", Status::Skipped);
    run(
        vec![plan, gate, checks, test, wait],
        json!({"human.gate.text": "rename it first", "parallel.results": [], "human.gate.label": "Not yet",
            "list": [1, {"a": "b"}], "notes": "one\ntwo ```\n", "number": 7}),
    )
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
    assert_eq!(run.render(Fidelity::Full, Limits::default(), &CharsPerFour), Preamble::default());
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
fn a_parent_that_is_too_long_is_cut_after_a_line() {
    let parent = run(vec![command("test", &"some words\n".repeat(25), "", 0)], json!({}));
    let parent = parent.text(Fidelity::Compact);
    let child = Run { parent: Some(&parent), ..run(vec![], json!({})) };
    let limits = Limits { compact: 300, high: 0 };
    let text = child.render(Fidelity::Compact, limits, &O200k).text;
    let end = "    some words\n    ```\n… (cut)\n\n# This workflow\n\nGoal: Add a /health endpoint";
    assert!(text.contains(end), "{text}");
}

#[test]
fn the_oldest_stages_and_values_are_left_out_first() {
    let stages = (0..400).map(|n| Stage::new(format!("stage_{n}"), Status::Succeeded)).collect();
    let mut run = run(stages, json!({}));
    run.context = (0..3_000)
        .map(|n| (format!("key_{n:04}"), Shown::Value(Arc::new(json!("some words of a value")))))
        .collect();
    let low = run.render(Fidelity::SummaryLow, Limits::default(), &O200k);
    assert!(low.text.contains(&format!("({} earlier stages omitted)\n", low.omitted_stages)));
    assert!(low.text.ends_with("- **stage_399**: success"));
    assert!(low.omitted_stages > 300 && O200k.count(&low.text) > 550, "{}", low.text);

    let medium = run.render(Fidelity::SummaryMedium, Limits::default(), &O200k);
    assert!(medium.text.ends_with("- (more than 1000 values omitted)"), "{}", medium.text);
    assert!(O200k.count(&medium.text) > 1_400 && !medium.goal_cut);

    let goal = format!("{GOAL} and say so. ").repeat(200);
    let cut = Run { goal: &goal, ..run }.render(Fidelity::SummaryMedium, Limits::default(), &O200k);
    assert!(cut.goal_cut && O200k.count(&cut.text) > 1_400);
    let frame = "… (goal cut)\n\n## Completed stages\n(400 earlier stages omitted)\n\n## Context\n";
    assert!(
        cut.text.ends_with(&format!("{frame}- (more than 1000 values omitted)")),
        "{}",
        cut.text
    );
}

#[test]
fn a_huge_stage_is_shown_with_less_detail() {
    let wide = "x y z ".repeat(20_000);
    let tall = format!("{wide}\n").repeat(30);
    let text =
        run(vec![command("small", "ok", "", 0), command("huge", &tall, &wide, 1)], json!({}))
            .text(Fidelity::SummaryMedium);
    assert!(text.contains("- **small**: success\n"), "{text}");
    assert!(text.contains("(27 lines omitted)") || text.ends_with("- **huge**: fail"), "{text}");
}

#[test]
fn only_what_is_shown_is_pulled() {
    let mut pulled = 0;
    let mut stages = std::iter::repeat_with(|| {
        pulled += 1;
        command("build", &"warning: unused variable `x`\n".repeat(25), "", 0)
    });
    let input = Input {
        goal: GOAL,
        run_id: "",
        total_stages: 10_000,
        stages: &mut stages,
        context: &mut std::iter::empty(),
        parent: None,
    };
    let preamble = render(input, Fidelity::Compact, &Limits::default(), &O200k);
    assert_eq!(preamble.omitted_stages, 10_000 - (pulled - 1));
    assert!(pulled < 200);
}

/// Adds up what it is asked to count.
#[derive(Default)]
struct Work(std::sync::atomic::AtomicUsize);

impl CountTokens for Work {
    fn count(&self, text: &str) -> usize {
        self.0.fetch_add(text.len(), std::sync::atomic::Ordering::Relaxed);
        text.len()
    }
}

#[test]
fn the_work_does_not_grow_with_the_run() {
    let wide = format!("{}\n", "😀".repeat(700)).repeat(10);
    let stages = vec![command("wide", &wide, "", 1); 400];
    for fidelity in [Fidelity::Compact, Fidelity::SummaryMedium, Fidelity::SummaryHigh] {
        let ceiling = if fidelity == Fidelity::SummaryHigh { 32_000 } else { 8_000 };
        let work = Work::default();
        run(stages.clone(), json!({})).render(fidelity, Limits::default(), &work);
        assert!(work.0.into_inner() < 100 * ceiling);
    }
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

#[test]
fn parts_tell_where_the_text_came_from() {
    let preamble = every_kind().render(Fidelity::Compact, Limits::default(), &O200k);
    let mut end = 0;
    for part in &preamble.parts {
        assert!(preamble.text[end..part.range.start].chars().all(|c| c == '\n'));
        end = part.range.end;
    }
    assert_eq!(end, preamble.text.len());
    let test = PartSource::Stage { node: "test".into(), visit: 2 };
    let part = preamble.parts.iter().find(|part| part.source == test).unwrap();
    assert!(preamble.text[part.range.clone()].starts_with("- **test** (visit 2): fail\n"));
}

/// A counter that finds too much in any text.
struct Never;

impl CountTokens for Never {
    fn count(&self, _: &str) -> usize {
        usize::MAX
    }
}

#[test]
fn any_counter_ends_it() {
    assert_eq!(every_kind().render(Fidelity::Compact, Limits::default(), &Never).text, "");
    let limits = Limits { compact: 0, high: 0 };
    assert_eq!(every_kind().render(Fidelity::Compact, limits, &O200k).text, "");
}

fn hostile() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("😀👩‍👩‍👧‍👦"),
        Just("日本語のテキスト"),
        Just("\u{1b}[31m\0\r"),
        Just("```"),
        Just("a"),
        Just(" "),
        Just("\n"),
        Just("𒀀\u{301}\u{200d}"),
        Just("word and more words "),
        Just("- `x`\n"),
        Just("\u{3000}"),
    ];
    let row = (piece, prop_oneof![0_usize..40, 1_000_usize..3_000]);
    proptest::collection::vec(row, 0..4)
        .prop_map(|rows| rows.iter().map(|(piece, times)| piece.repeat(*times)).collect())
}

fn hostile_stage() -> impl Strategy<Value = Stage> {
    let texts = (hostile(), hostile(), hostile(), 0_u8..6, 0_usize..60);
    texts.prop_map(|(a, b, c, kind, times)| {
        let detail = match kind {
            0 => Detail::Command {
                script: a.clone(),
                stdout: Output::Text(b.clone()),
                stderr: Output::File(c.clone()),
                exit_code: None,
            },
            1 => Detail::Llm {
                model: a.clone(),
                input_tokens: u64::MAX,
                output_tokens: 0,
                response: Output::Text(b.clone()),
            },
            2 => Detail::Human { question: a.clone(), answer: b.clone(), text: Some(c.clone()) },
            3 => {
                let branch = Branch {
                    id: a.clone(),
                    status: Status::Failed,
                    notes: Some(b.clone()),
                    output: Output::Text(c.clone()),
                };
                Detail::Parallel { branches: vec![branch; times] }
            }
            _ => Detail::Other,
        };
        Stage {
            detail,
            notes: Some(c.clone()),
            failure: Some(b),
            preferred_label: Some(c),
            files: vec![a.clone(); times],
            ..Stage::new(a, Status::Failed)
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_ceiling_holds(
        goal in hostile(),
        parent in proptest::option::of(hostile()),
        stages in proptest::collection::vec(hostile_stage(), 0..8),
        context in proptest::collection::vec((hostile(), hostile()), 0..5),
        compact in prop_oneof![0_usize..60, 100_usize..9_000],
        fidelity in proptest::sample::select(Fidelity::ALL.to_vec()),
    ) {
        let context = context
            .into_iter()
            .map(|(key, value)| (key, Shown::Value(Arc::new(value.into()))))
            .collect();
        let run = Run { goal: &goal, stages, context, parent: parent.as_deref() };
        let limits = Limits { compact, high: 3 * compact };
        let preamble = run.render(fidelity, limits, &O200k);
        let ceiling = match fidelity {
            Fidelity::Full => 0,
            Fidelity::Compact | Fidelity::Truncate => compact,
            Fidelity::SummaryHigh => 3 * compact,
            Fidelity::SummaryMedium => 1_500,
            Fidelity::SummaryLow => 600,
        };
        let tokens = O200k.count(&preamble.text);
        prop_assert!(tokens <= ceiling, "{tokens} of {ceiling}");
        let shown = preamble.parts.iter().filter(|part| matches!(part.source, PartSource::Stage { .. }));
        if !matches!(fidelity, Fidelity::Full) {
            prop_assert_eq!(shown.count() + preamble.omitted_stages, run.stages.len());
        }
        let hidden = preamble.text.contains(|c: char| c.is_control() && c != '\n');
        prop_assert!(!hidden);
    }
}
