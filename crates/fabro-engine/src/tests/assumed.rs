//! The edges of dry runs.

use super::*;

#[track_caller]
fn dry(source: &str) -> String {
    let new = NewRun { dry_run: true, ..NewRun::default() };
    Bench::begun(source, &[], new).story()
}

#[test]
fn where_no_condition_can_hold_the_least_taken_edge_is_assumed() {
    let source = r#"digraph {
        start -> review
        review -> fix [condition="context.verdict=revise"]
        review -> ship [condition="context.verdict=ok && outcome=success"]
        review -> stop [condition="outcome=fail"]
        fix -> review; ship -> exit; stop -> exit
    }"#;
    insta::assert_snapshot!(dry(source), @r"
    001 start@1 succeeded  -> review (unconditional)
    002 review@1 succeeded  -> fix (assumed)
    003 fix@1 succeeded  -> review (unconditional)
    004 review@2 succeeded  -> ship (assumed)
    005 ship@1 succeeded  -> exit (unconditional)
    006 exit@1 succeeded
    run succeeded
    ");
}

#[test]
fn words_of_the_workflow_are_assumed() {
    let source = r#"digraph {
        start -> check
        check -> define [condition="outcome=needs_dod"]
        check -> exit [condition="outcome=has_dod"]
        define -> check
    }"#;
    insta::assert_snapshot!(dry(source), @r"
    001 start@1 succeeded  -> check (unconditional)
    002 check@1 succeeded  -> define (assumed)
    003 define@1 succeeded  -> check (unconditional)
    004 check@2 succeeded  -> exit (assumed)
    005 exit@1 succeeded
    run succeeded
    ");
}

#[test]
fn a_loop_ends_by_an_edge_that_was_not_taken_yet() {
    let source = r#"digraph {
        start -> build -> test
        test -> exit [condition="context.tests_passed=true"]
        test -> build
    }"#;
    insta::assert_snapshot!(dry(source), @r"
    001 start@1 succeeded  -> build (unconditional)
    002 build@1 succeeded  -> test (unconditional)
    003 test@1 succeeded  -> build (unconditional)
    004 build@2 succeeded  -> test (unconditional)
    005 test@2 succeeded  -> exit (assumed)
    006 exit@1 succeeded
    run succeeded
    ");
}

#[test]
fn a_known_value_is_waited_for() {
    let source = r#"digraph {
        start -> work
        work -> exit [condition="internal.node_visit_count >= 3"]
        work -> work
    }"#;
    insta::assert_snapshot!(dry(source), @r"
    001 start@1 succeeded  -> work (unconditional)
    002 work@1 succeeded  -> work (unconditional)
    003 work@2 succeeded  -> work (unconditional)
    004 work@3 succeeded  -> exit (condition)
    005 exit@1 succeeded
    run succeeded
    ");
}

#[test]
fn a_visit_limit_is_no_end_where_another_edge_leads_on() {
    let source = r#"digraph {
        start -> a
        a -> b [condition="outcome=success"]
        a -> exit [condition="outcome=fail"]
        b [max_visits=2]
        b -> c -> a
    }"#;
    insta::assert_snapshot!(dry(source), @r"
    001 start@1 succeeded  -> a (unconditional)
    002 a@1 succeeded  -> b (condition)
    003 b@1 succeeded  -> c (unconditional)
    004 c@1 succeeded  -> a (unconditional)
    005 a@2 succeeded  -> b (condition)
    006 b@2 succeeded  -> c (unconditional)
    007 c@2 succeeded  -> a (unconditional)
    008 a@3 succeeded  -> exit (assumed)
    009 exit@1 succeeded
    run succeeded
    ");
}

#[test]
fn branches_with_conditions_all_begin() {
    let source = r#"digraph {
        start -> fork
        fork [shape=component]
        fork -> a [condition="context.kind=a"]
        fork -> b [condition="context.kind=b"]
        a -> a2 [condition="context.more=yes"]
        a -> join [condition="context.more=no"]
        a2 -> a; b -> join
        join [shape=tripleoctagon]
        join -> exit
    }"#;
    insta::assert_snapshot!(dry(source), @r"
    001 start@1 succeeded  -> fork (unconditional)
    fork@1 forks 2, joins at join
      003 a@1 succeeded  -> a2 (assumed)
      004 b@1 succeeded  -> join (unconditional)
      fork@1/b succeeded
      005 a2@1 succeeded  -> a (unconditional)
      007 a@2 succeeded  -> join (assumed)
      fork@1/a succeeded
    002 fork@1 succeeded  -> join (join)
    008 join@1 succeeded  -> exit (unconditional)
    009 exit@1 succeeded
    run succeeded
    ");
}

#[test]
fn what_a_real_run_cannot_take_is_not_assumed() {
    let source = r#"digraph {
        start -> a
        a -> fix [condition="outcome=fail"]
        fix -> exit
    }"#;
    insta::assert_snapshot!(dry(source), @r"
    001 start@1 succeeded  -> a (unconditional)
    002 a@1 succeeded
    run failed: no matching edge from `a`: add an edge without a condition, or one for this result (structural)
    ");
    // Nor in a real run.
    let source = r#"digraph {
        start -> a
        a -> exit [condition="context.x=1"]
    }"#;
    insta::assert_snapshot!(run(source, &[]), @r"
    001 start@1 succeeded  -> a (unconditional)
    002 a@1 succeeded
    run failed: no matching edge from `a`: add an edge without a condition, or one for this result (structural)
    ");
}
