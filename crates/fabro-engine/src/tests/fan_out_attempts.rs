//! A fan-out's own time limit, attempts, and what it allows when none is left.

use super::*;

fn forks(attrs: &str) -> String {
    let source = r"digraph {
        start -> fork; fork [shape=component, ATTRS]
        fork -> a -> merge; fork -> b -> merge; merge -> exit
    }";
    source.replace("ATTRS", attrs)
}

/// The status and the note of each branch in `parallel.results`, and of the fan-out itself.
fn results(bench: &Bench) -> String {
    let ends = bench.events().into_iter().filter_map(|event| match event.entry.body {
        EventBody::StageCompleted(end) | EventBody::StageFailed(end)
            if event.entry.node_id.as_deref() == Some("fork") =>
        {
            Some(end)
        }
        _ => None,
    });
    let end = ends.last().unwrap();
    let outcome = &end.outcome;
    let own = outcome.notes.clone().or_else(|| Some(outcome.failure.as_ref()?.to_string()));
    let mut lines = vec![format!("fork {}: {}", outcome.status, own.unwrap_or_default())];
    for result in outcome.context_updates["parallel.results"].as_array().unwrap() {
        lines.push(format!("{} {}: {}", result["id"], result["status"], result["notes"]));
    }
    lines.join("\n")
}

#[test]
fn a_fan_out_that_failed_runs_again_as_a_whole() {
    let replies = [("a", vec![exits(1), exits(1), ok()]), ("b", vec![exits(2)])];
    let bench = Bench::new(&forks("max_retries=2"), &replies);
    insta::assert_snapshot!(bench.story(), @r"
    001 start@1 succeeded  -> fork (unconditional)
    fork@1 forks 2, joins at merge
      003 a@1 failed  -> merge (unconditional)
      fork@1/a failed
      004 b@1 failed  -> merge (unconditional)
      fork@1/b failed
    fork@1 retries: 2 of 2 branches failed: a: exit code 1; b: exit code 2
    fork@1 forks 2, joins at merge
      005 a@2 failed  -> merge (unconditional)
      fork@1#2/a failed
      006 b@2 failed  -> merge (unconditional)
      fork@1#2/b failed
    fork@1 retries: 2 of 2 branches failed: a: exit code 1; b: exit code 2
    fork@1 forks 2, joins at merge
      007 a@3 succeeded  -> merge (unconditional)
      fork@1#3/a succeeded
      008 b@3 failed  -> merge (unconditional)
      fork@1#3/b failed
    002 fork@1 partially_succeeded in 3  -> merge (join)
    009 merge@1 succeeded  -> exit (unconditional)
    010 exit@1 succeeded
    run partially_succeeded; `b` failed: exit code 2
    ");
    let state = bench.state();
    let main = state.main().unwrap();
    assert_eq!(main.context.get("internal.retry_count.fork"), Some(&2.into()));
    assert_eq!(main.visits.get("a"), Some(&3));
}

#[test]
fn the_branches_of_a_fan_out_in_a_branch_keep_to_their_line() {
    let source = r"digraph {
        start -> outer -> {inner; c}; outer [shape=component]
        inner [shape=component, retry_policy=linear]; inner -> {a; b} -> merge -> done
        c -> done -> exit
    }";
    let replies = [("a", vec![exits(1), ok()]), ("b", vec![exits(2)])];
    insta::assert_snapshot!(run(source, &replies), @r"
    001 start@1 succeeded  -> outer (unconditional)
    outer@1 forks 2, joins at done
      inner@1 forks 2, joins at merge
      004 c@1 succeeded  -> done (unconditional)
      outer@1/c succeeded
        005 a@1 failed  -> merge (unconditional)
        outer@1/inner/inner@1/a failed
        007 b@1 failed  -> merge (unconditional)
        outer@1/inner/inner@1/b failed
      inner@1 retries: 2 of 2 branches failed: a: exit code 1; b: exit code 2
      inner@1 forks 2, joins at merge
        009 a@2 succeeded  -> merge (unconditional)
        outer@1/inner/inner@1#2/a succeeded
        011 b@2 failed  -> merge (unconditional)
        outer@1/inner/inner@1#2/b failed
      003 inner@1 partially_succeeded in 2  -> merge (join)
      013 merge@1 succeeded  -> done (unconditional)
      outer@1/inner succeeded
    002 outer@1 succeeded  -> done (join)
    014 done@1 succeeded  -> exit (unconditional)
    015 exit@1 succeeded
    run partially_succeeded; `b` failed: exit code 2
    ");
}

#[test]
fn the_graphs_default_is_for_the_stages_of_a_fan_out_alone() {
    let source = forks("").replace("digraph {", "digraph { graph [default_max_retries=1]");
    let transient = fails(FailureClass::TransientInfra, "rate limit");
    let replies = [("a", vec![transient.clone()]), ("b", vec![transient])];
    insta::assert_snapshot!(run(&source, &replies), @r"
    001 start@1 succeeded  -> fork (unconditional)
    fork@1 forks 2, joins at merge
      a@1 retries: rate limit (transient_infra)
      b@1 retries: rate limit (transient_infra)
      004 b@1 failed in 2  -> merge (unconditional)
      fork@1/b failed
      003 a@1 failed in 2  -> merge (unconditional)
      fork@1/a failed
    002 fork@1 failed  -> merge (join)
    005 merge@1 succeeded  -> exit (unconditional)
    006 exit@1 succeeded
    run partially_succeeded; `b` failed: rate limit; `a` failed: rate limit
    ");
}

#[test]
fn a_fan_out_ends_at_its_time_limit() {
    let hang = [("b", vec![Reply::Hang])];
    let check = |attrs: &str| {
        let bench = Bench::new(&forks(attrs), &hang);
        bench.story();
        results(&bench)
    };
    insta::assert_snapshot!(check("timeout=300ms"), @r#"
    fork failed: timed out after 300ms: raise its `timeout` if it needs longer (transient_infra)
    "a" "succeeded": null
    "b" "skipped": "timed out after 300ms"
    "#);
    insta::assert_snapshot!(check("timeout=300ms, allow_partial=true"), @r#"
    fork partially_succeeded: partial: timed out after 300ms
    "a" "succeeded": null
    "b" "skipped": "timed out after 300ms"
    "#);
    insta::assert_snapshot!(check("timeout=300ms, auto_status=true"), @r#"
    fork succeeded: auto_status: timed out after 300ms
    "a" "succeeded": null
    "b" "skipped": "timed out after 300ms"
    "#);
    insta::assert_snapshot!(run(&forks("timeout=300ms, max_retries=1"), &hang), @r"
    001 start@1 succeeded  -> fork (unconditional)
    fork@1 forks 2, joins at merge
      003 a@1 succeeded  -> merge (unconditional)
      fork@1/a succeeded
      fork@1/b canceled
    fork@1 retries: timed out after 300ms: raise its `timeout` if it needs longer (transient_infra)
    fork@1 forks 2, joins at merge
      005 a@2 succeeded  -> merge (unconditional)
      fork@1#2/a succeeded
      fork@1#2/b canceled
    002 fork@1 failed in 2  -> merge (join)
    007 merge@1 succeeded  -> exit (unconditional)
    008 exit@1 succeeded
    run partially_succeeded; `fork` failed: timed out after 300ms: raise its `timeout` if it needs longer
    ");
}

#[test]
fn a_time_limit_reaches_into_the_fan_outs_of_branches() {
    let source = r"digraph {
        start -> fork -> {inner; c}; fork [shape=component, timeout=5s]
        inner [shape=component, timeout=1h]; inner -> {a; b} -> merge -> done
        c -> done -> exit
    }";
    let bench = Bench::new(source, &[("b", vec![Reply::Hang])]);
    insta::assert_snapshot!(bench.story(), @r"
    001 start@1 succeeded  -> fork (unconditional)
    fork@1 forks 2, joins at done
      inner@1 forks 2, joins at merge
      004 c@1 succeeded  -> done (unconditional)
      fork@1/c succeeded
        005 a@1 succeeded  -> merge (unconditional)
        fork@1/inner/inner@1/a succeeded
      fork@1/inner canceled
    002 fork@1 failed  -> done (join)
    008 done@1 succeeded  -> exit (unconditional)
    009 exit@1 succeeded
    run partially_succeeded; `fork` failed: timed out after 5s: raise its `timeout` if it needs longer
    ");
    insta::assert_snapshot!(results(&bench), @r#"
    fork failed: timed out after 5s: raise its `timeout` if it needs longer (transient_infra)
    "inner" "skipped": "timed out after 5s"
    "c" "succeeded": null
    "#);
}

#[test]
fn a_time_limit_that_is_not_reached_changes_nothing() {
    assert_eq!(run(&forks("timeout=1h"), &[]), run(&forks(""), &[]));
    // The driver does not wait for an unanswered gate because of it.
    let bench = Bench::new(&forks("timeout=1h"), &[("b", vec![Reply::Suspend, ok()])]);
    assert_eq!(bench.drive(Input::Start), RunEnd::Paused(fabro_events::PauseReason::Human));
    let end = bench.drive(Input::Resume { max_cost: None });
    assert_eq!(end, RunEnd::Over(fabro_types::RunStatus::Succeeded, None));
}

#[test]
fn what_no_attempt_is_left_for_may_be_allowed() {
    let replies = [("a", vec![exits(1)]), ("b", vec![exits(2)])];
    let check = |attrs: &str, replies: &[(&str, Vec<Reply>)]| {
        let bench = Bench::new(&forks(attrs), replies);
        bench.story();
        results(&bench)
    };
    insta::assert_snapshot!(check("allow_partial=true", &replies), @r#"
    fork partially_succeeded: partial: 2 of 2 branches failed: a: exit code 1; b: exit code 2
    "a" "failed": "exit code 1"
    "b" "failed": "exit code 2"
    "#);
    insta::assert_snapshot!(check("auto_status=true", &replies), @r#"
    fork succeeded: auto_status: 2 of 2 branches failed: a: exit code 1; b: exit code 2
    "a" "failed": "exit code 1"
    "b" "failed": "exit code 2"
    "#);
    insta::assert_snapshot!(check("auto_status=true, allow_partial=true, join_policy=quorum, quorum=2", &replies[..1]), @r#"
    fork succeeded: auto_status: 1 of 2 branches failed, and 2 have to succeed: a: exit code 1
    "a" "failed": "exit code 1"
    "b" "skipped": "no longer needed"
    "#);
    let stuck = fails(FailureClass::Structural, "no matching edge");
    insta::assert_snapshot!(check("allow_partial=true", &[("a", vec![stuck.clone()]), ("b", vec![stuck])]), @r#"
    fork failed: 2 of 2 branches failed: a: no matching edge; b: no matching edge (structural)
    "a" "failed": "no matching edge"
    "b" "failed": "no matching edge"
    "#);
}

#[test]
fn a_fan_out_waits_for_the_budget_before_it_runs_again() {
    let source = forks("max_retries=1").replace("digraph {", "digraph { graph [max_cost=1.0]");
    let mut dear = Outcome::failed(Failure::new(FailureClass::Deterministic, "no"));
    dear.usage = Some(Usage { cost_usd: 0.6, ..Usage::default() });
    let dear = Reply::End(Box::new(dear));
    let replies = [("a", vec![dear.clone(), ok()]), ("b", vec![dear, ok()])];
    let bench = Bench::new(&source, &replies);
    assert_eq!(bench.drive(Input::Start), RunEnd::Paused(fabro_events::PauseReason::Budget));
    bench.drive(Input::Resume { max_cost: Some(5.0) });
    insta::assert_snapshot!(story(&bench.events()), @r"
    001 start@1 succeeded  -> fork (unconditional)
    fork@1 forks 2, joins at merge
      003 a@1 failed  -> merge (unconditional)
      fork@1/a failed
      004 b@1 failed  -> merge (unconditional)
      fork@1/b failed
    fork@1 retries: 2 of 2 branches failed: a: no; b: no
    paused: Budget []
    resumed
    fork@1 forks 2, joins at merge
      005 a@2 succeeded  -> merge (unconditional)
      fork@1#2/a succeeded
      006 b@2 succeeded  -> merge (unconditional)
      fork@1#2/b succeeded
    002 fork@1 succeeded in 2  -> merge (join)
    007 merge@1 succeeded  -> exit (unconditional)
    008 exit@1 succeeded
    run succeeded
    ");
}
