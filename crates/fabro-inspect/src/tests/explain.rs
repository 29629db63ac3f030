//! Explanations of edges.

use fabro_events::Tier;

use super::*;
use crate::explain::TieBreak;

#[test]
fn explain_shows_every_candidate() {
    let bench = repaired();
    insta::assert_snapshot!(pretty(&explain(&bench.events, "test@1").unwrap()), @r#"
    {
      "stage": "test@1",
      "chosen": "repair",
      "tier": "condition",
      "candidates": [
        {
          "to": "done",
          "label": null,
          "condition": "outcome=succeeded",
          "weight": 0,
          "holds": false,
          "clauses": [
            {
              "text": "outcome=succeeded",
              "value": "failed",
              "holds": false
            }
          ]
        },
        {
          "to": "repair",
          "label": "again",
          "condition": "outcome=failed",
          "weight": 0,
          "holds": true,
          "clauses": [
            {
              "text": "outcome=failed",
              "value": "failed",
              "holds": true
            }
          ],
          "taken": true
        }
      ]
    }
    "#);
    assert_eq!(explain(&bench.events, "test").unwrap().chosen.as_deref(), Some("done"));
    let message = |stage| explain(&bench.events, stage).unwrap_err().to_string();
    insta::assert_snapshot!(message("exit"), @"no edge was taken after `exit@1`: the run ended there");
    insta::assert_snapshot!(message("test@3"), @"the run has no stage `test@3`; it has entered start, plan, test, repair, done, exit");
}

#[test]
fn the_last_explained_stage_is_the_last_that_was_left() {
    let mut bench = Bench::new(
        r#"digraph { start -> test; test -> done [condition="outcome=succeeded"]
        test -> repair [condition="outcome=failed"]; repair -> test; done -> exit }"#,
    );
    let check = |bench: &Bench, last: &str, test: &str| {
        assert_eq!(last_explained(&bench.events).as_deref(), Some(last));
        let explained = explain(&bench.events, "test").unwrap();
        assert_eq!(explained.chosen.as_deref(), Some(test));
    };
    bench.end("test", exits(1));
    check(&bench, "test@1", "repair");
    // The second visit has started.
    bench.end("repair", ok());
    check(&bench, "repair@1", "repair");
    bench.end("test", ok());
    bench.end("done", ok());
    bench.finish();
    check(&bench, "done@1", "done");
}

#[test]
fn explain_shows_what_a_failed_run_was_stuck_at() {
    let source =
        r#"digraph { start -> a; a -> exit [condition="outcome=success && context.size > 7"] }"#;
    let mut bench = Bench::new(source);
    bench.end("a", ok().with_update("size", 5));
    insta::assert_snapshot!(compact(&explain(&bench.events, "a").unwrap()), @r#"{"stage":"a@1","chosen":null,"tier":null,"failure":{"class":"structural","message":"no matching edge from `a`","details":"add an edge without a condition, or one for this result","signature":"a|structural|no matching edge from `a`"},"candidates":[{"to":"exit","label":null,"condition":"outcome=success && context.size > 7","weight":0,"holds":false,"clauses":[{"text":"outcome=success","value":"succeeded","holds":true},{"text":"context.size > 7","value":"5","holds":false}]}]}"#);
    let report = inspect(&bench.events, false).unwrap();
    insta::assert_snapshot!(compact(&report.failure), @r#"{"class":"structural","message":"no matching edge from `a`","details":"add an edge without a condition, or one for this result","signature":"a|structural|no matching edge from `a`"}"#);

    let mut bench = Bench::new(
        r#"digraph { start -> fork; fork [shape=component]; join [shape=tripleoctagon]
        fork -> a; a -> join [condition="outcome=success"]; fork -> b -> join; join -> exit }"#,
    );
    bench.end("a", exits(3));
    insta::assert_snapshot!(compact(&explain(&bench.events, "a").unwrap()), @r#"{"stage":"fork@1/a/a@1","chosen":null,"tier":null,"failure":{"class":"deterministic","message":"exit code 3","signature":"a|deterministic|exit code <n>"},"candidates":[{"to":"join","label":null,"condition":"outcome=success","weight":0,"holds":false,"clauses":[{"text":"outcome=success","value":"failed","holds":false}]}]}"#);
    bench.finish();
    assert!(inspect(&bench.events, false).unwrap().failure.is_none());

    let mut restart = Bench::new("digraph { start -> a; a -> b [loop_restart=true]; b -> exit }");
    restart.end("a", exits(3));
    insta::assert_snapshot!(compact(&explain(&restart.events, "a").unwrap()), @r#"{"stage":"a@1","chosen":null,"tier":null,"failure":{"class":"deterministic","message":"a failure of class deterministic does not restart the loop: exit code 3","signature":"a|deterministic|exit code <n>"},"candidates":[{"to":"b","label":null,"condition":null,"weight":0,"holds":true,"clauses":[]}]}"#);
}

#[test]
fn explain_shows_the_jump_of_a_goal_gate_before_the_exit_is_reached() {
    let mut bench =
        Bench::new("digraph { start -> a -> exit; a [goal_gate=true, retry_target=a] }");
    bench.end("a", exits(3));
    insta::assert_snapshot!(compact(&explain(&bench.events, "exit").unwrap()), @r#"{"stage":"exit@1","chosen":"a","tier":"goal_gate","gate":"a","candidates":[]}"#);
    assert!(stage(&bench.events, "exit", true, &*bench.blobs).is_err());
}

#[test]
fn explain_shows_what_was_drawn() {
    let source = "digraph { start -> a; a [selection=random]; a -> b -> exit; a -> c -> exit }";
    let mut bench = Bench::new(source);
    bench.end("a", ok());
    let report = explain(&bench.events, "a").unwrap();
    assert_eq!((report.tier, report.seed), (Some(Tier::Unconditional), Some(9)));
    assert_eq!(explain(&bench.events, "start").unwrap().seed, None);
}

#[test]
fn explain_names_the_tie_break() {
    let check = |edges: &str, expected: Option<TieBreak>, taken: usize| {
        let mut bench = Bench::new(&format!("digraph {{ start -> a; {edges}; {{b; c}} -> exit }}"));
        bench.end("a", ok());
        let report = explain(&bench.events, "a").unwrap();
        assert_eq!(report.tie_break, expected, "{edges}");
        let marked = report.candidates.iter().position(|candidate| candidate.taken);
        assert_eq!(marked, Some(taken), "{edges}");
    };
    check("a -> b", None, 0);
    check("a -> c; a -> b", Some(TieBreak::Target), 1);
    check("a -> b; a -> c [weight=2]", Some(TieBreak::Weight), 1);
    check("a -> b [label=x]; a -> b [label=y]", Some(TieBreak::FileOrder), 0);
    check("a -> b; a -> c [condition=\"outcome=success\"]", None, 1);
    check("a -> b [condition=\"outcome=fail\"]; a -> c", None, 1);
}
