use fabro_types::{BlobRef, ContextPatch};
use serde_json::{Value, json};

use super::resume::check_prefixes;
use super::*;

const EACH: &str = r"digraph {
    start -> plan -> each -> work -> join -> exit
    each [shape=component, for_each=plan, max_parallel=2]
    join [shape=tripleoctagon]
}";

fn plan(list: impl Into<Value>) -> Vec<(&'static str, Vec<Reply>)> {
    vec![("plan", vec![sets("plan", list)])]
}

/// What the branches of a run had as their elements: branch, key and value.
fn elements(events: &[Event]) -> String {
    let mut text = String::new();
    for event in events {
        if let EventBody::ParallelStarted { branches, for_each: Some(list), .. } = &event.entry.body
        {
            for (branch, item) in branches.iter().zip(&list.items) {
                let _ = writeln!(text, "{} {}={item}", branch.branch, list.name);
            }
        }
    }
    text
}

/// Handler that answers with what its stage sees of its element.
struct Tell;

#[async_trait]
impl Handler for Tell {
    async fn execute(&self, stage: Stage) -> StageEnd {
        let see = |key: &str| stage.context.get(key).cloned().unwrap_or_default();
        let answer = json!([see("item"), see("item_index"), see("row"), see("row_index")]);
        let node = &stage.at.node;
        if **node != *"work" {
            return Outcome::succeeded().into();
        }
        Outcome::succeeded().with_update(format!("response.{node}"), answer).into()
    }
}

async fn outputs(source: &str, context: Value) -> Value {
    let Value::Object(fields) = context else { panic!("an object") };
    let patch: ContextPatch =
        fields.into_iter().map(|(key, value)| (key, Arc::new(value))).collect();
    let (_, state) = run_in_memory(source, Tell, patch).await.unwrap();
    let context = &state.main().unwrap().context;
    context.get("parallel.outputs").cloned().unwrap_or_default()
}

#[test]
fn every_element_has_a_branch() {
    let bench = Bench::new(EACH, &plan(json!(["a", {"b": 1}, 3])));
    insta::assert_snapshot!(bench.story(), @r"
    001 start@1 succeeded  -> plan (unconditional)
    002 plan@1 succeeded  -> each (unconditional)
    each@1 forks 3, joins at join
      004 work@1 succeeded  -> join (unconditional)
      each@1/work[0] succeeded
      005 work@1 succeeded  -> join (unconditional)
      each@1/work[1] succeeded
      006 work@1 succeeded  -> join (unconditional)
      each@1/work[2] succeeded
    003 each@1 succeeded  -> join (join)
    007 join@1 succeeded  -> exit (unconditional)
    008 exit@1 succeeded
    run succeeded
    ");
    insta::assert_snapshot!(elements(&bench.events()), @r#"
    each@1/work[0] item="a"
    each@1/work[1] item={"b":1}
    each@1/work[2] item=3
    "#);
    let context = &bench.state().main().unwrap().context.clone();
    insta::assert_snapshot!(context.get("parallel.results").unwrap(), @r#"[{"id":"work[0]","status":"succeeded","notes":null,"response":null,"output":null,"updates":{},"head_sha":null,"index":0,"item_label":"0","context_updates":{}},{"id":"work[1]","status":"succeeded","notes":null,"response":null,"output":null,"updates":{},"head_sha":null,"index":1,"item_label":"1","context_updates":{}},{"id":"work[2]","status":"succeeded","notes":null,"response":null,"output":null,"updates":{},"head_sha":null,"index":2,"item_label":"2","context_updates":{}}]"#);
    assert_eq!([context.get("item"), context.get("item_index")], [None, None]);
}

#[tokio::test]
async fn elements_are_called_as_the_node_says() {
    let list = json!({"plan": ["a", "b"]});
    insta::assert_snapshot!(outputs("digraph { start -> each -> work -> join -> exit; each [shape=component, for_each=plan]; join [shape=tripleoctagon] }", list.clone()).await, @r#"[["a",0,null,null],["b",1,null,null]]"#);
    insta::assert_snapshot!(outputs("digraph { start -> each -> work -> join -> exit; each [shape=component, for_each=\"{{ context.plan | reverse }}\", as=row]; join [shape=tripleoctagon] }", list).await, @r#"[[null,0,"b",0],[null,1,"a",1]]"#);
    let nested = "digraph {
        start -> rows -> cells -> work -> end_cells -> end_rows -> exit
        rows [shape=component, for_each=plan.rows, as=row]
        cells [shape=component, for_each=\"{{ context.row }}\"]
        end_cells [shape=tripleoctagon]; end_rows [shape=tripleoctagon]
    }";
    insta::assert_snapshot!(outputs(nested, json!({"plan": {"rows": [[1, 2], [], ["x"]]}})).await, @r#"[[[1,0,[1,2],0],[2,1,[1,2],0]],[],[["x",0,["x"],2]]]"#);
}

#[test]
fn an_empty_list_joins_at_once() {
    for policy in ["wait_all", "all_success", "first_success", "quorum"] {
        let source = EACH.replace("max_parallel=2", &format!("join_policy={policy}"));
        for list in [json!([]), json!(""), json!("\n \n"), json!("[]")] {
            let bench = Bench::new(&source, &plan(list));
            let story = bench.story();
            assert!(story.ends_with("run succeeded\n"), "{policy} {story}");
            let context = &bench.state().main().unwrap().context.clone();
            assert_eq!(context.get("parallel.results"), Some(&json!([])));
            assert_eq!(context.get("parallel.outputs"), Some(&json!([])));
        }
    }
}

#[test]
fn one_failing_element_and_the_join_policies() {
    let told = |policy: &str| {
        let source = EACH.replace("max_parallel=2", &format!("max_parallel=1, {policy}"));
        let mut replies = plan("a\nb\nc");
        replies.push(("work", vec![ok(), exits(2), ok()]));
        let bench = Bench::new(&source, &replies);
        let story = bench.story();
        let main = bench.state().main().unwrap().clone();
        let results = main.context.get("parallel.results").unwrap().clone();
        let statuses: Vec<&str> =
            results.as_array().unwrap().iter().map(|it| it["status"].as_str().unwrap()).collect();
        let each = story.lines().find(|line| line.contains(" each@1 ") && !line.contains("forks"));
        format!("{policy}: {statuses:?} {}\n{}", each.unwrap(), story.lines().last().unwrap())
    };
    insta::assert_snapshot!(told("join_policy=wait_all"), @r#"
    join_policy=wait_all: ["succeeded", "failed", "succeeded"] 003 each@1 partially_succeeded  -> join (join)
    run partially_succeeded; `work[1]` failed: exit code 2
    "#);
    insta::assert_snapshot!(told("join_policy=all_success"), @r#"
    join_policy=all_success: ["succeeded", "failed", "skipped"] 003 each@1 failed  -> join (join)
    run partially_succeeded; `work[1]` failed: exit code 2
    "#);
    insta::assert_snapshot!(told("join_policy=first_success"), @r#"
    join_policy=first_success: ["succeeded", "skipped", "skipped"] 003 each@1 succeeded  -> join (join)
    run succeeded
    "#);
    insta::assert_snapshot!(told("join_policy=quorum"), @r#"
    join_policy=quorum: ["succeeded", "failed", "succeeded"] 003 each@1 succeeded  -> join (join)
    run succeeded
    "#);
    insta::assert_snapshot!(told("join_policy=quorum, quorum=3"), @r#"
    join_policy=quorum, quorum=3: ["succeeded", "failed", "skipped"] 003 each@1 failed  -> join (join)
    run partially_succeeded; `work[1]` failed: exit code 2
    "#);
}

#[test]
fn what_is_no_list_fails_the_stage() {
    let failed = |attributes: &str, list: Value| {
        let source = EACH.replace("for_each=plan", attributes);
        let story = Bench::new(&source, &plan(list)).story();
        story.lines().last().unwrap().to_owned()
    };
    insta::assert_snapshot!(failed("for_each=plan", json!(5)), @"run failed: the list `plan` of `each` holds `5`: a list is a JSON array, or lines of text");
    insta::assert_snapshot!(failed("for_each=plan", json!({"files": []})), @"run failed: the list `plan` of `each` holds a JSON object: a list is a JSON array, or lines of text");
    insta::assert_snapshot!(failed("for_each=plan", json!("{\"files\": []}")), @"run failed: the list `plan` of `each` holds a JSON object: a list is a JSON array, or lines of text");
    insta::assert_snapshot!(failed("for_each=plan.files", json!({"file": []})), @"run failed: the list `plan.files` of `each` has no value: no stage has written one");
    insta::assert_snapshot!(failed("for_each=plan", Value::Null), @"run failed: the list `plan` of `each` holds null: a list is a JSON array, or lines of text");
    insta::assert_snapshot!(failed("for_each=\"{{ context.plan.files }}\"", json!({})), @r#"run failed: the context has no key `plan.files`; write it in an earlier stage, or give a default: `{{ context.plan.files | default("") }}`"#);
    insta::assert_snapshot!(failed("for_each=\"{{ context.plan | length }}\"", json!([1])), @"run failed: the list `{{ context.plan | length }}` of `each` holds `1`: a list is a JSON array, or lines of text");
    insta::assert_snapshot!(failed("for_each=plan, max_items=2", json!([1, 2, 3])), @"run failed: the list `plan` of `each` has 3 elements, and `each` takes at most 2: give it a higher max_items");
    let many: Vec<u32> = (0..1_001).collect();
    insta::assert_snapshot!(failed("for_each=plan", json!(many)), @"run failed: the list `plan` of `each` has 1001 elements, and `each` takes at most 1000: give it a higher max_items");
}

#[test]
fn a_thousand_elements() {
    let many: Vec<u32> = (0..1_000).collect();
    let bench = Bench::new(EACH, &plan(json!(many)));
    let story = bench.story();
    assert!(story.ends_with("run succeeded\n"), "{story}");
    let events = bench.events();
    // The list is in two records: in the one that made it, and in that of the fan-out.
    let with_list = events
        .iter()
        .filter(|event| serde_json::to_string(&event.entry.body).unwrap().contains("997,998,999"));
    assert_eq!(with_list.count(), 2);
    let state = bench.state();
    let main = state.main().unwrap();
    let results = BlobRef::from_value(main.context.get("parallel.results").unwrap());
    assert!(results.is_some(), "results of that size are a blob");
    assert_eq!(main.visits["work"], 1, "the elements make the same visit");
    assert_eq!(state.cursors.len(), 1);
    let mut ranks: Vec<u32> = events
        .iter()
        .filter_map(|event| match &event.entry.body {
            EventBody::StageStarted { rank, .. } => Some(*rank),
            _ => None,
        })
        .collect();
    ranks.sort_unstable();
    assert!(ranks.windows(2).all(|two| two[0] < two[1]), "ranks are unique");
}

#[test]
fn large_elements_are_blobs() {
    let large = "x".repeat(40_000);
    let list = json!([large, "small", large, {"of": large}]);
    let source =
        EACH.replace("max_parallel=2", "max_retries=1, join_policy=all_success, max_parallel=1");
    let mut replies = plan(list);
    replies.push(("work", vec![ok(), exits(1), ok()]));
    let bench = Bench::new(&source, &replies);
    bench.drive(Input::Start);
    let events = bench.events();
    let started: Vec<&Event> = events
        .iter()
        .filter(|event| matches!(event.entry.body, EventBody::ParallelStarted { .. }))
        .collect();
    assert_eq!(started.len(), 2, "two attempts");
    for event in started {
        let text = serde_json::to_string(&event.entry.body).unwrap();
        assert!(text.len() < 2_000 && text.contains("small"), "{text}");
        assert_eq!(text.matches("blob://").count(), 3, "{text}");
    }
}

#[test]
fn any_prefix_of_a_list_can_be_resumed() {
    let mut replies = plan(json!(["a", "b", "c"]));
    replies.push(("work", vec![exits(1), sets("made", "x")]));
    check_prefixes(
        &EACH.replace("max_parallel=2", "max_retries=1, join_policy=all_success"),
        &replies,
    );
    let nested = r#"digraph {
        start -> plan -> rows -> cells -> work -> end_cells -> end_rows -> exit
        rows [shape=component, for_each=plan, as=row, max_parallel=2]
        cells [shape=component, for_each="{{ context.row }}"]
        end_cells [shape=tripleoctagon]; end_rows [shape=tripleoctagon]
    }"#;
    check_prefixes(nested, &plan(json!([[1, 2], [], ["x"]])));
}

#[test]
fn a_fork_and_a_rewind_do_not_read_the_list_again() {
    let bench = Bench::new(EACH, &plan(json!(["a", "b"])));
    bench.drive(Input::Start);
    let events = bench.events();
    let counted = checkpoint::effective(&events);
    let at = checkpoint::find(&counted, Some("work[0]/work@1")).unwrap();
    let set = ContextPatch::from([("plan".to_owned(), Arc::new(json!(["other"])))]);
    let rewind = checkpoint::rewind(bench.run_id, &at, events.len() as u64, 9, set);
    now(bench.store.append(bench.run_id, events.len() as u64, &Batch::of(&[rewind]))).unwrap();
    bench.drive(Input::Resume { max_cost: None });
    let state = bench.state();
    let results = state.main().unwrap().context.get("parallel.results").unwrap();
    assert_eq!(results.as_array().unwrap().len(), 2);
    assert_eq!(results[1]["id"], "work[1]");
}

#[test]
fn a_dry_run_assumes_one_element_where_there_is_no_list() {
    let new = || NewRun { dry_run: true, ..NewRun::default() };
    let bench = Bench::begun(EACH, &[], new());
    insta::assert_snapshot!(bench.story(), @r"
    001 start@1 succeeded  -> plan (unconditional)
    002 plan@1 succeeded  -> each (unconditional)
    each@1 forks 1, joins at join
      004 work@1 succeeded  -> join (unconditional)
      each@1/work[0] succeeded
    003 each@1 succeeded  -> join (join)
    005 join@1 succeeded  -> exit (unconditional)
    006 exit@1 succeeded
    run succeeded
    ");
    insta::assert_snapshot!(elements(&bench.events()), @r#"each@1/work[0] item="(assumed)""#);
    let given = ContextPatch::from([("plan".to_owned(), Arc::new(json!(["a", "b"])))]);
    let bench = Bench::begun(EACH, &[], NewRun { context: given, ..new() });
    bench.drive(Input::Start);
    assert_eq!(elements(&bench.events()), "each@1/work[0] item=\"a\"\neach@1/work[1] item=\"b\"\n");
}

#[test]
fn a_goal_gate_in_the_path_holds_for_every_element() {
    let source = EACH.replace("join [", "work [goal_gate=true]; join [");
    let mut replies = plan("a\nb");
    replies.push(("work", vec![exits(1), ok()]));
    let story = Bench::new(&source, &replies).story();
    insta::assert_snapshot!(story.lines().last().unwrap(), @"run failed: goal gate `work` ended failed and has no retry target left: exit code 1");
}
