use fabro_graph::Workflow;
use serde_json::json;

use crate::{Backend, Constants, JoinPolicy, Plan, VisitLimit};

fn workflow(attributes: &str) -> Workflow {
    let source = format!("digraph {{ start -> a -> exit; {attributes} }}");
    Workflow::from_source("x", &source).unwrap()
}

/// The errors of compiling, one a line.
fn errors(attributes: &str) -> String {
    let findings = Plan::compile(workflow(attributes)).unwrap_err().findings;
    let lines = findings.iter().map(|finding| format!("{}: {}", finding.rule, finding.message));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn invalid_values_do_not_compile() {
    insta::assert_snapshot!(errors("a [shape=component, join_policy=first_sucess, max_parallel=banana, quorum=0]"), @r"
    attribute-value: `join_policy` is wait_all, all_success, first_success or quorum, not `first_sucess`
    attribute-value: `max_parallel` is a whole number from 1, not `banana`
    attribute-value: `quorum` is a whole number from 1, not `0`
    ");
    insta::assert_snapshot!(errors("a [timeout=abc, max_visits=-1, fidelity=fulll, retry_policy=often]"), @r"
    attribute-value: `timeout` is a duration, not `abc`
    attribute-value: `max_visits` is a whole number from 0, not `-1`
    attribute-value: `fidelity` is full, compact, summary:high, summary:medium, summary:low or truncate, not `fulll`
    attribute-value: `retry_policy` is none, standard, aggressive, linear or patient, not `often`
    ");
    insta::assert_snapshot!(errors("a [backend=cl, memory=on, permissions=all, context_tool=x, selection=any]"), @r"
    attribute-value: `backend` is api, cli or acp, not `cl`
    attribute-value: `memory` is turns or off, not `on`
    attribute-value: `permissions` is read-only, read-write or full, not `all`
    attribute-value: `context_tool` is read, write or off, not `x`
    attribute-value: `selection` is deterministic or random, not `any`
    ");
    insta::assert_snapshot!(errors("graph [default_fidelity=all, loop_restart_signature_limit=0]; a [type=robot]"), @r"
    attribute-value: `default_fidelity` is full, compact, summary:high, summary:medium, summary:low or truncate, not `all`
    attribute-value: `loop_restart_signature_limit` is a whole number from 1, not `0`
    ");
    insta::assert_snapshot!(errors("a [shape=hexagon, question_type=maybe, label=1]; b [shape=parallelogram, language=ruby]"), @r"
    attribute-value: `question_type` is yes_no, confirmation, multiple_choice, multi_select or freeform, not `maybe`
    attribute-value: `language` is shell or python, not `ruby`
    ");
}

#[test]
fn variables_of_scripts_have_names_that_a_shell_knows() {
    let errors =
        |attributes: &str| errors(&format!("a [shape=parallelogram, script=x, {attributes}]"));
    insta::assert_snapshot!(errors("env.FABRO_X=1, env.1A=x, env.BASH_ENV=\"{{ goal }}\""), @r"
    attribute-value: `1A` cannot be the name of an environment variable
    attribute-value: the content of `BASH_ENV` is run as code, so it cannot be a value
    attribute-value: `FABRO_X` belongs to fabro, which sets variables of this name itself
    ");
    let plan = Plan::compile(workflow(
        "a [shape=parallelogram, script=x, env.PATH=\"{{ goal }}\", env.PORT=8080, env.PS4=\"+ \"]",
    ));
    let plan = plan.unwrap();
    let names: Vec<_> =
        plan.find("a").unwrap().command().unwrap().env.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["PATH", "PORT", "PS4"]);
}

#[test]
fn a_list_has_one_path_to_a_join() {
    let list = |attributes: &str, path: &str| {
        errors(&format!(
            "e [shape=component, {attributes}]; f [shape=tripleoctagon]; a -> e; {path}"
        ))
    };
    insta::assert_snapshot!(errors("a [prompt=x, for_each=plan]"), @"for-each: `for_each` on `a`, which is no parallel node");
    insta::assert_snapshot!(list("for_each=plan", "e -> b -> f; e -> c -> f; f -> exit"), @"for-each: `e` has a list and 2 outgoing edges: every element takes the same path");
    insta::assert_snapshot!(list("for_each=plan", "e -> b -> exit"), @"for-each: the path of the list of `e` never reaches a join");
    insta::assert_snapshot!(list("for_each=plan", "f -> exit"), @"for-each: the path of the list of `e` never reaches a join");
    insta::assert_snapshot!(list("for_each=plan", "e -> b [condition=\"x=1\"]; b -> f -> exit"), @"for-each: the edge of `e` has a condition, and every element of a list takes it");
    let whole = |attributes: &str| list(attributes, "e -> b -> f -> exit");
    insta::assert_snapshot!(whole("for_each=\" \""), @"for-each: `for_each` is empty");
    insta::assert_snapshot!(whole("for_each=\"a, b\""), @"for-each: `for_each` is no context key and no template: `a, b`");
    insta::assert_snapshot!(whole("for_each=\"[1, 2\""), @"for-each: `for_each` is no JSON array: EOF while parsing a list at line 1 column 5");
    insta::assert_snapshot!(whole("for_each=\"inputs.files\""), @"for-each: `inputs.files` is no context key");
    insta::assert_snapshot!(whole("for_each=\"{{ files }}\""), @"for-each: `for_each` is no context key and no template: `{{ files }}`");
    insta::assert_snapshot!(whole("for_each=\"{{ context.files | sorted }}\""), @"template-syntax: there is no filter `sorted`");
    insta::assert_snapshot!(whole("for_each=plan, as=outcome"), @"for-each: an element cannot be called `outcome`: `outcome` is written by the engine");
    insta::assert_snapshot!(whole("for_each=plan, as=last_file"), @"for-each: an element cannot be called `last_file`: keys that start with `last_` are written by the engine and its handlers");
    insta::assert_snapshot!(whole("for_each=plan, as=\"a.b\""), @"for-each: an element cannot be called `a.b`: a name has letters, digits and underscores, no digit first");
    insta::assert_snapshot!(whole("for_each=plan, as=item_index"), @"for-each: an element cannot be called `item_index`: `item_index` has a meaning of its own");
    insta::assert_snapshot!(whole("for_each=plan, max_items=0"), @"attribute-value: `max_items` is a whole number from 1, not `0`");
    insta::assert_snapshot!(whole("for_each=plan, max_items=many"), @"attribute-value: `max_items` is a whole number from 1, not `many`");
    insta::assert_snapshot!(whole("for_each=plan, max_items=100001"), @"for-each: `max_items` is at most 100000");
    // Defaults of a scope are for the nodes that can have them.
    let scoped = workflow(
        "node [for_each=plan]; a -> e -> b -> f -> exit; e [shape=component]; f [shape=tripleoctagon]",
    );
    let plan = Plan::compile(scoped).unwrap();
    let list = plan.find("e").unwrap().parallel().unwrap().for_each.as_ref().unwrap();
    assert_eq!((&*list.name, list.max_items, &*list.text), ("item", 1_000, "plan"));
}

#[test]
fn a_word_that_is_set_after_parsing_is_checked() {
    let mut workflow = workflow("a [prompt=x]");
    let a = workflow.find("a").unwrap();
    let origin = fabro_graph::Origin::Stylesheet;
    workflow.set_default(a, "backend", "robot".into(), origin);
    let error = Plan::compile(workflow).unwrap_err().to_string();
    insta::assert_snapshot!(error, @"the workflow cannot run: `backend` cannot be `robot`");
}

#[test]
fn files_and_stylesheets_that_are_not_applied_do_not_compile() {
    insta::assert_snapshot!(errors("graph [model_stylesheet=\"* { model: m; }\", goal=\"@goal.md\"]; a [prompt=\"@missing.md\"]"), @r"
    not-prepared: `goal` is still `@goal.md`: no files have been read
    not-prepared: `prompt` is still `@missing.md`: no files have been read
    not-prepared: the model stylesheet has not been applied to the nodes
    ");
    insta::assert_snapshot!(errors("a [prompt=\"@@home\"]; b [shape=house, stack.child_workflow=\"child.fabro\"]"), @r"
    not-prepared: `prompt` is still `@@home`: no files have been read
    not-prepared: `stack.child_workflow` is still `child.fabro`: no files have been read
    ");
}

#[test]
fn words_and_limits_have_their_types() {
    let plan = |attributes: &str| Plan::compile(workflow(attributes)).unwrap();
    let join_policy = |attributes: &str| {
        let plan = plan(&format!("a [shape=component, {attributes}]"));
        plan.find("a").unwrap().parallel().unwrap().join_policy
    };
    assert_eq!(join_policy("join_policy=\"\""), JoinPolicy::WaitAll);
    assert_eq!(join_policy("join_policy=quorum"), JoinPolicy::Quorum(None));
    assert_eq!(join_policy("join_policy=quorum, quorum=2"), JoinPolicy::Quorum(Some(2)));
    let max_visits = |attributes: &str| plan(attributes).find("a").unwrap().max_visits;
    assert_eq!(max_visits(""), VisitLimit::Unstated);
    assert_eq!(max_visits("graph [max_node_visits=3]"), VisitLimit::AtMost(3));
    assert_eq!(max_visits("graph [max_node_visits=3]; a [max_visits=0]"), VisitLimit::Unlimited);
}

#[test]
fn constants_are_settled_when_a_run_is_created() {
    let source = r#"digraph {
        start -> a [label="At most {{ inputs.cap }}"]; a -> exit [condition="visits < {{ inputs.cap }} && kind = {{ inputs.kind | upper }}"]
        a -> b [condition="log matches {{ inputs.pattern }}"]; b -> exit
        a [prompt=x, backend=acp, acp.command="{{ inputs.adapter }} --goal", model="{{ inputs.model | default('m') }}"]
        b [shape=parallelogram, script=x, label="{{ goal }} of {{ context.x }}"]
    }"#;
    let workflow = || Workflow::from_source("x", source).unwrap();
    let inputs =
        json!({"cap": 3, "kind": "a && (b) \"c", "pattern": "^x{2}", "adapter": "agent -v"});
    let constants = Constants::new("ship", inputs.as_object().unwrap());
    let shown = |plan: Plan| {
        let a = plan.find("a").unwrap();
        let Backend::Acp { command, .. } = &a.llm().unwrap().backend else { unreachable!() };
        let edges: Vec<_> = plan.workflow().edge_indices().map(|ix| plan.edge(ix)).collect();
        let conditions = edges.iter().filter_map(|edge| edge.condition.as_ref());
        let conditions = conditions.map(|condition| condition.text.to_string());
        let labels = edges.iter().filter_map(|edge| edge.label.as_deref());
        let of_nodes = [
            command.as_deref().unwrap(),
            a.llm().unwrap().model.as_deref().unwrap(),
            &plan.find("b").unwrap().label,
        ];
        let all = conditions.chain(labels.chain(of_nodes).map(str::to_owned));
        all.collect::<Vec<_>>().join("\n")
    };
    let plan = Plan::compile_recorded(workflow(), Some(&constants)).unwrap();
    insta::assert_snapshot!(shown(plan), @r#"
    visits < 3 && kind = "A && (B) \"C"
    log matches ^x{2}
    At most 3
    agent -v --goal
    m
    {{ goal }} of {{ context.x }}
    "#);
    let plan = Plan::compile(workflow()).unwrap();
    assert!(plan.reads_constants());
    insta::assert_snapshot!(shown(plan), @r"
    visits < {{ inputs.cap }} && kind = {{ inputs.kind | upper }}
    log matches {{ inputs.pattern }}
    At most {{ inputs.cap }}
    {{ inputs.adapter }} --goal
    {{ inputs.model | default('m') }}
    {{ goal }} of {{ context.x }}
    ");
    insta::assert_snapshot!(errors("a [prompt=x, model=\"{{ context.m }}\"]; a -> exit [condition=\"x = {{ context.y }}\"]; exit -> a [condition=\"x = {{ inputs.z\"]"), @r"
    constant-template: `context.m` is read in `model`, which is settled when the run is created
    constant-template: `context.y` is read in `condition`, which is settled when the run is created
    template-syntax: `{{` is not closed
    ");
}
