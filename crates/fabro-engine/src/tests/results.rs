//! The results of small workflows with failures: the first list must not succeed, the second must.

use fabro_types::{RunStatus, Status};

use super::*;

/// Parses the replies of the nodes. With `a: 1 ok; v: late`, `a` fails once with exit code 1 and then
/// succeeds, and `v` times out. `=x` prefers the label `x`, `!x` fails and prefers it, `+k` sets the
/// key `k`, `no` is a stated failure.
fn replies(text: &str) -> Vec<(&str, Vec<Reply>)> {
    let reply = |word: &str| match (word.chars().next(), word.get(1..)) {
        (Some('='), Some(label)) => wants(label),
        (Some('!'), Some(label)) => failing(label),
        (Some('+'), Some(key)) => sets(key, "yes"),
        _ if word == "ok" => ok(),
        _ if word == "late" => fails(FailureClass::TransientInfra, "too late"),
        _ if word == "no" => {
            let failure = Failure::new(FailureClass::Deterministic, "it is wrong");
            Reply::End(Box::new(Outcome::failed(Failure { stated: true, ..failure })))
        }
        _ => exits(word.parse().unwrap()),
    };
    text.split(';')
        .filter_map(|line| line.split_once(':'))
        .map(|(node, words)| (node.trim(), words.split_whitespace().map(reply).collect()))
        .collect()
}

fn failing(label: &str) -> Reply {
    let failure = Failure::new(FailureClass::Deterministic, "exit code 1");
    let outcome = Outcome {
        preferred_label: Some(label.to_owned()),
        suggested_next_ids: vec![label.to_owned()],
        ..Outcome::failed(failure)
    };
    Reply::End(Box::new(outcome))
}

fn status(body: &str, answers: &str) -> RunStatus {
    let answers = if answers.is_empty() { "a: 1" } else { answers };
    let bench = Bench::new(&format!("digraph {{ {NODES} {body} }}"), &replies(answers));
    bench.drive(Input::Start);
    bench.state().status(false)
}

/// Conditionals, a wait, a fan-out with its join, a human gate, and exits with a status.
const NODES: &str = "c [shape=diamond]; d [shape=diamond]; w [shape=insulator, duration=1s]; p [shape=component]
    j [shape=tripleoctagon]; g [shape=hexagon]; bad [shape=Msquare, status=failed, reason=\"gave up\"]
    fine [shape=Msquare, status=succeeded]; some [shape=Msquare, status=partial_success];";

#[test]
#[expect(clippy::too_many_lines, reason = "a table of test cases")]
fn workflows_that_must_not_succeed() {
    for (body, answers) in [
        // Plain edges.
        ("start -> a -> exit", ""),
        ("start -> a -> b -> exit", ""),
        ("start -> a -> w -> exit", ""),
        ("start -> a -> c -> exit", ""),
        ("start -> a -> fine", ""),
        ("start -> a -> b -> fine", ""),
        (r#"start -> a -> exit; a -> b [label="fail"]; b -> exit"#, ""),
        (r#"start -> a -> b; b -> exit [condition="outcome=success"]"#, ""),
        ("start -> b -> a -> x -> exit", "x: 1"),
        ("start -> a -> exit; a [max_retries=2]", "a: 1 2 3"),
        ("start -> a -> exit; a [auto_status=true]", "a: no"),
        ("start -> a -> exit; a [timeout=1s]", "a: late"),
        // Straight to an exit.
        (r#"start -> a; a -> exit [condition="outcome=failed"]; a -> b -> exit"#, ""),
        (r#"start -> a; a -> b [condition="outcome=success"]; a -> exit; b -> exit"#, ""),
        (r#"start -> a; a -> exit [condition="command.exit_code=1"]; a -> exit"#, ""),
        (r#"start -> a -> c; c -> b [condition="outcome=success"]; c -> exit; b -> exit"#, ""),
        (r#"start -> a -> c -> d; d -> exit [condition="outcome=fail"]; d -> b -> exit"#, ""),
        (r#"start -> a; a -> c [condition="outcome=failed"]; a -> exit; c -> d -> exit"#, ""),
        (r#"start -> a; a -> w [condition="outcome=failed"]; a -> b -> exit; w -> exit"#, ""),
        (
            r#"start -> a; a -> w [condition="outcome=failed"]; w -> c; c -> exit [condition="outcome=success"]; c -> b -> exit"#,
            "",
        ),
        ("start -> a; a -> exit [label=give_up]; a -> b -> exit", "a: !give_up"),
        ("start -> a; a -> exit; a -> b -> exit", "a: !exit"),
        ("start -> a; a -> exit [condition=\"context.k=yes\"]; a -> b -> exit", "b: +k; a: 1"),
        (
            r#"start -> a; a -> exit [condition="outcome=failed"]; a -> b -> exit; a [max_retries=1]"#,
            "a: no",
        ),
        // A condition that does not read the failure.
        (
            r#"start -> a; a -> x [condition="context.mode=fast"]; a -> b -> exit; x -> exit"#,
            "a: 1",
        ),
        (
            r#"start -> a; a -> x [condition="internal.node_visit_count > 1"]; a -> b -> exit; x -> exit"#,
            "a: 1",
        ),
        (
            r#"start -> a -> c; c -> x [condition="context.mode=fast"]; c -> b -> exit; x -> exit"#,
            "a: 1",
        ),
        // Loops.
        (
            r#"start -> t; t -> fix [condition="outcome=failed && internal.node_visit_count < 3"]; t -> exit; fix -> t"#,
            "t: 1",
        ),
        (
            r#"start -> t; t -> exit [condition="outcome=success"]; t -> fix -> t; t [max_visits=3]"#,
            "t: 1",
        ),
        (r#"start -> t; t -> exit [condition="outcome=success"]; t [retry_target=t]"#, "t: 1"),
        (
            r#"start -> t; t -> exit [condition="outcome=success"]; t -> bad [condition="internal.node_visit_count >= 2"]; t -> fix -> t"#,
            "t: 1",
        ),
        (r#"start -> a; a -> a [condition="outcome=fail", loop_restart=true]; a -> exit"#, ""),
        (
            r#"start -> t -> fix; fix -> t [condition="internal.node_visit_count < 2"]; fix -> exit"#,
            "t: 1",
        ),
        (
            "start -> a; a [retry_target=exit]; a -> b [condition=\"outcome=success\"]; b -> exit",
            "",
        ),
        (
            r#"start -> a -> c; c -> b [condition="outcome=failed"]; c -> exit; b -> exit; c [goal_gate=true]"#,
            "",
        ),
        // Branches.
        (
            r#"start -> p -> a; a -> j [condition="outcome=failed"]; a -> j; p -> b -> j -> exit"#,
            "",
        ),
        ("start -> p -> a -> j -> exit; p -> b -> j", ""),
        ("start -> p -> a -> j -> exit; p -> b -> j", "a: 1; b: 1"),
        ("start -> p -> a -> exit; p -> b -> exit", ""),
        (
            r#"start -> p -> a; a -> exit [condition="outcome=failed"]; p -> b -> exit; a -> exit"#,
            "",
        ),
        (
            r#"start -> p -> a; a -> w [condition="outcome=failed"]; a -> exit; w -> exit; p -> b -> exit"#,
            "",
        ),
        (
            r#"start -> p -> a; a -> fin [condition="outcome=failed"]; a -> j; p -> b -> j -> exit; fin [shape=Msquare]"#,
            "",
        ),
        (
            r#"start -> p -> a; a -> bad [condition="outcome=failed"]; a -> j; p -> b -> j -> exit"#,
            "",
        ),
        (
            r#"start -> p -> a -> j; p -> b -> j; j -> exit [condition="parallel.results"]; j -> exit"#,
            "",
        ),
        (
            r#"start -> p -> a -> j; p -> b -> j; j -> c; c -> exit [condition="outcome=success"]; c -> exit"#,
            "",
        ),
        ("start -> p -> a -> j -> exit; p -> b -> j; p [join_policy=quorum, quorum=2]", ""),
        ("start -> p -> a -> j -> exit; p -> b -> j; p [join_policy=all_success]", ""),
        ("start -> l -> p -> a -> j -> exit; p [for_each=\"[1, 2]\"]", ""),
        (
            "start -> p -> q -> a -> i -> j -> exit; q -> b -> i; p -> x -> j; q [shape=component]; i [shape=tripleoctagon]",
            "",
        ),
        // Goal gates.
        ("start -> a -> exit; a [goal_gate=true]", ""),
        (r#"start -> a; a -> exit [condition="outcome=failed"]; a [goal_gate=true]"#, ""),
        (
            r#"start -> b; b -> a [condition="context.full=yes"]; b -> exit; a -> exit; a [goal_gate=true]"#,
            "",
        ),
        (
            r#"start -> b; b -> a [condition="context.full=yes"]; b -> exit; a -> exit; a [goal_gate=true, retry_target=b]"#,
            "",
        ),
        (
            r#"start -> p -> b; b -> a [condition="context.full=yes"]; a -> j; b -> j -> exit; p -> x -> j; a [goal_gate=true]"#,
            "a: ok",
        ),
        // Human gates, labels.
        ("start -> a -> g; g -> exit [label=Ship]; g -> a [label=Fix]", "a: 1; g: =Ship"),
        (r"start -> g; g -> exit [label=Ship]; g -> b [label=No]; b -> exit", "g: late"),
        // Exits with a status.
        ("start -> b -> bad", "b: ok"),
        ("start -> b -> some", "b: ok"),
        (r#"start -> a; a -> bad [condition="outcome=failed"]; a -> exit"#, ""),
        (r#"start -> a; a -> c [condition="outcome=failed"]; a -> exit; c -> some"#, ""),
        // on_failure.
        ("start -> a -> b -> exit; graph [on_failure=stop]", ""),
        ("start -> a -> b -> exit; graph [on_failure=exit]", ""),
        ("start -> a -> b -> exit; graph [on_failure=route]", ""),
        ("start -> a -> b -> exit; graph [on_failure=continue]; a [on_failure=route]", ""),
        ("start -> a -> b -> exit; graph [on_failure=succeed]; a [on_failure=exit]", ""),
        (r#"start -> a; a -> exit [condition="outcome=failed"]; a [on_failure=stop]"#, ""),
        (r#"start -> a; a -> exit [condition="outcome=failed"]; a [on_failure=exit]"#, ""),
        ("start -> p -> a -> j -> exit; p -> b -> j; graph [on_failure=exit]", "a: 1; b: 1"),
        ("start -> x -> a -> exit; a [on_failure=succeed]", "x: 1; a: 1"),
        // Goal gates ignore the graph's policy.
        ("start -> a -> exit; a [goal_gate=true]; graph [on_failure=succeed]", ""),
        ("start -> a -> exit; a [goal_gate=true]; graph [on_failure=succeed]", "a: no"),
        (
            "start -> p -> a -> j -> exit; p -> b -> j; a [goal_gate=true]; graph [on_failure=succeed]",
            "",
        ),
        ("start -> a -> b -> exit; a [goal_gate=true]; graph [on_failure=continue]", ""),
    ] {
        let status = status(body, answers);
        assert_ne!(status, RunStatus::Succeeded, "{body} | {answers}");
    }
}

#[test]
fn workflows_that_must_succeed() {
    for (body, answers) in [
        ("start -> b -> exit", "b: ok"),
        // The selected edge handles the failure.
        (r#"start -> a; a -> b [condition="outcome=failed"]; a -> exit; b -> exit"#, ""),
        (r#"start -> a; a -> x [condition="outcome=success"]; a -> b -> exit; x -> exit"#, "a: 1"),
        (
            r#"start -> a; a -> x [condition="failure_class=transient_infra"]; a -> b -> exit; x -> exit"#,
            "a: 1",
        ),
        (
            r#"start -> a; a -> x [condition="command.exit_code=0"]; a -> b -> exit; x -> exit"#,
            "a: 1",
        ),
        (
            r#"start -> a -> c; c -> x [condition="outcome=success"]; c -> b -> exit; x -> exit"#,
            "a: 1",
        ),
        (r#"start -> a; a -> w [condition="outcome=failed"]; a -> exit; w -> b -> exit"#, ""),
        (
            r#"start -> k -> a; a -> b [condition="context.k=yes"]; a -> exit; b -> exit"#,
            "k: +k; a: 1",
        ),
        ("start -> a; a -> exit [label=ok]; a -> b [label=mend]; b -> exit", "a: !mend"),
        ("start -> a; a -> x -> exit; a -> y -> exit", "a: !y"),
        // An exit with a status.
        (r#"start -> a; a -> fine [condition="outcome=failed"]; a -> exit"#, ""),
        (r#"start -> a; a -> w [condition="outcome=failed"]; a -> exit; w -> c -> fine"#, ""),
        (
            r#"start -> p -> a; a -> fine [condition="outcome=failed"]; a -> fine; p -> b -> fine"#,
            "",
        ),
        // Retries.
        ("start -> a -> exit; a [max_retries=1]", "a: 1 ok"),
        (r#"start -> t; t -> fix [condition="outcome=failed"]; t -> exit; fix -> t"#, "t: 1 1 ok"),
        ("start -> b -> t -> exit; t [goal_gate=true, retry_target=b]", "t: 1 ok"),
        (
            r#"start -> b -> t; t -> exit [condition="outcome=success"]; t [retry_target=b]"#,
            "t: 1 ok",
        ),
        (
            r#"start -> t; t -> t [condition="outcome=fail", loop_restart=true]; t -> exit"#,
            "t: late ok",
        ),
        (
            r#"start -> t -> fix; fix -> t [condition="internal.node_visit_count < 2"]; fix -> exit"#,
            "t: 1 ok",
        ),
        // Attributes.
        ("start -> a -> exit; a [allow_partial=true]", ""),
        ("start -> a -> exit; a [auto_status=true]", ""),
        ("start -> a -> b -> exit; a [on_failure=continue]", ""),
        ("start -> a -> b -> exit; graph [on_failure=continue]", ""),
        ("start -> a -> b -> exit; a [on_failure=succeed]", "a: no"),
        ("start -> a -> b -> exit; graph [on_failure=succeed]", ""),
        (
            r#"start -> a; a -> b [condition="outcome=failed"]; a -> exit; b -> exit; graph [on_failure=exit]"#,
            "",
        ),
        (
            r#"start -> a -> c; c -> b [condition="outcome=failed"]; c -> exit; b -> exit; graph [on_failure=exit]"#,
            "",
        ),
        (
            r#"start -> a -> c; c -> b [condition="outcome=failed"]; c -> exit; b -> exit; graph [on_failure=stop]"#,
            "",
        ),
        (r"start -> b -> a -> x -> exit; a [retry_target=b]; graph [on_failure=exit]", "a: 1 ok"),
        (r#"start -> a; a -> exit [condition="outcome=failed"]; a [on_failure=succeed]"#, ""),
        // Branches.
        ("start -> p -> a -> j -> exit; p -> b -> j; p [join_policy=first_success]", ""),
        (
            "start -> p -> a -> j -> exit; p -> b -> j; p -> x -> j; p [join_policy=quorum, quorum=2]",
            "",
        ),
        ("start -> p -> a -> j -> exit; p -> b -> j; p [on_failure=continue]", ""),
        (
            r#"start -> p -> a; a -> x [condition="outcome=failed"]; a -> j; x -> j; p -> b -> j -> exit"#,
            "",
        ),
        (
            r#"start -> p -> a -> j; p -> b -> j; j -> x [condition="parallel.results"]; j -> exit; x -> exit"#,
            "",
        ),
        // Goal gates that a fan-out or an exit excuses.
        (
            r#"start -> p -> b -> j -> exit; p -> v [condition="context.full=yes"]; v -> j; v [goal_gate=true]"#,
            "b: ok",
        ),
        ("start -> p -> v -> j -> exit; p [for_each=\"[]\"]; v [goal_gate=true]", "v: ok"),
        (
            r#"start -> b; b -> v [condition="context.full=yes"]; b -> fine; v -> exit; v [goal_gate=true]"#,
            "b: ok",
        ),
        (
            r#"start -> b; b -> v [condition="context.full=yes"]; b -> exit; v -> exit; v [goal_gate=true, retry_target=b]"#,
            "b: ok +full",
        ),
    ] {
        let status = status(body, answers);
        assert_eq!(status, RunStatus::Succeeded, "{body} | {answers}");
    }
}

/// A run that is killed after any event and resumed ends the same way.
#[test]
fn a_resume_changes_no_result() {
    for body in [
        r#"start -> a; a -> w [condition="outcome=failed"]; a -> b -> exit; w -> c -> exit"#,
        r#"start -> a; a -> bad [condition="outcome=failed"]; a -> exit"#,
        r#"start -> p -> a; a -> w [condition="outcome=failed"]; a -> exit; w -> exit; p -> b -> exit"#,
        "start -> a -> b -> exit; a [on_failure=succeed]",
        r#"start -> b; b -> v [condition="context.full=yes"]; b -> exit; v -> exit; v [goal_gate=true, retry_target=b]"#,
    ] {
        let source = format!("digraph {{ {NODES} {body} }}");
        super::resume::check_prefixes(&source, &[("a", vec![exits(1)])]);
    }
}

#[test]
fn run_end_names_the_cause() {
    let end = |body: &str, answers: &str| {
        let bench = Bench::new(&format!("digraph {{ {NODES} {body} }}"), &replies(answers));
        let story = bench.story();
        let last = bench.events().last().unwrap().entry.body.clone();
        let causes: Vec<_> = last.causes().iter().map(fabro_events::StageFailure::stage).collect();
        format!("{} [{}]", story.lines().last().unwrap_or_default(), causes.join(", "))
    };
    insta::assert_snapshot!([
        end(r#"start -> a; a -> bad [condition="outcome=failed"]; a -> exit"#, "a: 1"),
        end(r#"start -> a; a -> w [condition="outcome=failed"]; a -> exit; w -> bad"#, "a: 1"),
        end("start -> b -> over; over [shape=Msquare, status=fail]", ""),
        end(r#"start -> k -> over; over [shape=Msquare, status=failed, reason="{{ context.k }}, {{ goal }}"]"#, "k: +k"),
        end(r#"start -> k -> over; over [shape=Msquare, status=failed, reason="{{ context.gone }}!"]"#, "k: +k"),
        end(r#"start -> b; b -> v [condition="context.full=yes"]; b -> exit; v -> exit; v [goal_gate=true]"#, ""),
        end(r#"start -> b; b -> v [condition="context.full=yes"]; b -> exit; v -> exit; v [goal_gate=true, retry_target=b]"#, ""),
        end("start -> a -> b -> exit; a [on_failure=exit]", "a: 1"),
        end(r#"start -> a; a -> exit [condition="outcome=failed"]; a [on_failure=stop]"#, "a: 1"),
        end(r#"start -> a; a -> w [condition="outcome=failed"]; w -> exit; a -> exit; a [on_failure=stop]"#, "a: 1"),
    ].join("\n"), @r#"
    run failed: gave up [a@1]
    run failed: gave up [a@1]
    run failed: the run reached `over`, an exit with status=failed []
    run failed: yes, test it []
    run failed: {{ context.gone }}! (the context has no key `gone`; write it in an earlier stage, or give a default: `{{ context.gone | default("") }}`) []
    run failed: the run reached its exit without visiting the goal gate `v`: route every path through it, or set a `status` on the exit of the other paths []
    run failed: the same failure 3 times: the run reached its exit without visiting the goal gate `v`: route every path through it, or set a `status` on the exit of the other paths []
    run failed: exit code 1 [a@1]
    run failed: exit code 1 [a@1]
    run failed: exit code 1 [a@1]
    "#);
}

#[test]
fn a_success_clears_the_failure_in_the_context() {
    let source = r#"digraph { start -> a; a -> b [condition="outcome=failed"]; a -> exit
        b -> x [condition="failure_class=deterministic"]; b -> y; x -> exit; y -> exit }"#;
    let bench = Bench::new(source, &[("a", vec![exits(1)])]);
    let story = bench.story();
    assert!(story.contains("y@1 succeeded"), "{story}");
    let context = &bench.state().main().unwrap().context.clone();
    for key in ["failure_class", "failure_signature"] {
        assert_eq!(context.get(key), Some(&"".into()), "{key}");
    }
    let retried = Bench::new(
        "digraph { start -> a -> exit; a [max_retries=1] }",
        &[("a", vec![exits(1), ok()])],
    );
    retried.drive(Input::Start);
    assert_eq!(retried.state().main().unwrap().context.get("failure_class"), Some(&"".into()));
}

/// A failure that `on_failure=succeed` turns into a success stays in the record of its stage.
#[test]
fn succeed_keeps_the_failure_in_the_record() {
    let source = "digraph { start -> a -> b -> exit; a [on_failure=succeed] }";
    let bench = Bench::new(source, &[("a", vec![exits(3)])]);
    bench.drive(Input::Start);
    let ends = bench.events().into_iter().find_map(|event| match event.entry.body {
        EventBody::StageCompleted(end) if event.entry.node_id.as_deref() == Some("a") => Some(end),
        _ => None,
    });
    let outcome = &ends.unwrap().outcome;
    assert_eq!(outcome.status, Status::Succeeded);
    assert_eq!(outcome.failure.as_ref().unwrap().message, "exit code 3");
    assert_eq!(outcome.notes.as_deref(), Some("on_failure=succeed: exit code 3"));
    let context = &bench.state().main().unwrap().context.clone();
    assert_eq!(context.get("failure_class"), None);
}

#[test]
fn the_third_identical_failure_of_a_node_emits_a_warning() {
    let warnings = |body: &str, answers: &str| {
        let bench = Bench::new(&format!("digraph {{ {NODES} {body} }}"), &replies(answers));
        bench.drive(Input::Start);
        let warning = |event: Event| match event.entry.body {
            EventBody::AgentWarning { kind, message, .. } if kind == "repeated_failure" => {
                let visit = event.entry.visit.unwrap_or_default();
                Some(format!("{}@{visit}: {message}", event.entry.node_id.unwrap_or_default()))
            }
            _ => None,
        };
        bench.events().into_iter().filter_map(warning).collect::<Vec<_>>().join("; ")
    };
    let fix =
        r#"start -> t; t -> exit [condition="outcome=success"]; t -> fix -> t; t [max_visits=6]"#;
    assert_eq!(warnings(fix, "t: 1"), "t@3: the same failure for the third time: exit code 1");
    // Signatures ignore digits but not words.
    assert_eq!(warnings(fix, "t: 1 2 ok"), "");
    assert_eq!(warnings(fix, "t: 1 no late 1 ok"), "");
    let branch =
        r"start -> p -> t -> j; p -> b -> j; t [goal_gate=true, retry_target=p]; j -> exit";
    assert_eq!(warnings(branch, "t: 1"), "t@3: the same failure for the third time: exit code 1");
}

/// `max_retries` does not retry deterministic failures that have an edge or a retry target.
#[test]
fn deterministic_failures_with_a_recovery_path_are_not_retried() {
    let attempts = |body: &str, answers: &str| {
        let bench = Bench::new(&format!("digraph {{ {body} }}"), &replies(answers));
        bench.drive(Input::Start);
        let ran = bench.script.ran.lock().unwrap();
        ran.iter().filter(|stage| stage.starts_with("a@1.")).count()
    };
    let plain = "start -> a -> exit; a [max_retries=2]";
    assert_eq!(attempts(plain, "a: 1"), 3);
    let edge = r#"start -> a; a -> b [condition="outcome=failed"]; a -> exit; b -> exit; a [max_retries=2]"#;
    assert_eq!(attempts(edge, "a: 1"), 1);
    assert_eq!(attempts(edge, "a: late"), 3);
    let other = r#"start -> a; a -> b [condition="outcome=success"]; a -> exit; b -> exit; a [max_retries=2]"#;
    assert_eq!(attempts(other, "a: 1"), 3);
    let target = r#"start -> b -> a; a -> exit [condition="outcome=success"]; a [max_retries=2, retry_target=b, max_visits=1]"#;
    assert_eq!(attempts(target, "a: 1"), 1);
    let policy = r#"start -> b -> a; a -> exit [condition="outcome=success"]; a [retry_policy=linear, retry_target=b, max_visits=1]"#;
    assert_eq!(attempts(policy, "a: 1"), 3);
}
