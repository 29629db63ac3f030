//! Gates, those of sub-workflows too.

use std::process::Command;

use insta::assert_snapshot;

use crate::people::GATE;
use crate::project::{Project, filters};

const CHILD: &str = "digraph { start -> ask; ask [shape=hexagon, label=\"Ship it?\"]
    ask -> exit [label=\"[Y] Yes\"]; ask -> exit [label=\"[N] No\"] }";

const PARENT: &str = "digraph { start -> fan; fan [shape=component]; fan -> { one; two } -> join
    one [shape=house, stack.child_workflow=\"child.fabro\"]
    two [shape=house, stack.child_workflow=\"child.fabro\"]
    join [shape=tripleoctagon]; join -> exit }";

#[test]
fn gates_of_two_sub_workflows_are_told_apart() {
    let _filters = filters().bind_to_scope();
    let project = Project::with(&[("child.fabro", CHILD), ("parent.fabro", PARENT)]);
    assert_snapshot!(project.run(&["run", "parent.fabro", "-q"]), @r"
    exit 3
    ── stderr
    run [ID] is paused at one@1/ask@1, two@1/ask@1. Continue with: fabro answer [ID] GATE CHOICE
    ");
    let report = project.json(&["inspect", "latest", "--json"]);
    let within: Vec<_> =
        report["gates"].as_array().unwrap().iter().map(|it| &it["within"]).collect();
    assert_snapshot!(serde_json::json!(within), @r#"[["fan@1/one/one@1"],["fan@1/two/two@1"]]"#);
    let text = project.run(&["inspect", "latest"]);
    assert_snapshot!(text[text.find('?').unwrap()..], @r"
    ? one@1/ask@1 asks: Ship it?
        [Y] Yes  → exit
        [N] No  → exit
    ? two@1/ask@1 asks: Ship it?
        [Y] Yes  → exit
        [N] No  → exit
    answer with: fabro answer [ID] GATE CHOICE
    ");
    assert_snapshot!(project.run(&["answer", "--no-resume", "latest", "y"]), @r"
    exit 2
    ── stderr
    error: several gates wait for an answer
      help: name one of them before the choice:
      one@1/ask@1  Ship it?
      two@1/ask@1  Ship it?
    ");
    assert_snapshot!(project.run(&["answer", "--no-resume", "latest", "ask", "y"]), @r"
    exit 2
    ── stderr
    error: several gates wait for an answer
      help: name one of them before the choice:
      one@1/ask@1  Ship it?
      two@1/ask@1  Ship it?
    ");
    assert_eq!(project.exit(&["answer", "--no-resume", "latest", "one@1/ask@1", "y"]), 0);
    assert_eq!(project.exit(&["answer", "--no-resume", "latest", "two/ask", "y"]), 0);
    assert_eq!(project.exit(&["resume", "latest"]), 0);
}

#[test]
fn a_gate_of_a_sub_workflow_names_its_element_and_shows_the_last_output() {
    let _filters = filters().bind_to_scope();
    let child = "digraph { start -> look -> ask; look [shape=parallelogram, script=\"echo fresh\"]
        ask [shape=hexagon, label=\"Ship it?\"]; ask -> exit [label=\"[Y] Yes\"] }";
    let parent =
        "digraph { start -> each; each [shape=component, for_each=\"{{ inputs.fruit | tojson }}\"]
        each -> sub -> join -> exit; join [shape=tripleoctagon]
        sub [shape=house, stack.child_workflow=\"child.fabro\"] }";
    let project = Project::with(&[("child.fabro", child), ("parent.fabro", parent)]);
    let fruit = "fruit=[\"apple\"]";
    assert_snapshot!(project.run(&["run", "parent.fabro", "-I", fruit]), @r#"
    exit 3
    ── stderr
    parent.fabro:2:17: warning[unhandled-failure]: when `sub` fails, the run continues and ends partially_succeeded (add an edge for it: sub -> … [condition="outcome=failed"]; or on_failure="stop" or "continue" for the node or the graph)
    run [ID] · fabro logs [ID] -f
    · each: 1 parallel branch, sub[0], joining at join
        ✓ look[0] [T]  → ask
        ? ask[0] (apple) asks: Ship it? [Y] Yes
    paused in [T], 0 stages
    ? ask[0] (apple) asks: Ship it?
        │ look@1:
        │ fresh
        [Y] Yes  → exit
    run [ID] is paused at ask[0]. Continue with: fabro answer [ID] CHOICE
    "#);
    let gates = project.run(&["gates"]);
    assert_snapshot!(gates[gates.find('?').unwrap()..], @r"
    ? ask[0] (apple) asks: Ship it?
        │ look@1:
        │ fresh
        [Y] Yes  → exit

    Answer with: fabro answer RUN GATE CHOICE
    ");
}

#[test]
fn an_answer_that_waits_for_the_resume_is_shown() {
    let _filters = filters().bind_to_scope();
    let project = Project::with(&[("child.fabro", CHILD), ("parent.fabro", PARENT)]);
    assert_eq!(project.exit(&["run", "parent.fabro", "-q"]), 3);
    assert_eq!(project.exit(&["answer", "--no-resume", "latest", "one@1/ask@1", "y"]), 0);
    let text = project.run(&["inspect", "latest"]);
    assert_snapshot!(text[text.find('?').unwrap()..], @r"
    ? one@1/ask@1 asks: Ship it?
        answered with y; resume the run to continue
    ? two@1/ask@1 asks: Ship it?
        [Y] Yes  → exit
        [N] No  → exit
    answer with: fabro answer [ID] GATE CHOICE
    ");
    assert_eq!(project.exit(&["answer", "--no-resume", "latest", "two/ask", "N"]), 0);
    let text = project.run(&["inspect", "latest"]);
    assert_snapshot!(text.lines().last().unwrap(), @"continue with: fabro resume [ID]");
    assert!(!text.contains("answer with"), "{text}");
    let list = project.run(&["ps"]);
    // The sub-workflows of branches begin in any order.
    let either = ["y, N", "N, y"].map(|it| format!("answered with {it}, not resumed yet"));
    assert!(either.iter().any(|it| list.contains(it)), "{list}");
    assert_snapshot!(project.run(&["answer", "--no-resume", "latest"]), @r"
    exit 2
    ── stderr
    ? one@1/ask@1 asks: Ship it?
        answered with y; resume the run to continue
    ? two@1/ask@1 asks: Ship it?
        answered with N; resume the run to continue
    error: every gate has been answered
      help: continue with: fabro resume [ID]
    ");
    assert_eq!(project.exit(&["resume", "latest"]), 0);
}

#[test]
fn a_gate_of_a_sub_workflow_is_answered_by_either_name() {
    let _filters = filters().bind_to_scope();
    let source = "digraph { start -> sub -> exit; sub [shape=house, stack.child_workflow=\"gate.fabro\", on_failure=stop] }";
    let project = Project::with(&[("gate.fabro", GATE), ("parent.fabro", source)]);
    assert_eq!(project.exit(&["run", "parent.fabro"]), 3);
    assert_snapshot!(project.run(&["resume", "latest"]), @r"
    exit 3
    ── stderr
    run [ID] · fabro logs [ID] -f
    · run resumed
    paused in [T], 0 stages
    ? review@1 asks: Ship it?
        │ prepare@1:
        │ ready
        [Y] Yes  → ship
        [N] No  → exit
    run [ID] is paused at review@1. Continue with: fabro answer [ID] CHOICE
    ");
    let runs = project.json(&["ps", "-a", "--json"]);
    assert_eq!(project.exit(&["answer", "--no-resume", "latest", "other", "n"]), 2);
    assert_snapshot!(project.run(&["answer", "--no-resume", "latest", "sub", "n"]), @r"
    exit 0
    ── stdout
    answered review: [N] No
    continue with: fabro resume [ID]
    ");
    assert_eq!(project.exit(&["answer", "--no-resume", runs[0]["id"].as_str().unwrap(), "y"]), 2);
    assert_eq!(project.exit(&["resume", "latest"]), 0);
}

#[test]
fn answers_that_do_not_count_are_refused_with_the_reason() {
    let _filters = filters().bind_to_scope();
    let source = r#"digraph { start -> ask; ask [shape=hexagon, label="Ship it?"]
        ask -> exit [label="[S] Ship", condition="tests=passed"]
        ask -> more [label="[R] Revise", freeform=true]; ask -> exit [label="[N] No"]
        more [shape=parallelogram, script="true"]; more -> exit }"#;
    let project = Project::with(&[("gate.fabro", source)]);
    assert_eq!(project.exit(&["run", "gate.fabro", "-q"]), 3);
    let text = project.run(&["inspect", "latest"]);
    assert_snapshot!(text[text.find('?').unwrap()..], @r"
    ? ask@1 asks: Ship it?
        [S] Ship  → exit  not now: tests=passed does not hold, there is no value
        [N] No  → exit
        [R] Revise  → more, or free text
    answer with: fabro answer [ID] CHOICE
    ");
    assert_snapshot!(project.run(&["answer", "--no-resume", "latest", "ship"]), @r#"
    exit 2
    ── stderr
    error: "ship" cannot be chosen, because tests=passed does not hold, there is no value: choose [N] No or write some text
      help: answer with one of these
    "#);
    assert_eq!(project.exit(&["answer", "--no-resume", "latest", "R", "make it shorter"]), 0);
    assert_eq!(project.exit(&["resume", "latest"]), 0);
    assert_snapshot!(project.run(&["answer", "--no-resume", "latest", "ask", "n"]), @r#"
    exit 2
    ── stderr
    error: gate ask@1 was already answered: "make it shorter", by [USER] (cli)
      help: an answer counts once; `fabro rewind` takes the run back before it
    "#);
    assert_snapshot!(project.run(&["explain", "latest", "ask"]), @r#"
    exit 0
    ── stdout
    ask → more  by rule preferred_label
      answered by [USER] (cli) after [T]: "make it shorter"
      ✗ exit  "[S] Ship"  if tests=passed
          ✗ tests=passed  saw ""
      ✓ more  "[R] Revise"  unconditional
      · exit  "[N] No"  unconditional
    "#);
}

#[test]
fn answers_to_gates_that_there_are_not_are_named() {
    let source =
        "digraph { start -> ask -> exit; ask [shape=hexagon] ask -> exit [label=\"[Y] Yes\"] }";
    let project =
        Project::with(&[("w.fabro", source), ("answers.json", r#"{"ask": ["Y"], "aks": ["Y"]}"#)]);
    let told = project.run(&["run", "w.fabro", "--answers", "answers.json"]);
    let warning =
        "warning: the answers have a list for `aks`, which is not a gate: the gates are `ask`\n";
    assert!(told.starts_with("exit 0") && told.contains(warning), "{told}");
}

#[test]
fn a_question_names_the_failures_before_it() {
    let _filters = filters().bind_to_scope();
    let source = r#"digraph { start -> fan; fan [shape=component]; fan -> { a; b } -> join -> test
        a [shape=parallelogram, script="echo bad >&2; exit 1"]; b [shape=parallelogram, script=true]
        join [shape=tripleoctagon]; test [shape=parallelogram, script="exit 4"]
        test -> ask [condition="outcome=failed"]; test -> ask
        ask [shape=hexagon, label="Ship it?"]; ask -> again [label="[A] Again"]; ask -> exit [label="[S] Stop", freeform=true]
        again [shape=parallelogram, script=true]; again -> ask }"#;
    let project = Project::with(&[("flow.fabro", source)]);
    assert_eq!(project.exit(&["run", "flow.fabro", "-q"]), 3);
    assert_snapshot!(project.run(&["answer", "--no-resume", "latest"]), @r#"
    exit 2
    ── stderr
    ? ask@1 asks: Ship it?
        ✗ fan@1/a/a@1: exit code 1: bad
        ✗ test@1: exit code 4
        [A] Again  → again
        [S] Stop  → exit, or free text
    error: the answer is missing
      help: answer with `fabro answer [ID] A` or `fabro answer [ID] S` or `fabro answer [ID] "TEXT"`
    "#);
    let failures =
        project.json(&["inspect", "latest", "--json"])["gates"][0]["failures"].to_string();
    assert_snapshot!(failures, @r#"["fan@1/a/a@1: exit code 1: bad","test@1: exit code 4"]"#);
    assert_eq!(project.exit(&["answer", "--no-resume", "latest", "A"]), 0);
    assert_eq!(project.exit(&["resume", "latest", "-q"]), 3);
    // What was known at the last gate and handled by an edge is not repeated.
    let text = project.run(&["inspect", "latest"]);
    assert_snapshot!(text[text.find('?').unwrap()..], @r"
    ? ask@2 asks: Ship it?
        ✗ fan@1/a/a@1: exit code 1: bad
        [A] Again  → again
        [S] Stop  → exit, or free text
    answer with: fabro answer [ID] CHOICE
    ");
    assert_snapshot!(project.run(&["explain", "latest"]), @r"
    exit 0
    ── stdout
    again@1 → ask  by rule unconditional
      ✓ ask  unconditional
    the last stage that the run has left; `fabro inspect [ID]` lists all, `fabro explain [ID] STAGE` explains one
    ");
    assert_snapshot!(project.run(&["cost"]), @r"
    exit 0
    ── stdout
    no model was called
    ");
}

#[test]
fn answers_are_read_from_a_pipe() {
    let project = Project::with(&[("gate.fabro", GATE)]);
    let program = project.command(&[]);
    let line = format!(
        "'{}' run gate.fabro -q --answers <(echo '{{\"review\": [\"N\"]}}')",
        program.get_program().display()
    );
    let mut shell = Command::new("bash");
    shell.args(["-c", &line]).current_dir(project.path());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let output = shell.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    project.write("answers.json", "\u{feff}{\"review\": [\"N\"]}\r\n".as_bytes());
    assert_eq!(project.exit(&["run", "gate.fabro", "-q", "--answers", "answers.json"]), 0);
    project.write("answers.json", br#"{"review": "N"}"#);
    let wrong = project.run(&["run", "gate.fabro", "--answers", "answers.json"]);
    assert!(
        wrong.contains(r#"write an object of lists by gate, such as {"ask": ["K", "free text"]}"#),
        "{wrong}"
    );
    let refused = project.run(&["run", "gate.fabro", "--answers", "/dev/zero"]);
    assert!(refused.contains("/dev/zero cannot be read: it is not a file"), "{refused}");
}
