//! The ceiling of a fidelity: what gives way to it, and how much work that is.

use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::*;

#[test]
fn a_parent_that_is_too_long_is_cut_after_a_line() {
    let parent = run(vec![command("test", &"some words\n".repeat(25), "", 0)], json!({}));
    let parent = parent.text(Fidelity::Compact);
    let child = Run { parent: Some(&parent), ..run(vec![], json!({})) };
    let limits = Limits { compact: 150, high: 0 };
    let text = child.render(Fidelity::Compact, limits, &O200k);
    let end = "    some words\n    ```\n… (268 characters omitted)\n\n# This workflow\n\nGoal: Add a /health endpoint";
    assert!(text.contains(end), "{text}");
}

/// Values of every kind, each longer than any limit that a line or a value once had.
fn long_values() -> (Run<'static>, Vec<String>) {
    let words = |name: &str, times| format!("{name} {}end of {name}", "with words ".repeat(times));
    let lines = |name: &str| (1..=24).map(|n| format!("{name} {n}")).collect::<Vec<_>>().join("\n");
    let json =
        json!({"findings": vec![json!({"file": "src/main.rs", "line": 7}); 100]}).to_string();
    let script = lines("echo");
    let detail = Detail::command(&*script, &*json, &*words("stderr", 200), 0);
    let files: Vec<_> = (1..=40).map(|n| format!("src/file_{n}.rs")).collect();
    let notes = words("notes", 150);
    let test = Stage {
        detail,
        notes: Some(notes.clone()),
        files: files.clone(),
        ..Stage::new("test", Status::Succeeded)
    };
    let feedback = words("feedback", 400);
    let detail = Detail::Human {
        question: words("question", 120),
        answer: "[R] Revise".into(),
        text: Some(feedback.clone()),
    };
    let gate = Stage { detail, ..Stage::new("gate", Status::Succeeded) };
    let value = words("value", 100);
    let table = lines("row");
    let whole = vec![json.clone(), notes, feedback, value.clone(), files.join(", ")];
    let context = json!({"value": value, "table": table, "list": [json]});
    (run(vec![test, gate], context), whole)
}

#[test]
fn only_the_ceiling_cuts() {
    let (run, whole) = long_values();
    for fidelity in [Fidelity::Compact, Fidelity::SummaryHigh] {
        let text = run.text(fidelity);
        for value in &whole {
            assert!(text.contains(value), "{value} in {text}");
        }
        assert!(!text.contains("omitted"), "{text}");
        assert!(text.contains("echo 24\n") && text.contains("row 24\n"), "{text}");
    }
    let limits = Limits { compact: 100_000, high: 0 };
    let long = "x y z ".repeat(20_000);
    let text = Run { context: vec![], ..run }.with("notes", &long);
    let text = text.render(Fidelity::Compact, limits, &O200k);
    assert!(text.contains(long.trim()), "the ceiling is the configured one");
    let mut run = long_values().0;
    run.stages.remove(0);
    run.context.clear();
    let text = run.text(Fidelity::SummaryMedium);
    assert!(text.contains("end of feedback") && !text.contains("omitted"), "{text}");
}

#[test]
fn the_largest_is_cut_first_and_says_where_all_of_it_is() {
    let (run, whole) = long_values();
    let huge = format!("start {} end", "huge words ".repeat(30_000));
    let run = run.with("huge", &huge);
    let saved = std::cell::RefCell::new(Vec::new());
    let save = |value: &serde_json::Value| {
        saved.borrow_mut().push(value.clone());
        Some("/runtime/blobs/0123.json".to_owned())
    };
    let text = run.preamble(Fidelity::Compact, Limits::default()).save_with(save).render(&O200k);
    for value in &whole {
        assert!(text.contains(value), "{value} in {text}");
    }
    let huge_line =
        text.lines().find(|line| line.starts_with("- huge: start huge words ")).unwrap();
    assert!(
        huge_line.ends_with(" characters omitted) See: /runtime/blobs/0123.json"),
        "{huge_line}"
    );
    assert_eq!(text.matches("omitted").count(), 1, "{text}");
    assert!(saved.into_inner().iter().all(|value| *value == json!(huge)));
    assert!(O200k.count(&text) > 7_600, "the room is used");

    let text = run.text(Fidelity::Compact);
    assert!(text.ends_with(" characters omitted)") && !text.contains("See:"), "no file is named");
}

#[test]
fn every_output_of_many_branches_has_a_part() {
    let branch = |n: usize| Branch {
        id: format!("branch_{n}"),
        status: Status::Succeeded,
        notes: None,
        output: Output::Text(format!("answer {n}: {}", "and more words ".repeat(500))),
        is_command: false,
    };
    let branches: Vec<_> = (1..=50).map(branch).collect();
    let save = |_: &serde_json::Value| Some(format!("/runtime/blobs/{}.json", "0123".repeat(16)));
    let detail = Detail::Parallel { branches: branches.clone() };
    let run = run(vec![Stage { detail, ..Stage::new("fork", Status::Succeeded) }], json!({}));
    let text = run.preamble(Fidelity::Compact, Limits::default()).save_with(save).render(&O200k);
    let sections = branch_sections(&branches, Fidelity::Compact, 8_000, &O200k, &save);
    for text in [text, sections] {
        let tokens = O200k.count(&text);
        assert!((7_000..=8_000).contains(&tokens), "{tokens}");
        assert_eq!(text.matches("See: /runtime/blobs/").count(), 50, "{text}");
        assert!(text.contains("branch_50") && !text.contains("details omitted"), "{text}");
    }
}

#[test]
fn the_oldest_stages_and_values_are_left_out_first() {
    let stages = (0..400).map(|n| Stage::new(format!("stage_{n}"), Status::Succeeded)).collect();
    let mut run = run(stages, json!({}));
    run.context = (0..3_000)
        .map(|n| (format!("key_{n:04}"), Shown::Value(Arc::new(json!("some words of a value")))))
        .collect();
    let low = run.render(Fidelity::SummaryLow, Limits::default(), &O200k);
    let shown = low.matches("- **stage_").count();
    assert!(low.contains(&format!("({} earlier stages omitted)\n", 400 - shown)), "{low}");
    assert!(low.ends_with("- **stage_399**: success"));
    assert!(shown < 100 && O200k.count(&low) > 550, "{low}");

    let medium = run.render(Fidelity::SummaryMedium, Limits::default(), &O200k);
    assert!(medium.ends_with("- (more than 1000 values omitted)"), "{medium}");
    assert!(O200k.count(&medium) > 1_400 && !medium.contains("(goal cut)"));

    let goal = format!("{GOAL} and say so. ").repeat(200);
    let cut = Run { goal: &goal, ..run }.render(Fidelity::SummaryMedium, Limits::default(), &O200k);
    assert!(O200k.count(&cut) > 1_400);
    assert!(cut.contains("… (goal cut)\n\n## Completed stages\n("), "{cut}");
    assert!(cut.ends_with("- (more than 1000 values omitted)"), "{cut}");
}

#[test]
fn a_huge_output_is_cut_and_others_are_not() {
    let wide = "x y z ".repeat(20_000);
    let tall = format!("{wide}\n").repeat(30);
    let text =
        run(vec![command("small", "ok", "", 0), command("huge", &tall, &wide, 1)], json!({}))
            .text(Fidelity::SummaryMedium);
    assert!(text.contains("- **small**: success\n"), "{text}");
    assert!(text.contains("  - Stdout: (3598651 characters omitted)\n    ```\n"), "{text}");
}

#[test]
fn only_what_is_shown_is_pulled() {
    let mut pulled = 0;
    let stages = std::iter::repeat_with(|| {
        pulled += 1;
        command("build", &"warning: unused variable `x`\n".repeat(25), "", 0)
    });
    let preamble = Preamble::new(GOAL).earlier_stages(10_000, stages).render(&O200k);
    let note = format!("({} earlier stages omitted)", 10_000 - (pulled - 1));
    assert!(preamble.contains(&note), "{preamble}");
    assert!(pulled < 200);
}

/// Adds up what it is asked to count.
#[derive(Default)]
struct Work(AtomicUsize);

impl CountTokens for Work {
    fn count(&self, text: &str) -> usize {
        self.0.fetch_add(text.len(), Ordering::Relaxed);
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

/// A counter that finds too much in any text.
struct Never;

impl CountTokens for Never {
    fn count(&self, _: &str) -> usize {
        usize::MAX
    }
}

#[test]
fn any_counter_ends_it() {
    let limits = Limits { compact: 800, high: 0 };
    assert_eq!(every_kind().render(Fidelity::Compact, limits, &Never), "");
    let limits = Limits { compact: 0, high: 0 };
    assert_eq!(every_kind().render(Fidelity::Compact, limits, &O200k), "");
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
                    is_command: times % 2 == 0,
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
        has_files in any::<bool>(),
    ) {
        let context = context
            .into_iter()
            .map(|(key, value)| (key, Shown::Value(Arc::new(value.into()))))
            .collect();
        let run = Run { goal: &goal, stages, context, parent: parent.as_deref() };
        let limits = Limits { compact, high: 3 * compact };
        let preamble = run.preamble(fidelity, limits);
        let preamble = if has_files {
            preamble.save_with(|_| Some(format!("/runtime/blobs/{}.json", "0f".repeat(32))))
        } else {
            preamble
        };
        let preamble = preamble.render(&O200k);
        let ceiling = match fidelity {
            Fidelity::Full => 0,
            Fidelity::Compact | Fidelity::Truncate => compact,
            Fidelity::SummaryHigh => 3 * compact,
            Fidelity::SummaryMedium => 1_500,
            Fidelity::SummaryLow => 600,
        };
        let tokens = O200k.count(&preamble);
        prop_assert!(tokens <= ceiling, "{tokens} of {ceiling}");
        let hidden = preamble.contains(|c: char| c.is_control() && c != '\n');
        prop_assert!(!hidden);
    }
}
