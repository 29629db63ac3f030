use proptest::prelude::*;

use super::*;

/// What is replaced stands between bars.
#[track_caller]
fn check(short: &str, keep_recent: usize, expect: &str) {
    let words: Vec<_> = short.split_whitespace().collect();
    let result = plan(&conversation(short), keep_recent).map_or_else(
        || "nothing".to_owned(),
        |plan| {
            let range = plan.range();
            assert_eq!(range.end + plan.kept, words.len());
            let parts = [&words[..range.start], &words[range.clone()], &words[range.end..]];
            parts.map(|part| part.join(" ")).join(" | ").trim().to_owned()
        },
    );
    assert_eq!(result, expect);
}

#[test]
fn the_last_messages_stay() {
    check("", 6, "nothing");
    check("", 0, "nothing");
    check("u a", 6, "nothing");
    check("u a u a", 4, "nothing");
    check("u a u a", 2, "| u a | u a");
    check("u a u a", 1, "| u a u | a");
    check("u a u a", 0, "| u a u a |");
}

#[test]
fn rules_at_the_beginning_stay_and_summaries_do_not() {
    check("s u a u", 1, "s | u a | u");
    check("s s s", 0, "nothing");
    check("s u a", 2, "nothing");
    check("s S u a u", 1, "s | S u a | u");
    check("S s u a u", 1, "| S s u a | u");
    check("S u a", 2, "nothing");
    check("s S u a", 2, "nothing");
    check("S", 0, "nothing");
    check("u S a u", 1, "| u S a | u");
}

#[test]
fn a_call_stays_with_its_results() {
    check("u ax tx a", 2, "| u | ax tx a");
    check("u ax tx a", 1, "| u ax tx | a");
    check("u axy tx ty a", 2, "| u | axy tx ty a");
    check("u axy ty u tx a", 2, "| u | axy ty u tx a");
    // Each of them reaches into the one before.
    check("u ax ay tx az ty tz a", 2, "| u | ax ay tx az ty tz a");
    check("ax tx a", 2, "nothing");
}

#[test]
fn a_result_belongs_to_the_last_open_call_of_its_id() {
    check("u ax tx ax tx a", 2, "| u ax tx | ax tx a");
    check("u ax tx axx txx a", 2, "| u ax tx | axx txx a");
    check("u ax tx axx tx tx a", 2, "| u ax tx | axx tx tx a");
}

#[test]
fn calls_that_are_at_work_stay() {
    check("u a u axy", 0, "| u a u | axy");
    check("u a u axy tx", 0, "| u a u | axy tx");
    check("u a u axy tx u", 1, "| u a u | axy tx u");
    check("axy", 0, "nothing");
    check("s ax", 0, "nothing");
}

#[test]
fn what_no_model_takes_goes() {
    // Results of nothing, at the border, in the middle and at the end.
    check("u a tx a u a", 4, "| u a tx | a u a");
    check("u a tx a u a", 3, "| u a tx | a u a");
    check("u a u tx a u", 5, "| u a u tx | a u");
    check("u a tx", 1, "| u a tx |");
    check("tx ty a u", 1, "| tx ty a | u");
    // The result of a call that has one already.
    check("u ax tx tx a u", 4, "| u ax tx tx | a u");
    // Calls that were given up.
    check("u ax u a", 3, "| u ax | u a");
    check("u ax ay az", 1, "| u ax ay | az");
    check("u ax ay az", 3, "| u ax ay | az");
    check("ax ax ax", 0, "| ax ax | ax");
    // They do not matter where nothing is old.
    check("u ax u a", 4, "nothing");
}

#[test]
fn a_tool_that_names_no_call_answers_the_message_before() {
    check("u a t t a u", 3, "| u | a t t a u");
    check("u a t t a u", 2, "| u a t t | a u");
    check("t t u", 2, "nothing");
}

#[test]
fn a_plan_replaces_once() {
    let mut turns = conversation("s u a u");
    let planned = plan(&turns, 1).unwrap();
    turns.push(user("meanwhile"));
    assert!(planned.apply(&mut turns, system(SUMMARY_TAG)));
    assert_eq!(turns.len(), 4);
    assert!(is_summary(&turns[1]));
    let mut short = conversation("u");
    assert!(!planned.apply(&mut short, system(SUMMARY_TAG)));
    assert_eq!(short.len(), 1);
}

/// How the messages are tied together, in the plainest way: for each result the place of its call.
fn calls_of_results(turns: &[Msg]) -> Vec<(usize, Option<usize>)> {
    let mut open: Vec<(usize, &str)> = Vec::new();
    let mut links = Vec::new();
    for (at, turn) in turns.iter().enumerate() {
        for (id, ..) in &turn.results {
            let call = open.iter().rposition(|(_, open)| open == id);
            links.push((at, call.map(|call| open.remove(call).0)));
        }
        open.extend(turn.calls.iter().map(|(id, ..)| (at, id.as_str())));
    }
    links
}

/// The places of calls without a result.
fn open_calls(turns: &[Msg]) -> Vec<usize> {
    let mut calls: Vec<usize> = Vec::new();
    for (at, turn) in turns.iter().enumerate() {
        calls.extend(turn.calls.iter().map(|_| at));
    }
    for call in calls_of_results(turns).into_iter().filter_map(|(_, call)| call) {
        let at = calls.iter().position(|at| *at == call).unwrap();
        calls.remove(at);
    }
    calls
}

fn is_valid(turns: &[Msg]) -> bool {
    let last_answer = turns.iter().rposition(|turn| turn.role == Role::Assistant);
    calls_of_results(turns).iter().all(|(_, call)| call.is_some())
        && open_calls(turns).iter().all(|at| Some(*at) == last_answer)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn nothing_is_torn_apart(
        words in proptest::collection::vec("[suS]|a[xyz]{0,2}|t[xyz]{1,2}", 0..24),
        keep_recent in 0_usize..10,
    ) {
        let turns = conversation(&words.join(" "));
        let Some(plan) = plan(&turns, keep_recent) else { return Ok(()) };
        prop_assert!(plan.replaced > 0);
        prop_assert_eq!(plan.leading + plan.replaced + plan.kept, turns.len());
        let cut = plan.range().end;
        let links = calls_of_results(&turns);
        for (result, call) in &links {
            if let Some(call) = call {
                prop_assert_eq!(*call < cut, *result < cut, "pair {} {}", call, result);
            }
            prop_assert!(*result != cut || call.is_some(), "starts with an orphan");
        }
        let last_answer = turns.iter().rposition(|turn| turn.role == Role::Assistant);
        if let Some(last) = last_answer.filter(|last| open_calls(&turns).contains(last)) {
            prop_assert!(last >= cut, "a call that is at work was replaced");
        }
        let mut after = turns.clone();
        plan.apply(&mut after, system(SUMMARY_TAG));
        let was_valid = is_valid(&turns);
        if was_valid {
            prop_assert!(is_valid(&after));
            prop_assert!(plan.kept >= keep_recent);
        }
    }
}

#[test]
fn long_conversations_are_planned_in_linear_time() {
    let mut turns = session(50_000);
    assert_eq!(plan(&turns, 6).unwrap().kept, 6);
    // A second result of the first call takes everything with it.
    turns.push(result("call_0", "late"));
    assert_eq!(plan(&turns, 6).unwrap().kept, 0);
    // One id for all calls is no trouble.
    let same: Vec<_> = std::iter::repeat_n(short_message("ax"), 100_000).collect();
    assert_eq!(plan(&same, 6).unwrap().kept, 1);
}
