//! Typical mistakes of a first hour, and what `fabro validate` says: each message has the place and the fix.

use std::fmt::Write as _;

use super::project::Project;

/// The findings for a file, one a line: `severity[rule] line:column message (fix)`.
fn findings(workflow: &str) -> String {
    let project = Project::with(&[("w.fabro", workflow), ("ask.md", "Ask.")]);
    let output = project.command(&["validate", "w.fabro", "--format", "json"]).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut lines = String::new();
    for finding in report["files"][0]["findings"].as_array().unwrap() {
        let text = |name: &str| finding[name].as_str().unwrap_or_default().to_owned();
        assert!(!text("fix").is_empty(), "no fix: {finding}");
        let (line, column) = (&finding["line"], &finding["column"]);
        let _ = writeln!(
            lines,
            "{}[{}] {line}:{column} {} ({})",
            text("severity"),
            text("rule"),
            text("message"),
            text("fix")
        );
    }
    lines
}

/// A workflow of one script between start and exit, with these statements after it.
fn with(statements: &str) -> String {
    format!("digraph W {{\n  start -> a -> exit\n  {statements}\n}}\n")
}

#[test]
fn mistakes_in_names_and_places() {
    // Misspelled attribute.
    insta::assert_snapshot!(findings(&with("a [scirpt=\"make\", prompt=x]")), @r#"
    warning[misspelled-attribute] 3:6 `scirpt` is not an attribute of nodes (did you mean `script`?)
    "#);
    // Foreign attribute.
    insta::assert_snapshot!(findings(&with("a [shape=parallelogram, command=\"make\", on_failure=stop]")), @r#"
    warning[missing-attribute] 2:12 the command node `a` has no script (add script="…")
    warning[misspelled-attribute] 3:27 `command` is not an attribute of nodes (use `script`)
    "#);
    // Attribute of an edge on a node.
    insta::assert_snapshot!(findings(&with("a [prompt=x, condition=\"outcome=success\"]")), @r#"
    warning[misspelled-attribute] 3:16 `condition` has no effect on nodes (it is an attribute of edges)
    "#);
    // Typo in an id.
    insta::assert_snapshot!(findings(&with("a [prompt=x]\n  a -> exti [condition=\"outcome=failed\"]")), @r#"
    error[edge-target] 4:8 an edge leads to `exti`, but there is no such node (did you mean `exit`?)
    "#);
    // One id for two nodes.
    insta::assert_snapshot!(findings(&with("a [prompt=x]\n  a [prompt=y]")), @r#"
    error[duplicate-node] 4:6 `a` has another `prompt` in line 3 (give one of the two nodes another id, or remove one `prompt`)
    "#);
    // Script and prompt.
    insta::assert_snapshot!(findings(&with("a [script=make, prompt=x]")), @r#"
    warning[unhandled-failure] 2:12 when `a` fails, the run continues and ends partially_succeeded (add an edge for it: a -> … [condition="outcome=failed"]; or on_failure="stop" or "continue" for the node or the graph)
    error[script-and-prompt] 3:19 `a` has both `script` and `prompt`: a command runs a script, an agent gets a prompt (remove one of them, or make two nodes)
    "#);
    // Undefined retry target.
    insta::assert_snapshot!(findings(&with("a [script=make, retry_target=strat]")), @r#"
    warning[unhandled-failure] 2:12 when `a` fails, the run continues and ends partially_succeeded (add an edge for it: a -> … [condition="outcome=failed"]; or on_failure="stop" or "continue" for the node or the graph)
    error[target-node] 3:32 `retry_target` names `strat`, but there is no such node (did you mean `start`?)
    "#);
}

#[test]
fn mistakes_in_syntax() {
    // Missing arrow.
    insta::assert_snapshot!(findings("digraph W {\n  start a -> exit\n}\n"), @r#"
    warning[dead-end] 2:3 a run that gets to `start` fails, for no edge leads on (add an edge: start -> exit)
    warning[missing-prompt] 2:9 the agent node `a` has no prompt; its id is asked instead (add prompt="…", or prompt="@file.md")
    warning[unreachable-node] 2:9 no path leads from the start to `a` (add an edge to it, or remove it)
    error[no-path-to-exit] 2:14 no path leads from the start to the exit `exit` (add an edge from the last stage: STAGE -> exit)
    "#);
    // Single arrow.
    insta::assert_snapshot!(findings("digraph W {\n  start - > a -> exit\n}\n"), @r#"
    error[syntax] 2:9 expected a node or edge, `->`, `=`, `[` or `}`, found `-` (write `->` for an edge)
    "#);
    // Undirected edge.
    insta::assert_snapshot!(findings("digraph W {\n  start -- a -> exit\n}\n"), @r#"
    error[undirected-edge] 2:9 `--` is an undirected edge (write `->`)
    "#);
    // Not a digraph.
    insta::assert_snapshot!(findings("graph W {\n  start -> exit\n}\n"), @r#"
    error[not-a-digraph] 1:1 a `graph` has undirected edges (a workflow is written as digraph Name { … })
    "#);
    // Missing quote.
    insta::assert_snapshot!(findings(&with("a [prompt=\"Fix the test]")), @r#"
    error[syntax] 3:13 this string is never closed (end it with " and write \" for a quote inside it)
    "#);
    // Missing bracket.
    insta::assert_snapshot!(findings(&with("a [prompt=x")), @r#"
    error[syntax] 3:5 these attributes have no closing `]` (add `]` after the last of them)
    "#);
    // Missing brace.
    insta::assert_snapshot!(findings("digraph W {\n  start -> a -> exit\n"), @r#"
    error[syntax] 3:1 expected a node or edge, `->`, `[` or `}`, found the end (add the missing `}`)
    "#);
    // Unquoted sentence.
    insta::assert_snapshot!(findings(&with("a [prompt=Fix the test]")), @r#"
    error[syntax] 3:21 expected `=`, found `test` (put the text in double quotes: prompt="…")
    "#);
}

#[test]
fn mistakes_in_values() {
    // Unknown shape.
    insta::assert_snapshot!(findings(&with("a [shape=paralelogram, script=make, on_failure=stop]")), @r#"
    warning[missing-prompt] 2:12 the agent node `a` has no prompt; its id is asked instead (add prompt="…", or prompt="@file.md")
    warning[unknown-shape] 3:12 the shape `paralelogram` stands for no handler; an agent runs `a` (use parallelogram for a command)
    warning[without-effect] 3:26 `script` has no effect on `a`, an agent node, which runs no script (use shape=parallelogram for a command)
    "#);
    // Unknown type.
    insta::assert_snapshot!(findings(&with("a [type=shell, script=make, on_failure=stop]")), @r#"
    warning[missing-prompt] 2:12 the agent node `a` has no prompt; its id is asked instead (add prompt="…", or prompt="@file.md")
    warning[unknown-type] 3:11 no handler is called `shell`, so the shape decides (use one of start, exit, agent, prompt, command, human, conditional, parallel, parallel.fan_in, wait, stack.manager_loop)
    warning[without-effect] 3:18 `script` has no effect on `a`, an agent node, which runs no script (use shape=parallelogram for a command)
    "#);
    // Wrong duration.
    insta::assert_snapshot!(findings(&with("a [prompt=x, timeout=\"5 minutes\"]")), @r#"
    error[attribute-value] 3:24 `timeout` is a duration, not `"5 minutes"` (write a whole number and ms, s, m, h or d, such as timeout=30s)
    "#);
    // Wrong number.
    insta::assert_snapshot!(findings(&with("a [prompt=x, max_retries=many]")), @r#"
    error[attribute-value] 3:28 `max_retries` is a whole number from 0, not `many` (write a whole number, such as max_retries=3)
    "#);
    // Wrong word.
    insta::assert_snapshot!(findings(&with("a [prompt=x, fidelity=complete]")), @r#"
    error[attribute-value] 3:25 `fidelity` is full, compact, summary:high, summary:medium, summary:low or truncate, not `complete` (use one of full, compact, summary:high, summary:medium, summary:low, truncate)
    "#);
    // Wrong status word.
    insta::assert_snapshot!(findings(&with("a [script=make]\n  a -> a [condition=\"outcome=sucess\", label=again]")), @r#"
    warning[failure-to-exit] 2:12 a failure of `a` goes directly to `exit`, so nothing handles it and the run ends partially_succeeded (set the status of the run there: exit [status=failed, reason="…"], with a separate exit for success; or route the failure to a stage that handles it)
    warning[unknown-outcome] 4:22 `a` never ends as `sucess`, only with a status (did you mean `success`?)
    "#);
    // Another operator.
    insta::assert_snapshot!(findings(&with("a [script=make, max_visits=2]\n  a -> a [condition=\"outcome is failed\"]")), @r#"
    error[condition-syntax] 4:30 expected an operator, `&&`, `||` or the end, found `is` (write `=` for equality, `!=` for its opposite)
    "#);
    // Missing file.
    insta::assert_snapshot!(findings(&with("a [prompt=\"@aks.md\"]")), @r#"
    error[missing-file] 3:13 `prompt` names the file `aks.md`: no such file (create the file, correct the path, which is relative to this workflow, or write @@ for a text that begins with @)
    "#);
}

#[test]
fn mistakes_in_structure() {
    // Two starts.
    insta::assert_snapshot!(findings(&with("a [prompt=x]\n  Start -> a\n  Start [shape=Mdiamond]")), @r#"
    error[start-node] 4:3 `Start` is a second start node, after `start` (keep one of them, and give the other a handler of its own)
    "#);
    // No start.
    insta::assert_snapshot!(findings("digraph W {\n  a -> exit\n  a [prompt=x]\n}\n"), @r#"
    error[start-node] 1:9 the workflow has no start node (add a node with the id `start`, or with shape=Mdiamond)
    "#);
    // No exit.
    insta::assert_snapshot!(findings("digraph W {\n  start -> a\n  a [prompt=x]\n}\n"), @r#"
    error[exit-node] 1:9 the workflow has no exit node (add a node with the id `exit`, or with shape=Msquare)
    warning[dead-end] 2:12 a run that gets to `a` fails, for no edge leads on (add an edge: a -> exit)
    "#);
    // No way to the exit.
    insta::assert_snapshot!(findings("digraph W {\n  start -> a\n  a [prompt=x]\n  exit\n}\n"), @r#"
    warning[dead-end] 2:12 a run that gets to `a` fails, for no edge leads on (add an edge: a -> exit)
    error[no-path-to-exit] 4:3 no path leads from the start to the exit `exit` (add an edge from the last stage: STAGE -> exit)
    "#);
    // Node that nothing leads to.
    insta::assert_snapshot!(findings(&with("a [prompt=x]\n  b [prompt=y]\n  b -> exit")), @r#"
    warning[unreachable-node] 4:3 no path leads from the start to `b` (add an edge to it, or remove it)
    "#);
    // Loop without a limit.
    insta::assert_snapshot!(findings(&with("a [prompt=x]\n  a -> a [condition=\"outcome=failed\"]")), @r#"
    warning[unbounded-cost] 4:3 nothing limits how often the loop of `a` asks a model (add a [max_visits=5], or max_cost=5.0 (US dollars) to the graph)
    "#);
    // Manager of its own graph.
    insta::assert_snapshot!(findings(&with("a [shape=house, manager.actions=\"observe,steer\"]")), @r#"
    warning[unhandled-failure] 2:12 when `a` fails, the run continues and ends partially_succeeded (add an edge for it: a -> … [condition="outcome=failed"]; or on_failure="stop" or "continue" for the node or the graph)
    error[missing-workflow] 3:19 `a` manages nodes of its own graph with `manager.actions`, which Fabro does not support: a stack.manager_loop node runs a sub-workflow (move those nodes to a separate workflow and name it with stack.child_workflow, or route edges through them)
    warning[misspelled-attribute] 3:19 `manager.actions` is not an attribute of nodes (remove it: a sub-workflow starts with its stage, and ends by itself or by `manager.stop_condition`)
    "#);
}

#[test]
fn mistakes_in_models() {
    // Unknown provider.
    insta::assert_snapshot!(findings(&with("a [prompt=x, provider=antropic]")), @r#"
    warning[unknown-provider] 3:25 there is no provider `antropic` (did you mean `anthropic`?)
    "#);
    // Unknown model.
    insta::assert_snapshot!(findings(&with("a [prompt=x, model=\"claude-sonet-4-5\"]")), @r#"
    warning[unknown-model] 3:22 neither the catalog nor the settings know the model `claude-sonet-4-5` (did you mean `claude-sonnet-4-5`?)
    "#);
}

#[test]
fn strict_treats_warnings_as_errors() {
    let project = Project::with(&[
        ("warned.fabro", &with("a [promt=x, prompt=y]")),
        ("good.fabro", &with("a [prompt=y]")),
        ("bad.fabro", &with("a [retry_target=b]")),
    ]);
    assert_eq!(project.exit(&["validate", "warned.fabro"]), 0);
    assert_eq!(project.exit(&["validate", "--strict", "warned.fabro"]), 2);
    assert_eq!(project.exit(&["validate", "--strict", "--json", "warned.fabro"]), 2);
    assert_eq!(project.exit(&["validate", "--strict", "good.fabro"]), 0);
    assert_eq!(project.exit(&["validate", "bad.fabro"]), 2);
}

#[test]
fn missing_settings_are_warnings_of_validate_and_errors_of_run() {
    let workflow = with("a [script=\"true\", on_failure=stop]");
    let settings = [
        "[run.sandbox]\nprovider = \"docker\"\n",
        "[run.environment]\nid = \"ci\"\n",
        "[run]\nworking_dir = \"sub\"\n",
    ];
    for settings in settings {
        let settings = format!("_version = 1\n{settings}");
        let run_file = format!("{settings}[workflow]\ngraph = \"w.fabro\"\n");
        let of_project = [("w.fabro", &*workflow), (".fabro/config.toml", &*settings)];
        let of_run = [("w.fabro", &*workflow), ("run.toml", &*run_file)];
        for (files, name) in [(of_project, "w.fabro"), (of_run, "run.toml")] {
            let project = Project::with(&files);
            let checked = project.run(&["validate", name]);
            assert!(checked.starts_with("exit 0"), "{checked}");
            assert!(
                checked.contains("`run` refuses it") && checked.contains("1 warning"),
                "{checked}"
            );
            assert_eq!(project.exit(&["validate", "--strict", name]), 2, "{checked}");
            assert_eq!(project.exit(&["run", name]), 2, "{checked}");
        }
    }
}

#[test]
fn a_script_may_be_a_file_that_the_run_keeps() {
    let project = Project::with(&[
        ("flows/w.fabro", &with("a [script=\"@go.sh\", on_failure=stop]")),
        ("flows/go.sh", "\u{feff}echo \"for {{ inputs.who }}\" > out.txt\ntest -e again.txt\n"),
    ]);
    let run = project.run(&["run", "flows/w.fabro", "-I", "who=it's \"me\"", "--quiet"]);
    assert!(run.starts_with("exit 1"), "{run}");
    assert_eq!(project.read("out.txt"), "for it's \"me\"\n");
    // The file is not read again.
    project.write("flows/go.sh", b"exit 9");
    project.write("again.txt", b"");
    assert_eq!(project.exit(&["rewind", "latest", "start"]), 0);
    assert_eq!(project.exit(&["resume", "latest", "--quiet"]), 0);
}
