use std::collections::BTreeSet;

use fabro_compaction::{Overrides, Policy};
use insta::assert_snapshot;

use super::*;
use crate::SessionError;

/// Reads and writes for so many turns; a request without tools is for a summary.
fn worker(turns: u32, summary: impl Fn(u32) -> Turn + Send + Sync + 'static) -> Arc<Play> {
    let others = AtomicUsize::new(0);
    Play::new(move |number, request| {
        if request.tools.is_empty() {
            others.fetch_add(1, Ordering::SeqCst);
            return summary(number);
        }
        let number = number - u32::try_from(others.load(Ordering::SeqCst)).unwrap();
        if number < turns {
            let tool = if number % 2 == 0 { "look" } else { "change" };
            call(
                tool,
                json!({"file": format!("f{}", number % 40), "says": format!("{number} {}", "word ".repeat(250))}),
            )
        } else {
            say("done")
        }
    })
}

/// Every call has its result right after it, and no result is without a call.
#[track_caller]
fn check_whole(messages: &[Arc<Message>]) {
    let mut open: BTreeSet<String> = BTreeSet::new();
    for message in messages {
        if message.role == Role::Tool {
            for content in &message.content {
                let Content::ToolResult { id, .. } = content else { panic!("{content:?}") };
                assert!(open.remove(id), "{id} is an orphan");
            }
        }
        assert!(open.is_empty(), "{open:?} have no result");
        open.extend(message.tool_calls().map(|call| call.id.clone()));
    }
    assert!(open.is_empty());
}

#[tokio::test(start_paused = true)]
async fn five_hundred_turns_in_a_small_window() {
    let model = worker(500, |_| say("## Progress\nmuch was done"));
    let settings = Settings {
        window: Some(20_000),
        max_turns: 1_000,
        system: "Be good.".to_owned(),
        ..settings()
    };
    let (mut session, journal) = session(&model, settings);
    let answer = session.send("Goal: paint all 40 files".to_owned(), &never()).await.unwrap();
    assert_eq!(answer.text, "done");
    let notes = journal.notes();
    let done: Vec<_> = notes
        .iter()
        .filter_map(|note| match &note.body {
            EventBody::AgentCompactionCompleted(done) => Some(done),
            _ => None,
        })
        .collect();
    assert!(done.len() >= 12, "{}", done.len());
    for done in &done {
        let summary = done.summary.as_str().unwrap();
        assert!(summary.contains("Goal: paint all 40 files"), "{summary}");
        assert!(done.tokens_before <= 20_000, "{}", done.tokens_before);
    }
    let last = done.last().unwrap();
    assert_eq!(last.tracked_file_count, 40);
    for file in 0..40 {
        assert!(
            last.summary.as_str().unwrap().contains(&format!("- f{file}\n"))
                || file == 39
                || last.summary.as_str().unwrap().ends_with(&format!("- f{file}")),
            "{file}"
        );
    }
    for request in model.requests().iter().filter(|request| !request.tools.is_empty()) {
        check_whole(&request.messages);
        assert_eq!(request.messages[0].text(), "Be good.");
        let first = request.messages.iter().find(|message| message.role != Role::System);
        assert_eq!(first.map(|message| message.role), Some(Role::User));
        let chars: usize = request.messages.iter().map(|message| shown(message).len()).sum();
        assert!(chars < 85_000, "{chars}");
    }
    assert_eq!(answer.usage.requests() as usize, 501 + done.len());
    let warnings = notes.iter().filter(|note| {
        matches!(&note.body, EventBody::AgentWarning { kind, window: Some(window), .. }
            if kind == "context_window" && window.usage_percent >= 80)
    });
    assert_eq!(warnings.count(), done.len());
}

#[tokio::test(start_paused = true)]
async fn a_summary_that_fails_changes_nothing_and_is_tried_again() {
    // Each of these is the number of a turn that is asked for a summary.
    for failing in 0..3 {
        let count = AtomicUsize::new(0);
        let model = worker(90, move |_| match count.fetch_add(1, Ordering::SeqCst) {
            at if at == failing => Turn::Fail(ErrorKind::Overloaded),
            _ => say("## Goal\nGoal\n\n## Progress\nsome"),
        });
        let settings = Settings { window: Some(6_000), ..settings() };
        let (mut session, journal) = session(&model, settings);
        session.send("Goal".to_owned(), &never()).await.unwrap();
        let recorded = notes_of(&journal.records());
        let lines: Vec<_> = recorded.lines().filter(|line| !line.starts_with("start ")).collect();
        let at = lines.iter().position(|line| line.starts_with("error ")).unwrap();
        assert_eq!(
            lines[at],
            "error transient_infra: the summary call failed: the model's server is overloaded or has failed: try again later"
        );
        assert_eq!(lines[at - 2], "compaction started");
        assert!(lines[at + 2].starts_with("assistant: "), "{}", lines[at + 2]);
        let retried = lines[at..].iter().position(|line| *line == "compaction started");
        assert!(retried.is_some_and(|after| after <= 7), "{retried:?}");
        for request in model.requests() {
            check_whole(&request.messages);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_window_that_is_full_from_the_start_is_not_summed_up_after_each_turn() {
    let model = worker(60, |_| say("## Goal\nGoal\n\n## Progress\nsome"));
    let system = "Be good. ".repeat(2_000);
    let settings = Settings { window: Some(5_000), system, ..settings() };
    let (mut session, _) = session(&model, settings);
    session.send("Goal".to_owned(), &never()).await.unwrap();
    let requests = model.requests();
    let asked = requests.iter().filter(|request| request.tools.is_empty()).count();
    // A turn is two messages, and six more are waited for.
    assert!((10..=20).contains(&asked), "{asked}");
    let sent = requests.iter().filter(|request| !request.tools.is_empty());
    let most = sent.map(|request| shown_all(&request.messages).len()).max().unwrap();
    assert!(most < 4 * 5_000, "{most}");
}

#[tokio::test(start_paused = true)]
async fn an_empty_summary_is_a_failed_one() {
    let model = worker(40, |_| say("  "));
    let (mut session, journal) = session(&model, Settings { window: Some(5_000), ..settings() });
    session.send("Goal".to_owned(), &never()).await.unwrap();
    let recorded = notes_of(&journal.records());
    assert!(
        recorded.contains(
            "error transient_infra: the summary call failed: the model's summary is empty"
        )
    );
    assert!(!recorded.contains("compaction threshold"));
    assert_eq!(session.messages().len(), 82);
}

#[tokio::test(start_paused = true)]
async fn an_overflow_is_recovered_from_once() {
    let model = Play::new(|number, request| {
        if request.tools.is_empty() {
            return say("## Goal\nGoal\n\n## Progress\nsome");
        }
        match number {
            0..20 => call("look", json!({"file": number, "says": "z".repeat(400)})),
            _ if request.messages.len() > 20 => Turn::Fail(ErrorKind::ContextOverflow),
            _ => say("made it"),
        }
    });
    let (mut session, journal) = session(&model, settings());
    let answer = session.send("Goal".to_owned(), &never()).await.unwrap();
    assert_eq!(answer.text, "made it");
    let recorded = notes_of(&journal.records());
    let end: Vec<_> = recorded.lines().rev().take(6).collect();
    assert_snapshot!(end.into_iter().rev().collect::<Vec<_>>().join("\n"), @r"
    --
    compaction started
    --
    compaction overflow 35+6
    --
    assistant: made it (1 turns)
    ");
    assert_eq!(answer.usage.requests(), 23);
}

/// Twenty calls; the request after them overflows once, unless it is for a summary.
fn overflowing(summary: Turn) -> Arc<Play> {
    Play::new(move |number, request| {
        if request.tools.is_empty() {
            return summary.clone();
        }
        match number {
            0..20 => call("look", json!({"file": number, "says": "z".repeat(400)})),
            _ if request.messages.len() > 20 => Turn::Fail(ErrorKind::ContextOverflow),
            _ => say("made it"),
        }
    })
}

#[tokio::test(start_paused = true)]
async fn an_overflow_is_survived_without_a_summary_of_the_model() {
    let long = "word ".repeat(20_000);
    for (summary, expect) in [
        (
            Turn::Fail(ErrorKind::Overloaded),
            "the model's server is overloaded or has failed: try again later",
        ),
        (say(" "), "the model's summary is empty"),
        (say(&long), "not smaller than the messages it replaces"),
    ] {
        let model = overflowing(summary);
        let (mut session, journal) = session(&model, settings());
        let answer = session.send("Goal".to_owned(), &never()).await.unwrap();
        assert_eq!(answer.text, "made it");
        assert_eq!(answer.usage.requests(), 23);
        let recorded = notes_of(&journal.records());
        let error = recorded.lines().find(|line| line.starts_with("error ")).unwrap();
        assert!(
            error.contains(expect)
                && error.ends_with("; a summary without a model takes its place"),
            "{error}"
        );
        assert!(recorded.contains("compaction overflow 35+6"), "{recorded}");
        let (mut again, _) = super::session(&Play::list(vec![say("x")]), settings());
        again.restore(Transcript::from_notes(&journal.notes(), no_blobs).unwrap());
        assert_eq!(conversation(&again), conversation(&session));
    }
}

#[tokio::test(start_paused = true)]
async fn a_summary_that_is_too_long_is_reported_and_changes_nothing() {
    let model = worker(30, |_| say(&"word ".repeat(20_000)));
    let (mut session, journal) = session(&model, Settings { window: Some(9_000), ..settings() });
    session.send("Goal".to_owned(), &never()).await.unwrap();
    let recorded = notes_of(&journal.records());
    assert!(recorded.contains("warning compaction: a summary would not be shorter"), "{recorded}");
    assert!(!recorded.contains("compaction threshold"), "{recorded}");
    assert_eq!(session.messages().len(), 62);
}

#[tokio::test(start_paused = true)]
async fn only_the_summary_does_not_stream() {
    let model = overflowing(say("## Goal\nGoal"));
    let (mut session, journal) = session(&model, settings());
    session.send("Goal".to_owned(), &never()).await.unwrap();
    for request in model.requests() {
        assert_eq!(request.streams, !request.tools.is_empty());
    }
    let notes = journal.notes();
    let done = notes.iter().find_map(|note| match &note.body {
        EventBody::AgentCompactionCompleted(done) => Some(done),
        _ => None,
    });
    // The whole history, what stays of it, and the summary before that.
    let done = done.unwrap();
    let counts = [done.original_turn_count, done.preserved_turn_count, done.messages_after];
    assert_eq!((counts, done.messages_before), ([41, 6, 7], 41));
}

#[tokio::test(start_paused = true)]
async fn a_second_overflow_is_the_end() {
    let model = Play::new(|number, request| match number {
        _ if request.tools.is_empty() => say("## Progress\nsome"),
        0..20 => call("look", json!({"file": number, "says": "z".repeat(400)})),
        _ => Turn::Fail(ErrorKind::ContextOverflow),
    });
    let (mut session, _) = session(&model, settings());
    let end = session.send("Goal".to_owned(), &never()).await;
    assert!(
        matches!(end, Err(SessionError::Model(error)) if error.kind == ErrorKind::ContextOverflow)
    );
    assert_eq!(model.requests().len(), 23);

    let policy = Policy { recover_from_overflow: false, ..Policy::fabro() };
    let (mut session, _) = super::session(&model, Settings { compaction: policy, ..settings() });
    session.send("Goal".to_owned(), &never()).await.unwrap_err();
    assert_eq!(session.usage().requests(), 21);
}

#[tokio::test(start_paused = true)]
async fn the_other_presets() {
    for (policy, expected) in [(Policy::harness(), true), (Policy::strict(), false)] {
        let model = worker(60, |_| say("## Goal\nGoal\n\n## Progress\nsome"));
        let settings = Settings { window: Some(12_000), compaction: policy, ..settings() };
        let (mut session, journal) = session(&model, settings);
        session.send("Goal".to_owned(), &never()).await.unwrap();
        assert_eq!(notes_of(&journal.records()).contains("compaction threshold"), expected);
    }
    let policy = Policy { replaying: true, ..Policy::fabro() };
    let model = Play::list(vec![say("x")]);
    let (mut session, journal) = session(&model, Settings { compaction: policy, ..settings() });
    session.send("Goal".to_owned(), &never()).await.unwrap();
    session.send("More".to_owned(), &never()).await.unwrap();
    assert_eq!(notes_of(&journal.records()).matches("warning compaction: ").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn by_hand_and_without_a_model() {
    let model = worker(20, |_| panic!("asked for a summary"));
    let (mut session, journal) = session(&model, settings());
    session.send("Goal".to_owned(), &never()).await.unwrap();
    let overrides = Overrides {
        keep_recent_entries: Some(4),
        generate_summary: Some(false),
        ..Overrides::default()
    };
    let report = session.compact(&overrides, &never()).await.unwrap().unwrap();
    assert_eq!((report.compacted_entries, report.messages_after), (37, 6));
    assert_eq!(session.messages().len(), 6);
    assert!(
        session.compact(&overrides, &never()).await.unwrap().is_none()
            || session.messages().len() <= 6
    );
    let recorded = notes_of(&journal.records());
    assert!(recorded.contains("compaction started\ncompaction manual 37+5"), "{recorded}");
}

#[tokio::test(start_paused = true)]
async fn a_conversation_with_interrupted_calls_is_compacted_before_it_resumes() {
    let model = worker(20, |_| panic!("asked for a summary"));
    let (mut first, journal) = session(&model, settings());
    first.send("Goal".to_owned(), &never()).await.unwrap();
    let notes = journal.notes();
    // The driver died while the last call was running.
    let is_result =
        |note: &fabro_events::Note| matches!(note.body, EventBody::AgentToolCompleted(_));
    let last = notes.iter().rposition(is_result).unwrap();
    let before = &notes[..last];
    let overrides = Overrides { generate_summary: Some(false), ..Overrides::default() };
    let (mut compacted, added) = session(&Play::list(vec![say("x")]), settings());
    compacted.restore(Transcript::from_notes(before, no_blobs).unwrap());
    let report = compacted.compact(&overrides, &never()).await.unwrap().unwrap();
    assert_eq!(report.preserved_turn_count, 6);
    let after = added.notes();
    let (mut resumed, _) = session(&Play::list(vec![say("x")]), settings());
    resumed.restore(Transcript::from_notes(before.iter().chain(&after), no_blobs).unwrap());
    assert_eq!(conversation(&resumed), conversation(&compacted));
    assert!(conversation(&resumed).contains("[interrupted: "));
    assert_eq!(resumed.resume(&never()).await.unwrap().text, "x");
}

/// Reads texts of this length, so many with each answer, and answers after so many turns. A request
/// that is larger than the window is refused.
fn reader(window: usize, chars: usize, at_once: usize, turns: usize) -> Arc<Play> {
    let said = AtomicUsize::new(0);
    Play::new(move |_, request| {
        let messages: usize = request.messages.iter().map(|message| shown(message).len()).sum();
        let tools = serde_json::to_string(&request.tools).unwrap().len();
        if (messages + tools) / 4 > window {
            return Turn::Fail(ErrorKind::ContextOverflow);
        }
        if request.tools.is_empty() {
            return say("## Goal\nGoal\n\n## Progress\nsome");
        }
        let turn = said.fetch_add(1, Ordering::SeqCst);
        if turn >= turns {
            return say("done");
        }
        let call =
            |at: usize| ("look", json!({"file": format!("f{turn}.{at}"), "lines": chars / 10}));
        Turn::Call(String::new(), (0..at_once).map(call).collect())
    })
}

#[tokio::test(start_paused = true)]
async fn the_conversation_fits_with_results_of_any_size() {
    let sizes = [(26_000, 1), (26_000, 2), (26_000, 4), (60_000, 1), (7_000, 3), (300, 40)];
    let windows = [4_000, 8_192, 20_000, 32_000];
    for ((chars, at_once), window) in itertools(&sizes, &windows) {
        for policy in [Policy::fabro(), Policy::harness()] {
            let at = format!("{at_once} of {chars} in {window}, keeping {}", policy.keep_recent);
            let model = reader(window, chars, at_once, 12);
            let settings =
                Settings { window: Some(window as u64), compaction: policy, ..settings() };
            let (mut session, journal) = session(&model, settings.clone());
            let answer = session.send("Goal".to_owned(), &never()).await;
            assert_eq!(answer.expect(&at).text, "done");
            for request in model.requests().iter().filter(|request| !request.tools.is_empty()) {
                check_whole(&request.messages);
                assert!(shown_all(&request.messages).contains("Goal"), "{at}");
            }
            // At any record where the program stops, the conversation is the same afterwards.
            let (mut again, _) = super::session(&Play::list(vec![say("x")]), settings);
            again.restore(Transcript::from_notes(&journal.notes(), no_blobs).unwrap());
            assert_eq!(conversation(&again), conversation(&session), "{at}");
        }
    }
}

fn itertools<A: Copy, B: Copy>(one: &[A], other: &[B]) -> Vec<(A, B)> {
    one.iter().flat_map(|one| other.iter().map(|other| (*one, *other))).collect()
}

fn shown_all(messages: &[Arc<Message>]) -> String {
    messages.iter().map(|message| shown(message)).collect()
}

#[tokio::test(start_paused = true)]
async fn one_result_takes_no_more_than_a_quarter_of_the_window() {
    for (window, expected) in [(None, 25_006), (Some(8_000), 8_032)] {
        let model = Play::list(vec![call("look", json!({"lines": 2_500})), say("done")]);
        let (mut session, _) = session(&model, Settings { window, ..settings() });
        session.send("Goal".to_owned(), &never()).await.unwrap();
        let messages: Vec<_> = session.messages().collect();
        let Content::ToolResult { text, .. } = &messages[2].content[0] else { panic!() };
        assert_eq!(text.chars().count(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn results_of_an_earlier_stage_are_shortened_again_when_it_is_recalled() {
    let model = Play::list(vec![
        Turn::Call(String::new(), vec![("look", json!({"lines": 390})); 3]),
        say("done"),
    ]);
    let (mut first, journal) = session(&model, settings());
    first.send("Goal".to_owned(), &never()).await.unwrap();
    let thread = || Transcript::from_notes(&journal.notes(), no_blobs).unwrap();
    // Only results can be shortened: there is nothing old.
    let policy = Policy { keep_recent: 20, ..Policy::fabro() };
    let settings = Settings { window: Some(2_000), compaction: policy, ..settings() };
    let (mut second, own) = session(&Play::list(vec![say("more")]), settings.clone());
    second.recall(thread());
    second.send("Go on".to_owned(), &never()).await.unwrap();
    let (mut third, _) = session(&Play::list(vec![say("x")]), settings);
    third.recall(thread());
    third.restore(Transcript::from_notes(&own.notes(), no_blobs).unwrap());
    assert_eq!(conversation(&third), conversation(&second));
    assert!(third.estimated_tokens() <= 2_000);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_become_smaller_is_left_alone() {
    // What the model says itself is too much.
    let model = Play::new(|number, request| {
        assert!(!request.tools.is_empty(), "asked for a summary");
        match number {
            0 => call("look", json!({"file": number, "says": "z".repeat(20_000)})),
            _ => say("done"),
        }
    });
    let settings = Settings { window: Some(3_000), ..settings() };
    let (mut session, journal) = session(&model, settings);
    session.send("Goal".to_owned(), &never()).await.unwrap();
    let cut = notes_of(&journal.records()).matches("compaction threshold 0+3").count();
    assert_eq!(cut, 1, "{}", notes_of(&journal.records()));
}
