use std::collections::BTreeSet;
use std::fmt::Write as _;

use fabro_graph::Workflow;
use fabro_plan::Plan;
use fabro_types::{Diagnostic, Severity};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::tests::support::{show, sources};
use crate::{check, prepare, rules};

mod lowering;
pub(crate) mod support;

/// A workflow for every rule that breaks it.
const BROKEN: &[(&str, &str)] = &[
    ("attribute-value", "digraph { start -> a -> exit; a [prompt=x, timeout=soon] }"),
    ("html-label", "digraph { start -> exit; start [label=<b>] }"),
    ("missing-file", "digraph { start -> a -> exit; a [prompt=\"@gone.md\"] }"),
    ("node-id", "digraph { start -> \"two words\" -> exit }"),
    ("not-a-digraph", "graph { a -- b }"),
    ("port", "digraph { start:n -> exit }"),
    ("second-graph", "digraph { start -> exit } digraph { start -> exit }"),
    ("strict-graph", "strict digraph { start -> exit }"),
    ("subgraph-attribute", "digraph { start -> exit; subgraph c { model=x } }"),
    ("syntax", "digraph { start -> }"),
    ("undirected-edge", "digraph { start -- exit }"),
    ("unknown-type", "digraph { start -> a -> exit; a [type=robot] }"),
    ("absolute-cd", "digraph { start -> a -> exit; a [script=\"cd /srv && make\"] }"),
    ("goal-gate-retry", "digraph { start -> a -> exit; a [script=x, goal_gate=true] }"),
    ("keyword-node-id", "digraph { start -> \"node\" -> exit }"),
    ("path-as-prompt", "digraph { start -> a -> exit; a [prompt=\"./plan.md\"] }"),
    ("stdin-template", "digraph { start -> a -> exit; a [script=x, stdin_source=\"{{ goal }}\"] }"),
    ("all-conditional", "digraph { start -> a; a -> exit [condition=x] }"),
    (
        "child-workflow",
        "digraph { start -> a -> exit; a [shape=house, stack.child_dot_source=\"x\"] }",
    ),
    ("chain-attribute", "digraph { start -> a -> exit [condition=x] }"),
    ("condition-operator", "digraph { start -> a; a -> exit [condition=\"x => 3\"]; a -> exit }"),
    (
        "status-label",
        "digraph { start -> a; a [shape=parallelogram, script=x]; a -> b [label=success]; a -> exit [label=fail]; b -> exit }",
    ),
    ("template-block", "digraph { start -> a -> exit; a [script=\"{% if goal %}ls{% endif %}\"] }"),
    ("template-root", "digraph { start -> a -> exit; a [prompt=\"{{ input.x }}\"] }"),
    ("import", "digraph { start -> a -> exit; a [import=\"there.fabro\", prompt=x] }"),
    ("late-default", "digraph { start -> a -> exit; node [timeout=5m]; a [prompt=x] }"),
    ("unknown-property", "digraph { graph [model_stylesheet=\"* { modle: y }\"]; start -> exit }"),
    ("condition-syntax", "digraph { start -> exit [condition=\"(x\"] }"),
    ("dead-end", "digraph { start -> a; start -> exit; a [prompt=x] }"),
    (
        "default-choice",
        "digraph { start -> a -> exit; a [shape=hexagon, human.default_choice=start] }",
    ),
    (
        "duplicate-accelerator",
        "digraph { start -> a; a [shape=hexagon]; a -> b [label=\"[A] x\"]; a -> exit [label=\"[A] y\"]; b -> exit }",
    ),
    ("edge-target", "digraph { start -> exit; start -> gone }"),
    ("endless-loop", "digraph { start -> a -> a; a -> exit; a [shape=parallelogram, script=x] }"),
    ("exit-node", "digraph { start -> a }"),
    ("exit-outgoing", "digraph { start -> exit -> a }"),
    ("fan-out-join", "digraph { start -> a; a [shape=component]; a -> b; a -> exit }"),
    ("file-outside", "digraph { start -> a -> exit; a [prompt=\"@../there.md\"] }"),
    (
        "freeform-edges",
        "digraph { start -> a; a [shape=hexagon]; a -> b [freeform=true]; a -> exit [freeform=true]; b -> exit }",
    ),
    ("unhandled-failure", "digraph { start -> a -> exit; a [shape=parallelogram, script=x] }"),
    (
        "failure-to-exit",
        "digraph { start -> a; a -> exit [condition=\"outcome=failed\"]; a -> b -> exit; a [shape=parallelogram, script=x]; b [prompt=x] }",
    ),
    (
        "goal-gate-bypass",
        "digraph { start -> a; a -> v [condition=\"context.x=1\"]; a -> exit; v -> exit; a [prompt=x]; v [prompt=x, goal_gate=true, retry_target=a] }",
    ),
    (
        "label-condition",
        "digraph { start -> a; a [shape=hexagon]; a -> b [condition=Yes]; a -> exit; b -> exit }",
    ),
    ("label-template", "digraph { start -> a -> exit [label=\"{{ context.x }}\"]; a [prompt=x] }"),
    (
        "constant-template",
        "digraph { start -> a -> exit; a [prompt=x, model=\"{{ context.x }}\"] }",
    ),
    ("missing-attribute", "digraph { start -> a -> exit; a [shape=insulator] }"),
    ("missing-workflow", "digraph { start -> a -> exit; a [shape=house] }"),
    ("missing-prompt", "digraph { start -> a -> exit }"),
    ("misspelled-attribute", "digraph { start -> a -> exit; a [promt=x] }"),
    ("output-schema", "digraph { start -> a -> exit; a [prompt=x, output_schema=\"{\"] }"),
    (
        "isolation",
        "digraph { start -> p -> {a; b} -> exit; p [shape=component, isolation=worktree] }",
    ),
    ("for-each", "digraph { start -> a; a [shape=component, for_each=plan]; a -> exit }"),
    ("quorum", "digraph { start -> a; a [shape=component, quorum=2]; a -> exit }"),
    (
        "random-with-conditions",
        "digraph { start -> a; a [selection=random]; a -> exit [condition=x]; a -> exit }",
    ),
    (
        "schema-with-acp",
        "digraph { start -> a -> exit; a [prompt=x, output_schema=routing, backend=acp] }",
    ),
    ("script-and-prompt", "digraph { start -> a -> exit; a [script=x, prompt=y] }"),
    ("script-language", "digraph { start -> a -> exit; a [script=\"#!/usr/bin/env python3\"] }"),
    ("duplicate-node", "digraph { start -> a -> exit; a [prompt=x]; a [prompt=y] }"),
    ("no-path-to-exit", "digraph { start -> a; b -> exit }"),
    ("unbounded-cost", "digraph { start -> a -> exit; a -> a [condition=x] }"),
    (
        "script-value",
        "digraph { start -> a -> exit; a [shape=parallelogram, script=\"eval {{ goal }}\"] }",
    ),
    ("several-exits", "digraph { start -> exit; start -> end }"),
    ("start-incoming", "digraph { start -> a -> start; a -> exit }"),
    ("start-node", "digraph { a -> exit }"),
    ("stylesheet-syntax", "digraph { graph [model_stylesheet=\"* {\"]; start -> exit }"),
    ("target-node", "digraph { start -> a -> exit; a [retry_target=gone] }"),
    ("template-syntax", "digraph { start -> a -> exit; a [prompt=\"{{ goal | }}\"] }"),
    ("thread-without-full", "digraph { start -> a -> exit; a [prompt=x, thread_id=t] }"),
    ("undefined-input", "digraph { start -> a -> exit; a [prompt=\"{{ inputs.x }}\"] }"),
    (
        "unknown-outcome",
        "digraph { start -> a; a [shape=parallelogram, script=x]; a -> exit [condition=\"outcome=sucess\"]; a -> exit }",
    ),
    ("unknown-shape", "digraph { start -> a -> exit; a [prompt=x, shape=circle] }"),
    ("unknown-tool", "digraph { start -> a -> exit; a [prompt=x, tools=shel] }"),
    ("unreachable-node", "digraph { start -> exit; a -> exit }"),
    (
        "unread-element",
        "digraph { start -> a -> b -> c -> exit; a [shape=component, for_each=\"[1]\"]; b [prompt=x]; c [shape=tripleoctagon] }",
    ),
    (
        "unread-input",
        "digraph { start -> a -> exit; a [shape=house, inputs.x=1, stack.child_dot_source=\"digraph { start -> exit }\"] }",
    ),
    ("unused-style", "digraph { graph [model_stylesheet=\".x { model: y }\"]; start -> exit }"),
    (
        "unwritten-key",
        "digraph { start -> a -> exit; a [prompt=\"{{ context.command.output }}\"] }",
    ),
    (
        "without-effect",
        "digraph { start -> a -> exit; a [shape=parallelogram, script=x, tools=shell] }",
    ),
];

#[test]
fn every_rule_is_broken_by_a_workflow() {
    let deep = format!("digraph {{ {}{} }}", "{ ".repeat(200), "} ".repeat(200));
    let large = " ".repeat(17 << 20);
    let group = |name: &str| (0..600).map(|at| format!("{name}{at}")).collect::<Vec<_>>().join(";");
    let product = format!("digraph {{ {{{}}} -> {{{}}} }}", group("a"), group("b"));
    let id = format!("digraph {{ start -> {} -> exit }}", "a".repeat(200));
    let built = [
        ("nesting-too-deep", deep.as_str()),
        ("file-too-large", &large),
        ("too-large", &product),
        ("node-id", &id),
    ];
    let mut left: BTreeSet<&str> = rules().iter().map(|rule| rule.name).collect();
    for (rule, source) in BROKEN.iter().copied().chain(built) {
        let checked = check(
            "t",
            source,
            &sources(&[("../there.md", "x"), ("plan.md", "x")]),
            Some(&Map::new()),
        );
        let finding = checked.findings.iter().find(|finding| finding.rule == rule);
        let finding =
            finding.unwrap_or_else(|| panic!("{rule} is not found: {:?}", checked.findings));
        let known = rules().iter().find(|known| known.name == rule).unwrap();
        assert_eq!(finding.severity, known.severity, "{rule}");
        assert!(finding.fix.is_some(), "{rule} has no fix");
        assert!(finding.span.end <= source.len(), "{rule}");
        for finding in &checked.findings {
            assert!(rules().iter().any(|rule| rule.name == finding.rule), "{}", finding.rule);
        }
        left.remove(rule);
    }
    assert_eq!(left, BTreeSet::new());
}

/// What the agents' attributes may be set to is known to the schema of the language.
#[test]
fn attributes_of_agents_have_values_of_their_kind() {
    for attribute in [
        "output_retries=often",
        "context_tool=on",
        "permissions=all",
        "backend=local",
        "memory=on",
        "max_turns=0",
        "project_memory=maybe",
    ] {
        let source = format!("digraph {{ start -> a -> exit; a [prompt=x, {attribute}] }}");
        let checked = check("t", &source, &sources(&[]), None);
        let found = checked.findings.iter().any(|finding| finding.rule == "attribute-value");
        assert!(found && !checked.is_valid(), "{attribute}: {:?}", checked.findings);
    }
}

#[test]
fn rules_have_one_entry_each() {
    let names: BTreeSet<&str> = rules().iter().map(|rule| rule.name).collect();
    assert_eq!(names.len(), rules().len());
    for rule in rules() {
        assert!(!rule.summary.ends_with('.') && !rule.summary.is_empty(), "{}", rule.name);
    }
}

const CLEAN: &str = r#"
digraph Release {
    graph [goal="Release {{ inputs.version }}", retry_target=implement, max_node_visits=20]
    graph [model_stylesheet="* { model: claude-sonnet-4-5 } .hard { reasoning_effort: high } #review { backend: cli }"]
    node [timeout=15m]

    start -> plan -> implement -> test
    test -> review [condition="outcome=success"]
    test -> implement [label="Fix"]
    review -> checks [condition="context.verdict=ship"]
    review -> implement
    checks -> {lint; audit} -> join -> ask
    ask -> exit [label="[S] Ship"]
    ask -> implement [label="[R] Revise"]

    plan      [prompt="@prompts/plan.md", fidelity=full, thread_id=main]
    implement [prompt="Do it: {{ context.response.plan }}", class=hard, goal_gate=true]
    test      [shape=parallelogram, script="cargo test", max_retries=1]
    review    [prompt="{{ context.command.output }}", output_schema=routing]
    checks    [shape=component]
    lint      [shape=parallelogram, script="cargo clippy"]
    audit     [shape=tab, prompt="Audit."]
    join      [shape=tripleoctagon]
    ask       [shape=hexagon, human.default_choice=exit, timeout=1h]
}
"#;

#[test]
fn a_good_workflow_has_no_findings() {
    let files = sources(&[("prompts/plan.md", "Plan {{ goal }}.")]);
    let inputs = json!({"version": "1.0"});
    let checked = check("x", CLEAN, &files, inputs.as_object());
    assert_eq!(checked.findings, []);
    let workflow = checked.workflow.unwrap();
    let review = workflow.node(workflow.find("review").unwrap());
    assert_eq!(review.attrs.text("backend"), Some("cli"));
    assert_eq!(review.attrs.text("model"), Some("claude-sonnet-4-5"));
    let prepared = prepare("x", CLEAN, &files, None).unwrap();
    assert_eq!(prepared.to_dot(), workflow.to_dot());
}

#[test]
fn findings_are_in_order_and_told_once() {
    let source = "digraph t {\n  a -> b [promt=x]\n  node [shape=circle]\n  c -> d\n  d [timeout=x, timeout=x]\n}";
    let checked = check("t", source, &sources(&[]), None);
    let shown: Vec<String> = checked.findings.iter().map(|finding| show(source, finding)).collect();
    insta::assert_snapshot!(shown.join("\n"), @r#"
    1:9 error: the workflow has no exit node
      at: t
      fix: add a node with the id `exit`, or with shape=Msquare
    1:9 error: the workflow has no start node
      at: t
      fix: add a node with the id `start`, or with shape=Mdiamond
    2:3 warning: nodes that ask a model have no prompt; their ids are asked instead: `a`, `c`, `d`
      at: a
      fix: add prompt="…", or prompt="@file.md"
    2:8 error: an edge leads to `b`, but there is no such node
      at: b
      fix: add the node: b [prompt="…"]
    3:15 warning: the shape `circle` stands for no handler; an agent runs these nodes
      at: circle
      fix: use box for an agent, or name what runs it with type=…
    5:14 error: `timeout` is a duration, not `x`
      at: x
      fix: write a whole number and ms, s, m, h or d, such as timeout=30s
    5:25 error: `timeout` is a duration, not `x`
      at: x
      fix: write a whole number and ms, s, m, h or d, such as timeout=30s
    "#);
    let errors = prepare("t", source, &sources(&[]), None).unwrap_err();
    assert!(errors.iter().all(|finding| finding.severity == Severity::Error));
    assert_eq!(errors.len(), 2);
}

#[test]
fn a_file_of_every_depth_and_length_ends() {
    let mut chain = "digraph { start -> n0".to_owned();
    for at in 1..20_000 {
        let _ = write!(chain, " -> n{at}");
    }
    let long = format!("{chain} -> exit }}");
    assert!(check("t", &long, &sources(&[]), None).is_valid());
    let lost = format!("{chain} }}");
    assert!(!check("t", &lost, &sources(&[]), None).is_valid());
    let mut fans = "digraph { start -> p0; exit [shape=Msquare];".to_owned();
    for at in 0..2_000 {
        let next = at + 1;
        let _ = write!(fans, "p{at} [shape=component]; p{at} -> p{next}; p{at} -> b{at} -> exit;");
        let _ = write!(fans, "b{at} [prompt=\"{{{{ context.command.output }}}}\"];");
    }
    fans.push_str("p2000 -> exit }");
    let checked = check("t", &fans, &sources(&[]), None);
    assert!(checked.is_valid());
}

fn statement() -> impl Strategy<Value = String> {
    let node = prop_oneof![
        Just("start"),
        Just("exit"),
        Just("a"),
        Just("b"),
        Just("c"),
        Just("d"),
        Just("e")
    ];
    let kind = prop_oneof![
        Just("shape=component"),
        Just("shape=tripleoctagon"),
        Just("shape=hexagon"),
        Just("shape=parallelogram, script=\"{{ context.response.a }}\""),
        Just("shape=diamond"),
        Just("goal_gate=true"),
        Just("retry_target=b"),
        Just("max_visits=2"),
        Just("thread_id=t"),
        Just("prompt=\"{{ context.command.output }} {{ inputs.x }}\""),
        Just("type=robot, join_policy=first_sucess, timeout=abc"),
        Just("shape=house, stack.child_dot_source=\"digraph { start -> exit }\""),
    ];
    let how = prop_oneof![
        Just(""),
        Just("[condition=\"outcome=success\"]"),
        Just("[condition=\"context.k > 1\"]"),
        Just("[loop_restart=true]"),
        Just("[label=\"[A] x\", freeform=true]"),
        Just("[condition=\"(\"]"),
    ];
    prop_oneof![
        (node.clone(), kind).prop_map(|(node, kind)| format!("{node} [{kind}];")),
        (node.clone(), node, how).prop_map(|(from, to, how)| format!("{from} -> {to} {how};")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Any workflow is checked twice with the same result, finding by finding inside the file and in
    /// order; compiling finds nothing else; and what is prepared is what was checked.
    #[test]
    fn checking_is_a_function(statements in prop::collection::vec(statement(), 0..24)) {
        let source = format!("digraph {{ {} }}", statements.concat());
        let checked = check("t", &source, &sources(&[]), None);
        let again = check("t", &source, &sources(&[]), None);
        prop_assert_eq!(&checked.findings, &again.findings);
        prop_assert!(checked.findings.is_sorted_by_key(|finding| finding.span.start));
        for finding in &checked.findings {
            prop_assert!(source.get(finding.span.start..finding.span.end).is_some_and(|t| !t.is_empty()));
            prop_assert!(rules().iter().any(|rule| rule.name == finding.rule));
            let same = |other: &&Diagnostic| other.span == finding.span && other.rule == finding.rule;
            let is_single = checked.findings.iter().filter(same).count() == 1;
            prop_assert!(finding.rule != "attribute-value" || is_single, "{finding:?}");
        }
        let compiled = checked.workflow.clone().map(Plan::compile);
        prop_assert!(!checked.is_valid() || matches!(compiled, Some(Ok(_))));
        if let Some(Err(error)) = compiled {
            prop_assert!(error.findings.iter().all(|finding| checked.findings.contains(finding)));
        }
        if checked.is_valid() {
            let prepared = prepare("t", &source, &sources(&[]), None);
            let dot = |workflow: Option<Workflow>| workflow.map(|workflow| workflow.to_dot());
            prop_assert_eq!(dot(prepared.ok()), dot(checked.workflow));
        }
    }

    /// A key is only called unwritten when a search along every path finds no writer either.
    #[test]
    fn what_is_called_unwritten_is(edges in prop::collection::vec((0..6_usize, 0..6_usize), 0..14)) {
        let id = |at: usize| ["start", "a", "b", "c", "d", "exit"][at];
        let mut source = "digraph { start [shape=Mdiamond]; exit [shape=Msquare]; node [shape=parallelogram];".to_owned();
        source.push_str("a [script=\"{{ context.response.b }}\"]; b [type=agent]; c [script=x]; d [script=x];");
        for (from, to) in edges.iter().filter(|(from, to)| *from != 5 && *to != 0) {
            let _ = write!(source, "{} -> {};", id(*from), id(*to));
        }
        source.push('}');
        let checked = check("t", &source, &sources(&[]), None);
        let told = checked.findings.iter().any(|finding| finding.rule == "unwritten-key");
        let next = |from: usize| edges.iter().filter(move |(f, t)| *f == from && *f != 5 && *t != 0).map(|(_, t)| *t);
        let reach = |from: usize, without: usize| {
            let mut seen = BTreeSet::new();
            let mut queue: Vec<usize> = next(from).collect();
            while let Some(node) = queue.pop() {
                if node != without && seen.insert(node) {
                    queue.extend(next(node));
                }
            }
            seen
        };
        let nowhere = 6;
        let is_read = reach(0, nowhere).contains(&1);
        // The first visit counts: the way to the writer does not lead through the reader.
        let is_written = reach(0, 1).contains(&2) && reach(2, nowhere).contains(&1);
        prop_assert_eq!(told, is_read && !is_written, "{}", source);
    }
}

#[test]
fn inputs_may_be_unknown() {
    let source = "digraph { start -> a -> exit; a [prompt=\"{{ inputs.x }}\"] }";
    assert!(check("t", source, &sources(&[]), None).is_valid());
    let given: Map<String, Value> = Map::from_iter([("x".to_owned(), Value::Null)]);
    assert!(check("t", source, &sources(&[]), Some(&given)).is_valid());
    assert!(!check("t", source, &sources(&[]), Some(&Map::new())).is_valid());
}

#[test]
fn imported_nodes_are_checked_as_a_part_of_the_workflow() {
    let part = r#"digraph { start -> ask -> check -> exit
        ask [prompt="@ask.md", output_schema="{}"]
        check [shape=parallelogram, script="x {{ context.output.ask.score }} {{ context.output.chek.x }}", retry_target=ask, on_failure=stop]
        check -> ask [condition="context.output.ask.score < 3 && outcome=fail", promt=x] }"#;
    let main = r#"digraph { start -> a -> b -> exit; a [import="lib/part.fabro"] b [import="lib/part.fabro"]
        graph [model_stylesheet=".a { model: one } #ask { model: two }"] }"#;
    let sources =
        sources(&[("lib/part.fabro", part), ("lib/ask.md", "Ask {{ context.output.check.x }}.")]);
    let checked = check("t", main, &sources, None);
    assert!(checked.is_valid());
    let shown: Vec<String> =
        checked.findings.iter().map(|finding| support::show(main, finding)).collect();
    insta::assert_snapshot!(shown.join("\n"), @r#"
    1:25 warning: a failure of `b.check` goes directly to `exit`, so nothing handles it and the run ends partially_succeeded
      at: b -> exit
      fix: set the status of the run there: exit [status=failed, reason="…"], with a separate exit for success; or route the failure to a stage that handles it
    1:46 warning: lib/part.fabro:4:9: nothing limits how often the loop from `a.ask` through `a.check` asks a model
      at: "lib/part.fabro"
      fix: add a.ask [max_visits=5], or max_cost=5.0 (US dollars) to the graph
    1:46 warning: lib/part.fabro:2:21: no stage writes `output.a.check.x`: `a.check` is a command node
      at: "lib/part.fabro"
      fix: read `command.output`
    1:46 warning: lib/part.fabro:2:21: no stage writes `output.b.check.x`: `b.check` is a command node
      at: "lib/part.fabro"
      fix: read `command.output`
    1:46 warning: lib/part.fabro:3:83: no stage writes `output.chek.x`: there is no node `chek`
      at: "lib/part.fabro"
      fix: name a node of this workflow
    2:52 warning: `#ask` matches no node of this workflow
      at: #ask
      fix: remove the rule, or give a node this id or class
    "#);
    let workflow = checked.workflow.unwrap();
    let model = |id| workflow.node(workflow.find(id).unwrap()).attrs.text("model");
    assert_eq!([model("a.ask"), model("b.ask")], [Some("one"), None]);
    assert!(crate::prepare("t", main, &sources, None).is_ok());
    let broken =
        crate::prepare("t", &main.replace("lib/part", "lib/prt"), &sources, None).unwrap_err();
    assert_eq!(broken[0].rule, "missing-file");
    let unread = fabro_graph::Workflow::from_source("t", main).unwrap();
    let error = fabro_plan::Plan::compile(unread).unwrap_err();
    assert!(error.findings.iter().any(|finding| finding.message.contains("`import` is still")));
}

/// What a file reads of its own stages follows in every import of it.
#[test]
fn a_file_may_be_imported_many_times_and_inside_of_others() {
    let leaf = r#"digraph { start -> ask -> say -> choose -> exit; choose -> again -> choose [condition="response.ask contains x"]
        ask [shape=tab, prompt=x]; again [shape=tab, prompt=y, max_visits=3]; choose [shape=diamond]
        say [shape=parallelogram, script="echo {{ context.response.ask }}"] }"#;
    let part = r#"digraph { start -> plan -> each -> one -> join -> exit; one [import="leaf.fabro"]; join [shape=tripleoctagon]
        plan [shape=tab, prompt=p, output_schema="{}"]; each [shape=component, for_each="output.plan.items"] }"#;
    let main = r#"digraph { graph [on_failure=stop]; start -> a -> b -> c -> d -> exit
        a [import="lib/part.fabro"]; b [import="lib/part.fabro"]; c [import="lib/part.fabro"]; d [import="lib/leaf.fabro"] }"#;
    let sources = sources(&[("lib/leaf.fabro", leaf), ("lib/part.fabro", part)]);
    let checked = check("t", main, &sources, None);
    let unwritten = checked.findings.iter().filter(|finding| finding.rule == "unwritten-key");
    assert_eq!(unwritten.collect::<Vec<_>>(), Vec::<&Diagnostic>::new());
    let plan = checked.into_plan().unwrap();
    let mut read = String::new();
    for id in ["a.one", "b.one", "c.one", "d"] {
        let say =
            plan.find(&format!("{id}.say")).unwrap().command().unwrap().script.as_ref().unwrap();
        let (choose, _) = plan.node(&format!("{id}.choose")).unwrap();
        let condition = plan.outgoing(choose).find_map(|edge| edge.condition.as_ref()).unwrap();
        writeln!(read, "{id}: {}; {}", say.text, condition.parsed.clauses()[0].key()).unwrap();
    }
    for id in ["a", "b", "c"] {
        let each = plan.find(&format!("{id}.each")).unwrap().parallel().unwrap();
        writeln!(read, "{id}: {:?}", each.for_each.as_ref().unwrap().list).unwrap();
    }
    insta::assert_snapshot!(read, @r#"
    a.one: echo {{ context.response.a.one.ask }}; response.a.one.ask
    b.one: echo {{ context.response.b.one.ask }}; response.b.one.ask
    c.one: echo {{ context.response.c.one.ask }}; response.c.one.ask
    d: echo {{ context.response.d.ask }}; response.d.ask
    a: Key("output.a.plan.items")
    b: Key("output.b.plan.items")
    c: Key("output.c.plan.items")
    "#);
}

/// The examples of the documentation are valid.
#[test]
fn documented_workflows_are_valid() {
    let docs = include_str!("../../../docs/workflow-language.md");
    let blocks: Vec<&str> =
        docs.split("```dot\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() > 5);
    let review = blocks.iter().find(|block| block.contains("digraph Judge")).unwrap();
    for block in blocks.iter().copied() {
        let any = AnyFile(review);
        let errors = check("t", block, &any, None).findings;
        let errors: Vec<_> =
            errors.iter().filter(|finding| finding.severity == Severity::Error).collect();
        assert!(errors.is_empty(), "{block}\n{errors:?}");
    }
}

/// Every file there is: imported workflows, children, schemas and texts.
struct AnyFile<'a>(&'a str);

impl fabro_graph::Sources for AnyFile<'_> {
    fn read(&self, path: &str) -> Result<String, String> {
        Ok(match path {
            path if path.contains("judge") => self.0.to_owned(),
            path if path.contains(".json") => "{}".to_owned(),
            path if path.contains(".fabro") => "digraph { start -> exit }".to_owned(),
            _ => "text".to_owned(),
        })
    }
}
