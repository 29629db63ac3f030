//! What a fan-out's failure takes over from its branches, and when the next attempt may begin.

use super::*;

const FORKS: &str = r"digraph {
    start -> fork; fork [shape=component, max_retries=1]
    fork -> a -> merge; fork -> b -> merge; merge -> exit
}";

fn failing(class: FailureClass, change: impl Fn(&mut Failure)) -> Vec<Reply> {
    let mut failure = Failure::new(class, "no");
    change(&mut failure);
    vec![Reply::End(Box::new(Outcome::failed(failure)))]
}

fn plain(class: FailureClass) -> Vec<Reply> {
    failing(class, |_| {})
}

fn terminal(class: FailureClass) -> Vec<Reply> {
    failing(class, |failure| failure.terminal = true)
}

/// How the fan-out failed, and how long it then waited, for every attempt.
fn ends(a: &[Reply], b: &[Reply]) -> Vec<(FailureClass, bool, Option<u64>)> {
    let bench = Bench::new(FORKS, &[("a", a.to_vec()), ("b", b.to_vec())]);
    bench.drive(Input::Start);
    let of_fork = |event: &Event| event.entry.node_id.as_deref() == Some("fork");
    let ends = bench.events().into_iter().filter(of_fork).filter_map(|event| {
        let (failure, delay) = match event.entry.body {
            EventBody::StageRetrying { failure, delay_ms, .. } => (failure, Some(delay_ms)),
            EventBody::StageFailed(end) => (end.outcome.failure.clone()?, None),
            _ => return None,
        };
        Some((failure.class, failure.terminal, delay))
    });
    ends.collect()
}

#[test]
fn branches_that_failed_for_good_are_not_paid_for_again() {
    use FailureClass::{Canceled, Deterministic, Structural, TransientInfra};
    #[track_caller]
    fn once(a: &[Reply], b: &[Reply], class: FailureClass, terminal: bool) {
        for (a, b) in [(a, b), (b, a)] {
            assert_eq!(ends(a, b), [(class, terminal, None)]);
        }
    }
    once(&terminal(Deterministic), &terminal(Deterministic), Deterministic, true);
    once(&terminal(Deterministic), &terminal(TransientInfra), Deterministic, true);
    once(&terminal(TransientInfra), &plain(Canceled), Canceled, false);
    once(&plain(Canceled), &plain(Structural), Structural, false);
}

#[test]
fn one_branch_that_may_be_retried_is_enough_for_another_attempt() {
    use FailureClass::{BudgetExhausted, Canceled, Deterministic, Structural, TransientInfra};
    #[track_caller]
    fn twice(a: &[Reply], b: &[Reply], class: FailureClass) {
        for (a, b) in [(a, b), (b, a)] {
            let ends: Vec<_> = ends(a, b).into_iter().map(|end| (end.0, end.1)).collect();
            assert_eq!(ends, [(class, false); 2]);
        }
    }
    twice(&plain(Deterministic), &terminal(TransientInfra), Deterministic);
    twice(&plain(Deterministic), &plain(Structural), Deterministic);
    twice(&plain(BudgetExhausted), &plain(Canceled), BudgetExhausted);
    twice(&plain(Deterministic), &plain(TransientInfra), TransientInfra);
}

#[test]
fn the_longest_time_that_a_branch_was_asked_to_wait_is_waited() {
    use FailureClass::{Deterministic, TransientInfra};
    let asked = |ms| failing(TransientInfra, |failure| failure.retry_after_ms = Some(ms));
    let delay = |a: &[Reply], b: &[Reply]| ends(a, b)[0].2;
    assert_eq!(delay(&asked(7_000), &asked(30_000)), Some(30_000));
    assert_eq!(delay(&asked(30_000), &asked(7_000)), Some(30_000));
    assert_eq!(delay(&plain(Deterministic), &asked(7_000)), Some(7_000));
}
