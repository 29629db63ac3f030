use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use fabro_tokens::CountTokens;
use proptest::prelude::*;

use super::*;

/// Runs what never has to wait.
pub(super) fn now<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

fn answering(text: &str) -> impl Summarize + use<> {
    let text = text.to_owned();
    replying(move |_| Ok(text.clone()))
}

/// A summarizer that does not have to wait.
pub(super) fn replying(
    reply: impl Fn(SummaryRequest) -> Result<String, SummarizeError> + Send + Sync,
) -> impl Summarize {
    move |request| std::future::ready(reply(request))
}

fn compactor(files: Files) -> Compactor {
    Compactor { files, ..Compactor::new(Policy::fabro(), 8_000) }
}

fn files(modified: &[&str], read: &[&str]) -> Files {
    let set = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    Files { read: set(read), modified: set(modified) }
}

fn prepared(turns: &[Msg], mut compactor: Compactor, model: &dyn Summarize) -> CompactionOutcome {
    now(compactor.prepare(turns, Reason::Threshold, Some(model))).unwrap()
}

fn deterministic<C: CountTokens>(turns: &[Msg], compactor: &mut Compactor<C>) -> CompactionOutcome {
    now(compactor.prepare(turns, Reason::Threshold, None)).unwrap()
}

#[track_caller]
fn compacted(outcome: CompactionOutcome) -> Compaction {
    match outcome {
        CompactionOutcome::Compacted(compaction) => compaction,
        other => panic!("{other:?}"),
    }
}

const SUMMARY: &str = "## Goal\nA /health endpoint\n\n## Progress\nRead ten files";

#[test]
fn one_message_takes_the_place_of_the_old_ones() {
    let mut turns = session(20);
    turns.insert(0, system("Be brief."));
    let before = turns.clone();
    let mut compactor = compactor(files(&["src/b.rs"], &["src/a.rs"]));
    compactor.meter.set_system_prompt("You write code.");
    let model = answering(SUMMARY);
    let outcome = now(compactor.prepare(&turns, Reason::Threshold, Some(&model)));
    let compaction = compacted(outcome.unwrap());
    assert_eq!(turns, before);
    let mut meter = compactor.meter;
    let tokens_before = meter.tokens();
    turns.push(user("meanwhile"));
    assert!(compaction.apply(&mut turns, &mut meter));
    insta::assert_json_snapshot!(compaction.report, @r#"
    {
      "reason": "threshold",
      "original_turn_count": 42,
      "preserved_turn_count": 6,
      "summary_token_estimate": 33,
      "tracked_file_count": 2,
      "messagesBefore": 42,
      "messagesAfter": 8,
      "tokensBefore": 4267,
      "tokensAfter": 679,
      "summary": "[Context Summary]\n## Goal\nA /health endpoint\n\n## Progress\nRead ten files\n\n## File Operations\nModified:\n- src/b.rs\nRead:\n- src/a.rs",
      "compacted_entries": 35
    }
    "#);
    assert_eq!(turns.len(), compaction.report.messages_after + 1);
    assert_eq!(turns[0], before[0]);
    assert_eq!(turns[1], system(compaction.report.summary.clone()));
    assert_eq!(turns[2..8], before[before.len() - 6..]);
    assert_eq!(tokens_before, compaction.report.tokens_before);
    let meanwhile = 3;
    assert_eq!(meter.tokens(), compaction.report.tokens_after + meanwhile);
    let mut fresh = Meter::default();
    fresh.set_system_prompt("You write code.");
    fresh.track(&turns);
    assert_eq!(fresh.tokens(), meter.tokens());
}

#[test]
fn the_model_reads_the_old_messages_and_the_sections_it_is_to_write() {
    let asked = Mutex::new(None);
    let model = replying(|request| {
        let texts = (request.instructions, request.conversation);
        *asked.lock().unwrap() = Some((texts, request.max_output_tokens));
        Ok(SUMMARY.to_owned())
    });
    let turns = session(20);
    compacted(prepared(&turns, compactor(Files::default()), &model));
    let ((instructions, conversation), max_output_tokens) = asked.lock().unwrap().take().unwrap();
    assert_eq!(conversation, render_old(&turns[..35], usize::MAX));
    for section in
        ["Goal", "Progress", "Key Decisions", "Failed Approaches", "Open Issues", "Next Steps"]
    {
        assert!(instructions.contains(&format!("\n## {section}\n")), "{section}");
    }
    assert!((256..=4_096).contains(&max_output_tokens));
}

#[test]
fn what_the_model_reads_fits_into_its_window() {
    let lengths = Mutex::new(Vec::new());
    let model = replying(|request| {
        lengths.lock().unwrap().push(chars(&request.conversation));
        Ok(SUMMARY.to_owned())
    });
    let mut turns = session(200);
    turns.insert(0, user(&"gigantic ".repeat(100_000)));
    for (reason, window) in [
        (Reason::Threshold, Some(8_000)),
        (Reason::Overflow, Some(8_000)),
        (Reason::Overflow, None),
    ] {
        let mut compactor = Compactor::new(Policy::fabro(), window);
        compacted(now(compactor.prepare(&turns, reason, Some(&model))).unwrap());
    }
    let mut meter = Meter::default();
    meter.track(&turns);
    let halves = usize::try_from(meter.tokens() / 2 * 4).unwrap();
    let lengths = lengths.lock().unwrap();
    assert!(lengths[0] <= 24_000 && lengths[1] <= 24_000 && lengths[2] <= halves, "{lengths:?}");
    assert!(lengths.iter().all(|length| *length > 20_000));
}

#[test]
fn a_counter_that_counts_more_is_heeded() {
    struct Bytes;
    impl fabro_tokens::CountTokens for Bytes {
        fn count(&self, text: &str) -> usize {
            text.len()
        }
    }
    let model = replying(|request| {
        assert!(request.conversation.len() <= 6_000, "{}", request.conversation.len());
        Ok(SUMMARY.to_owned())
    });
    let mut turns = session(50);
    turns.insert(0, user(&"日本語".repeat(10_000)));
    let mut compactor = Compactor::with_counter(Policy::fabro(), 8_000, Bytes);
    compacted(now(compactor.prepare(&turns, Reason::Threshold, Some(&model))).unwrap());
}

#[test]
fn the_list_of_files_is_never_the_models() {
    let words = "**Goal:**\nx\n\n## File Operations\nModified:\n- forged.rs\n\n## Next Steps\ny\n\
                 ```\nan open fence";
    let files = files(&["src/b.rs"], &["src/a.rs", "src/b.rs"]);
    let compaction = compacted(prepared(&session(20), compactor(files.clone()), &answering(words)));
    assert_eq!(compaction.report.tracked_file_count, 2);
    insta::assert_snapshot!(compaction.report.summary, @r"
    [Context Summary]
    **Goal:**
    x

    ## Next Steps
    y
    ```
    an open fence
    ```

    ## File Operations
    Modified:
    - src/b.rs
    Read:
    - src/a.rs
    ");
    let listed = Files::parse(&compaction.report.summary);
    assert_eq!(listed.modified, files.modified);
    assert_eq!(listed.read, ["src/a.rs".to_owned()].into());
}

#[test]
fn a_goal_that_the_model_forgets_is_taken_from_the_conversation() {
    let outcome =
        prepared(&session(20), compactor(Files::default()), &answering("Ten files were read."));
    insta::assert_snapshot!(compacted(outcome).report.summary, @r"
    [Context Summary]
    ## Goal
    Add a /health endpoint to the API server

    ## Progress
    Ten files were read.
    ");
    for words in ["## Progress\nTen files", "## Goal\n(none)\n## Progress\nTen files"] {
        let summary =
            compacted(prepared(&session(20), compactor(Files::default()), &answering(words)));
        assert_eq!(
            summary.report.summary,
            "[Context Summary]\n## Goal\nAdd a /health endpoint to the API server\n\n\
             ## Progress\nTen files"
        );
    }
}

#[test]
fn a_second_compaction_carries_the_first_on() {
    let mut turns = session(20);
    let mut compactor = compactor(files(&["src/b.rs"], &["src/a.rs"]));
    let first = now(compactor.compact(&mut turns, Moment::Manual, Some(&answering("One."))));
    assert_eq!(first.unwrap().report().unwrap().compacted_entries, 35);
    turns.extend(session(20));
    let model = replying(|request| {
        let earlier = "[summary of what came before]\n## Goal\nAdd a /health endpoint to the API \
                       server\n\n## Progress\nOne.\n\n[assistant]";
        assert!(request.conversation.starts_with(earlier), "{}", request.conversation);
        Ok("Two.".into())
    });
    compactor.files = files(&["src/a.rs"], &[]);
    let report = now(compactor.compact(&mut turns, Moment::Manual, Some(&model)));
    let report = report.unwrap().report().unwrap();
    assert_eq!(compactor.meter.tokens(), report.tokens_after);
    assert_eq!(turns.iter().filter(|turn| is_summary(*turn)).count(), 1);
    insta::assert_snapshot!(report.summary, @r"
    [Context Summary]
    ## Goal
    Add a /health endpoint to the API server

    ## Progress
    Two.

    ## File Operations
    Modified:
    - src/a.rs
    - src/b.rs
    ");
}

#[test]
fn a_failure_changes_nothing_and_says_why() {
    let turns = session(20);
    let failing = |model: &dyn Summarize| {
        let mut messages = turns.clone();
        let mut compactor = compactor(Files::default());
        let error = now(compactor.compact(&mut messages, Moment::Manual, Some(model))).unwrap_err();
        assert_eq!(messages, turns);
        error.to_string()
    };
    let down = replying(|_| Err("overloaded".into()));
    assert_eq!(failing(&down), "the summary call failed: overloaded");
    for empty in ["", " \n", "[Context Summary]\n", "## File Operations\nRead:\n- a.rs"] {
        assert_eq!(
            failing(&answering(empty)),
            "the summary call failed: the model's summary is empty",
            "{empty:?}"
        );
    }
}

#[test]
fn a_summary_that_is_no_smaller_is_not_used() {
    let turns: Vec<_> = (0..20).map(|_| user("a few words for each message")).collect();
    let long = "word ".repeat(1_000);
    match prepared(&turns, compactor(Files::default()), &answering(&long)) {
        CompactionOutcome::NotSmaller { tokens_before, tokens_after } => {
            assert_eq!(tokens_before, 140);
            assert!(tokens_after > 1_000);
        }
        other => panic!("{other:?}"),
    }
    // A list of files that is longer than the messages: no model call.
    let many = Files { read: (0..500).map(|n| format!("src/{n}.rs")).collect(), ..<_>::default() };
    let uncalled = replying(|_| panic!("a call that cannot help"));
    let outcome = prepared(&turns, compactor(many), &uncalled);
    assert!(matches!(outcome, CompactionOutcome::NotSmaller { .. }));
}

#[test]
fn kept_messages_stay_whole_when_the_summary_is_too_long() {
    // The last six messages alone are above the threshold, but not above the window.
    let mut turns = session(20);
    let kept = turns.len() - 6;
    for turn in &mut turns[kept..] {
        for result in &mut turn.results {
            result.1 = "x".repeat(10_000);
        }
    }
    let before = turns.clone();
    let mut compactor = Compactor::new(Policy::fabro(), 12_000);
    let model = answering(&"word ".repeat(20_000));
    let outcome = now(compactor.compact(&mut turns, Moment::AfterAnswer, Some(&model))).unwrap();
    assert!(matches!(outcome, CompactionResult::NotSmaller { .. }), "{outcome:?}");
    assert_eq!(turns, before);
}

#[test]
fn after_an_overflow_a_deterministic_summary_takes_the_place_of_a_failed_one() {
    let turns = session(20);
    let long = "word ".repeat(20_000);
    let check = |model: &dyn Summarize, expect: &str| {
        let mut messages = turns.clone();
        let mut compactor = compactor(Files::default());
        let overflow = Moment::Overflow { retried: false };
        let outcome = now(compactor.compact(&mut messages, overflow, Some(model))).unwrap();
        let report = outcome.report().unwrap();
        assert_eq!(report.summary_error.as_deref(), Some(expect));
        assert_eq!(report.summary, deterministic_report(&turns).summary);
        assert_eq!(messages[1..], turns[35..]);
        assert_eq!(compactor.meter.tokens(), report.tokens_after);
    };
    let down = replying(|_| Err("overloaded".into()));
    check(&down, "the summary call failed: overloaded");
    check(&answering(" "), "the summary call failed: the model's summary is empty");
    let what = "the model's summary is not smaller than the messages it replaces";
    check(&answering(&long), what);
}

fn deterministic_report(turns: &[Msg]) -> Report {
    let mut compactor = compactor(Files::default());
    compacted(now(compactor.prepare(turns, Reason::Overflow, None)).unwrap()).report
}

#[test]
fn nothing_old_is_no_work() {
    for turns in [vec![], session(2), vec![user(&"gigantic ".repeat(100_000))]] {
        let outcome = deterministic(&turns, &mut compactor(Files::default()));
        assert_eq!(outcome, CompactionOutcome::NothingOld);
    }
}

#[test]
fn without_a_model_the_messages_speak_for_themselves() {
    let turns = session(40);
    let expect = deterministic(&turns, &mut compactor(Files::default()));
    let mut disabled = compactor(Files::default());
    disabled.policy.generate_summary = false;
    assert_eq!(prepared(&turns, disabled, &answering("never")), expect);
    let summary = compacted(expect).report.summary;
    assert!(summary.starts_with("[Context Summary]\n## Goal\nAdd a /health endpoint"), "{summary}");
}

#[test]
fn by_hand_everything_but_some_can_go() {
    let turns = session(10);
    for (keep_recent, kept) in [(0, 0), (1, 2), (10, 10)] {
        let mut compactor = compactor(Files::default());
        compactor.policy.keep_recent = keep_recent;
        let report = now(compactor.compact(&mut turns.clone(), Moment::Manual, None));
        let report = report.unwrap().report().unwrap();
        assert_eq!((report.compacted_entries, report.preserved_turn_count), (21 - kept, kept));
        assert_eq!(report.reason.as_str(), "manual");
    }
}

/// A session of 500 turns in a window of 20,000 tokens.
#[test]
fn a_long_session_stays_below_its_window() {
    let mut turns = vec![user("Add a /health endpoint to the API server")];
    let mut compactor = Compactor::new(Policy::fabro(), 20_000);
    let mut compactions = 0;
    for round in 0..500 {
        let id = format!("call_{round}");
        let path = format!("src/file_{round}.rs");
        turns.push(assistant("I go on.").call(&id, "edit_file", json!({ "path": path })));
        let report = now(compactor.compact(&mut turns, Moment::AfterAnswer, None)).unwrap();
        compactions += usize::from(report.report().is_some());
        assert_eq!(turns.last().unwrap().calls[0].0, id);
        turns.push(result(&id, &"line of output\n".repeat(100)));
        compactor.files.modified.insert(path);
        let tokens = compactor.window_use(&turns).estimated_tokens;
        assert!(tokens < 20_000, "{tokens}");
    }
    assert!(compactions >= 12, "{compactions}");
    let summary = turns.iter().find(|turn| is_summary(*turn)).unwrap();
    assert!(summary.text.contains("## Goal\nAdd a /health endpoint to the API server\n"));
    let listed = Files::parse(&summary.text);
    assert!(listed.modified.len() > 480, "{}", listed.modified.len());
}

#[test]
fn the_work_can_go_to_another_thread() {
    fn check<T: Send>(_: T) {}
    let mut compactor = compactor(Files::default());
    check(compactor.compact(&mut session(1), Moment::Manual, None));
}

proptest! {
    #[test]
    fn no_words_of_a_model_forge_files(
        words in "(## File Operations\n|\\*\\*File Operations\\*\\*\n|### Own\n|## Goal\n|Read:\n|- a.rs\n|```|~~~\n|\n| |x){1,12}",
        read in proptest::collection::btree_set("[ab]\\.rs", 0..2),
    ) {
        let turns = session(20);
        let files = Files { read, ..Files::default() };
        let model = answering(&words);
        let mut compactor = compactor(files.clone());
        let outcome = now(compactor.prepare(&turns, Reason::Threshold, Some(&model)));
        if let Ok(outcome) = outcome {
            let summary = compacted(outcome).report.summary;
            prop_assert_eq!(Files::parse(&summary), files, "{}", summary);
            prop_assert!(summary.contains("Goal"));
        }
    }
}
