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

/// Runs `a` and `b` until they are canceled and three seconds more, and notes when.
#[derive(Default)]
struct Slow(Mutex<Vec<String>>);

#[async_trait]
impl Handler for Slow {
    async fn execute(&self, stage: Stage) -> StageEnd {
        let name = format!("{} in {}", stage.node().id, stage.branch.as_deref().unwrap_or("main"));
        if !matches!(&*stage.node().id, "a" | "b") {
            return Outcome::succeeded().into();
        }
        self.0.lock().unwrap().push(format!("{name} begins"));
        stage.cancel.cancelled().await;
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        self.0.lock().unwrap().push(format!("{name} has ended"));
        Failure::new(FailureClass::Canceled, "canceled").into()
    }
}

fn slowly(source: &str) -> (String, String) {
    let bench = Bench::new(source, &[]);
    let slow = Arc::new(Slow::default());
    let world = World { handler: Arc::clone(&slow) as _, ..bench.world() };
    bench.drive_in(world, Input::Start);
    let log = slow.0.lock().unwrap().join("\n");
    (log, story(&bench.events()))
}

#[test]
fn another_attempt_begins_when_all_stages_of_the_last_one_have_ended() {
    let source = FORKS.replace("max_retries=1", "timeout=1s, max_retries=1, retry_policy=standard");
    let (log, story) = slowly(&source);
    insta::assert_snapshot!(log, @r"
    a in fork@1/a begins
    b in fork@1/b begins
    a in fork@1/a has ended
    b in fork@1/b has ended
    a in fork@1#2/a begins
    b in fork@1#2/b begins
    a in fork@1#2/a has ended
    b in fork@1#2/b has ended
    ");
    insta::assert_snapshot!(story, @r"
    001 start@1 succeeded  -> fork (unconditional)
    fork@1 forks 2, joins at merge
      fork@1/a canceled
      fork@1/b canceled
    fork@1 retries: timed out after 1s: raise its `timeout` if it needs longer (transient_infra)
    fork@1 forks 2, joins at merge
      fork@1#2/a canceled
      fork@1#2/b canceled
    002 fork@1 failed in 2  -> merge (join)
    007 merge@1 succeeded  -> exit (unconditional)
    008 exit@1 succeeded
    run partially_succeeded; `fork` failed: timed out after 1s: raise its `timeout` if it needs longer
    ");
}

#[test]
fn another_attempt_waits_for_the_fan_outs_in_its_branches_too() {
    let source = r"digraph {
        start -> outer -> {inner; c} -> done -> exit
        outer [shape=component, timeout=1s, max_retries=1, retry_policy=standard]
        inner [shape=component, timeout=500ms, max_retries=9, retry_policy=standard]
        inner -> {a; b} -> done
    }";
    let (log, _) = slowly(source);
    insta::assert_snapshot!(log, @r"
    a in outer@1/inner/inner@1/a begins
    b in outer@1/inner/inner@1/b begins
    a in outer@1/inner/inner@1/a has ended
    b in outer@1/inner/inner@1/b has ended
    a in outer@1#2/inner/inner@2/a begins
    b in outer@1#2/inner/inner@2/b begins
    a in outer@1#2/inner/inner@2/a has ended
    b in outer@1#2/inner/inner@2/b has ended
    ");
}
