//! Conversations whose recent messages are larger than the window.

use insta::assert_snapshot;
use proptest::prelude::*;

use super::compact::{now, replying};
use super::*;

const WINDOW: u64 = 20_000;

/// A goal, and rounds of calls whose results have these lengths, in characters.
fn reads(goal: usize, rounds: &[&[usize]]) -> Vec<Msg> {
    let mut turns = vec![user(&"g".repeat(goal))];
    for (round, results) in rounds.iter().enumerate() {
        let id = |at: usize| format!("{round}.{at}");
        let asks = (0..results.len())
            .fold(assistant("I read."), |msg, at| msg.call(&id(at), "read", json!({})));
        turns.push(asks);
        let results = results.iter().enumerate();
        let results = results.map(|(at, length)| (id(at), "x".repeat(*length), false));
        turns.push(Msg { results: results.collect(), ..message(Role::Tool, "") });
    }
    turns
}

/// What becomes of a conversation: the lengths of its messages, and of each result that is cut.
fn shortened(turns: &mut Vec<Msg>, reason: Reason, policy: &Policy, window: Option<u64>) -> String {
    let mut compactor = Compactor::new(*policy, window);
    compactor.meter.set_system_prompt(&"s".repeat(4_000));
    let outcome = now(compactor.prepare(turns, reason, None)).unwrap();
    let CompactionOutcome::Compacted(done) = outcome else {
        return format!("{outcome:?}");
    };
    assert!(done.apply(turns, &mut compactor.meter));
    assert_eq!(compactor.meter.tokens(), done.report.tokens_after);
    assert_eq!(turns.len(), done.report.messages_after);
    let report = &done.report;
    let cuts = done.cuts.iter().map(|cut| format!(" {}:{}+{}", cut.id, cut.head, cut.tail));
    format!(
        "{}+{} {}->{}{}",
        report.compacted_entries,
        report.preserved_turn_count,
        report.tokens_before,
        report.tokens_after,
        cuts.collect::<String>()
    )
}

fn result(rounds: &[&[usize]]) -> String {
    shortened(&mut reads(40, rounds), Reason::Threshold, &Policy::fabro(), Some(WINDOW))
}

#[test]
fn as_many_recent_messages_stay_as_there_is_room_for() {
    let big = 20_000; // 5,000 tokens
    assert_snapshot!(result(&[&[big], &[big], &[big], &[4_000], &[4_000], &[4_000]]), @"7+6 19034->4084");
    assert_snapshot!(result(&[&[big], &[big], &[big]]), @"5+2 16022->6068");
    assert_snapshot!(result(&[&[big], &[big], &[4_000], &[big], &[4_000]]), @"5+6 18030->8076");
    assert_snapshot!(result(&[&[big], &[big, big, big]]), @"3+2 21022->16064");
    assert_snapshot!(result(&[&[big, 2_000, big, big]]), @"NothingOld");
}

#[test]
fn after_an_overflow_less_has_to_stay_than_what_did_not_fit() {
    let in_window = |rounds: &[&[usize]], window| {
        shortened(&mut reads(40, rounds), Reason::Overflow, &Policy::fabro(), window)
    };
    let result = |rounds: &[&[usize]]| {
        let [one, other] = [None, Some(12_000)].map(|window| in_window(rounds, window));
        assert_eq!(one, other);
        one
    };
    // Six messages are nearly all of it.
    assert_snapshot!(result(&[&[8_000], &[9_000], &[10_000]]), @"5+2 7772->3568");
    assert_snapshot!(result(&[&[40_000]]), @"0+3 11014->8252 0.0:19240+9620");
    // Six messages are not too many.
    let small: [&[usize]; 5] = [&[4_000]; 5];
    assert_snapshot!(result(&small), @"5+6 6030->4076");
    assert_snapshot!(in_window(&small, Some(6_000)), @"5+6 6030->4076");
    assert_snapshot!(in_window(&small, Some(5_000)), @"5+6 6030->4076");
    assert_snapshot!(in_window(&[&[8_000], &[9_000], &[10_000]], Some(1_000_000)), @"5+2 7772->3568");
}

#[test]
fn by_hand_everything_recent_stays() {
    let mut turns = reads(40, &[&[30_000], &[30_000], &[30_000], &[30_000]]);
    let result = shortened(&mut turns, Reason::Manual, &Policy::fabro(), Some(WINDOW));
    assert_snapshot!(result, @"3+6 31026->23568");
}

#[test]
fn a_result_keeps_its_beginning_and_its_end() {
    let cut = |head, tail| Cut { turn: 0, id: String::new(), head, tail };
    let lines: Vec<_> = (0..400).map(|number| format!("line {number}\n")).collect();
    let text = lines.concat();
    let once = cut(40, 20).text(&text);
    assert_snapshot!(once, @r"
    line 0
    line 1
    line 2
    line 3
    line 4
    line 
    [… 3430 characters cut to fit into the model's window: call the tool again to see them …]
    7
    line 398
    line 399
    ");
    // What is missing is counted in the original text.
    assert_eq!(cut(20, 10).text(&once), cut(20, 10).text(&text));
    assert_eq!(cut(40, 20).text("short ä"), "short ä");
    assert_eq!(cut(usize::MAX, usize::MAX).text("short"), "short");
    assert!(cut(2, 1).text("äöüß€").starts_with("äö\n[… 2 characters cut"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_can_fit_does(
        goal in 1_usize..60_000,
        rounds in prop::collection::vec(prop::collection::vec(0_usize..60_000, 1..5), 1..8),
        keep in 0_usize..20,
        window in 2_000_u64..40_000,
        prompt in 0_usize..4_000,
        said in 0_usize..30_000,
        overflow: bool,
        many_files: bool,
    ) {
        let rounds: Vec<&[usize]> = rounds.iter().map(Vec::as_slice).collect();
        let mut turns = reads(goal, &rounds);
        let last_calls = rounds.last().map_or(0, |last| last.len()) as u64;
        let names = (0..if many_files { 2_000 } else { 0 }).map(|at| format!("src/file_{at}.rs"));
        let files = Files { read: names.collect(), ..Files::default() };
        let policy = Policy { keep_recent: keep, ..Policy::fabro() };
        let mut compactor = Compactor { files, ..Compactor::new(policy, window) };
        compactor.meter.set_system_prompt(&"s".repeat(prompt));
        let usage = compactor.window_use(&turns);
        let moment = if overflow { Moment::Overflow { retried: false } } else { Moment::AfterAnswer };
        let Ok(reason) = should_compact(&policy, moment, usage) else { return Ok(()) };
        // The system prompt, a summary with the goal, and the last calls with the least of results.
        let least = prompt as u64 / 4 + 200 + last_calls * 100;
        let model = replying(move |_| Ok("word ".repeat(said)));
        let mut outcome = now(compactor.prepare(&turns, reason, Some(&model)));
        if matches!(outcome, Ok(CompactionOutcome::NotSmaller { .. })) {
            // The next call overflows.
            outcome = now(compactor.prepare(&turns, Reason::Overflow, Some(&model)));
        }
        let before = turns.clone();
        match outcome {
            Ok(CompactionOutcome::Compacted(done)) => {
                prop_assert!(done.apply(&mut turns, &mut compactor.meter));
                prop_assert_eq!(compactor.meter.tokens(), done.report.tokens_after);
                prop_assert!(compactor.meter.tokens() < usage.estimated_tokens);
            }
            Ok(_) => {}
            // A summary of nothing.
            Err(_) => return Ok(()),
        }
        if least <= window.min(usage.estimated_tokens) {
            prop_assert!(compactor.meter.tokens() <= window, "{} of {window}", compactor.meter.tokens());
        }
        // What stays is in order, and no call is without its result.
        let ids = |turns: &[Msg]| -> Vec<String> {
            let results = turns.iter().flat_map(|turn| turn.results.iter().map(|it| it.0.clone()));
            results.collect()
        };
        prop_assert!(ids(&before).ends_with(&ids(&turns)));
        let calls = turns.iter().flat_map(|turn| turn.calls.iter().map(|it| it.0.clone()));
        prop_assert_eq!(calls.collect::<Vec<_>>(), ids(&turns));
        prop_assert!(keep == 0 || ids(&turns).len() as u64 >= last_calls);
    }
}

#[test]
fn a_tool_may_write_such_a_word_itself() {
    let forged = format!(
        "{}\n[… {} characters cut to fit into the model's window: call the tool again to see them …]\n{}",
        "a".repeat(50),
        usize::MAX,
        "b".repeat(50),
    );
    let text = Cut { turn: 0, id: String::new(), head: 10, tail: 10 }.text(&forged);
    assert!(text.starts_with("aaaaaaaaaa\n[… ") && text.ends_with("…]\nbbbbbbbbbb"), "{text}");
}
