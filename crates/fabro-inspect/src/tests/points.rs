//! A run as it was at some point.

use fabro_engine::checkpoint;
use fabro_types::{ContextPatch, RunStatus};

use super::*;

#[test]
fn the_context_after_a_stage_and_what_changed() {
    let bench = repaired();
    let context = context_at(&bench.events, Some("test@1")).unwrap();
    assert_eq!(context.get("size"), Some(&json!(1)));
    assert_eq!(context.text("outcome"), "failed");
    assert_eq!(context_at(&bench.events, None).unwrap().get("size"), Some(&json!(2)));
    let changes = diff(&bench.events, "test@1", "repair").unwrap();
    let changes: Vec<_> = changes.iter().filter(|change| !change.key.contains('.')).collect();
    insta::assert_snapshot!(serde_json::to_string(&changes).unwrap(), @r#"[{"key":"current_node","before":"test","after":"repair"},{"key":"failure_class","before":"deterministic","after":""},{"key":"failure_signature","before":"test|deterministic|exit code <n>","after":""},{"key":"last_stage","before":"test","after":"repair"},{"key":"outcome","before":"failed","after":"succeeded"},{"key":"size","before":1,"after":2}]"#);
    assert!(matches!(context_at(&[], None), Err(ReportError::Empty)));
}

#[test]
fn a_branch_has_its_own_context() {
    let mut bench = Bench::new(
        "digraph { start -> fork; fork [shape=component]
        fork -> a -> join; fork -> b -> join; join -> exit }",
    );
    bench.end("a", ok().with_update("who", "a"));
    bench.end("b", ok().with_update("who", "b"));
    bench.finish();
    let who = |at| context_at(&bench.events, at).unwrap().text("who").to_owned();
    assert_eq!([who(Some("a")), who(Some("b")), who(None)], ["a", "b", ""]);
}

#[test]
fn stages_of_branches_are_named_with_their_branch() {
    let mut bench = Bench::new(
        "digraph { start -> fork; fork [shape=component]; fork -> a -> c; fork -> b -> c; fork -> d
        c -> join; d -> join; join -> exit }",
    );
    bench.end("a", ok());
    bench.end("c", ok().with_update("who", "a"));
    bench.end("b", ok());
    bench.end("c", ok().with_update("who", "b"));
    bench.finish();
    let who = |at| context_at(&bench.events, Some(at)).map(|it| it.text("who").to_owned());
    assert_eq!(who("fork@1/a/c@1").unwrap(), "a");
    assert_eq!(who("fork@1/a/c").unwrap(), "a");
    assert_eq!(who("fork@1/b/c@1").unwrap(), "b");
    // Without a visit it is the last.
    assert_eq!(who("c").unwrap(), "b");
    insta::assert_snapshot!(who("c@1").unwrap_err(), @"`c@1` means 2 stages: name one of fork@1/a/c@1, fork@1/b/c@1");
    insta::assert_snapshot!(who("fork@1/d/c@1").unwrap_err(), @"the run has no stage `fork@1/d/c@1`; it has entered start, fork, a, b, d, c, join, exit");
    let several = |error| matches!(error, Some(ReportError::SeveralStages { .. }));
    assert!(several(explain(&bench.events, "c@1").err()));
    assert!(several(stage(&bench.events, "c@1", true, &*bench.blobs).err()));
    assert!(several(conversation(&bench.events, Some("c@1")).err()));
    assert_eq!(explain(&bench.events, "fork@1/a/c@1").unwrap().chosen.as_deref(), Some("join"));
}

#[test]
fn a_rewind_takes_back_what_came_after() {
    let mut bench = repaired();
    let run_id = bench.events[0].run_id;
    let effective = checkpoint::effective(&bench.events);
    let at = checkpoint::find(&effective, Some("plan")).unwrap();
    let set = ContextPatch::from([("size".to_owned(), Arc::new(json!(5)))]);
    let last = bench.events.len() as u64;
    bench.events.push(checkpoint::rewind(run_id, &at, last, 99_000, set));
    let report = inspect(&bench.events, false).unwrap();
    assert_eq!(report.status, RunStatus::Interrupted);
    let nodes: Vec<&str> = report.stages.iter().map(|row| row.node.as_ref()).collect();
    assert_eq!(nodes, ["start", "plan"]);
    assert_eq!(context_at(&bench.events, None).unwrap().get("size"), Some(&json!(5)));
    assert!(explain(&bench.events, "test").is_err());
}
