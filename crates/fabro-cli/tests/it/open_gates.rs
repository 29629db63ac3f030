//! Gates: what they show in each channel, short names, and answers that continue the run.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::project::{Project, filters};
use crate::serve_pages::check;
use crate::served::Served;

const APPLY: &str = r#"digraph apply {
    start -> plan -> ask
    plan [shape=parallelogram, script="printf '+ bucket logs\n- bucket old\n'", on_failure=stop]
    ask [shape=hexagon, label="Apply the plan to {{ inputs.stage }}?"]
    ask -> done [label="[A] Apply to {{ inputs.stage }}"]; ask -> exit [label="[D] Discard"]
    done [shape=parallelogram, script="echo applied", on_failure=stop]; done -> exit
}"#;

const LIST: &str = r#"digraph list {
    start -> make -> each; make [shape=parallelogram, script="echo '[\"acme\",\"globex\"]'", on_failure=stop]
    each [shape=component, for_each="command.output", on_failure=stop]
    each -> classify [shape=parallelogram]
    classify [shape=parallelogram, script="echo \"looked at {{ context.item }}\"", on_failure=stop]
    classify -> escalate; escalate [shape=hexagon, label="Escalate {{ context.item }}?"]
    escalate -> join [label="[Y] Yes"]; escalate -> no [label="[N] No"]
    no [shape=parallelogram, script="true"]; no -> join
    join [shape=tripleoctagon]; join -> exit
}"#;

fn paused(name: &str, source: &str, inputs: &[&str]) -> Project {
    let project = Project::with(&[(name, source)]);
    let args: Vec<&str> = ["run", name, "-q"].into_iter().chain(inputs.iter().copied()).collect();
    assert_eq!(project.exit(&args), 3);
    project
}

fn answered_by(project: &Project) -> Vec<(String, Value)> {
    let output = project.output(&["events", "latest", "--json"]);
    let events = String::from_utf8(output.stdout).unwrap();
    let events = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let answers = events.filter(|event| event["event"] == "gate.answered").map(|event| {
        let properties = &event["properties"];
        (properties["by"]["channel"].as_str().unwrap().to_owned(), properties["by"]["name"].clone())
    });
    answers.collect()
}

#[test]
fn every_channel_shows_what_a_gate_approves() {
    let _filters = filters().bind_to_scope();
    let project = paused("apply.fabro", APPLY, &["-I", "stage=production"]);
    assert_snapshot!(project.run(&["answer", "latest"]), @r"
    exit 2
    ── stderr
    ? ask@1 asks: Apply the plan to production?
        │ plan@1:
        │ + bucket logs
        │ - bucket old
        [A] Apply to production  → done
        [D] Discard  → exit
    error: the answer is missing
      help: answer with `fabro answer [ID] A` or `fabro answer [ID] D`
    ");
    let listed = project.run(&["gates"]);
    let heading: Vec<_> = listed.lines().skip(3).take(2).collect();
    assert_eq!(
        heading,
        ["  inputs: stage=production", "? ask@1 asks: Apply the plan to production?"]
    );
    for shown in ["Apply the plan to production?", "+ bucket logs", "[A] Apply to production"] {
        assert!(listed.contains(shown), "{listed}");
        assert!(project.run(&["inspect", "latest"]).contains(shown), "{shown}");
        assert!(project.run(&["inspect", "latest", "ask"]).contains(shown), "{shown}");
    }
    let gates = project.json(&["gates", "--json"]);
    let show = gates[0]["show"].clone();
    let plan = (json!("ask@1"), json!("plan@1"), json!("+ bucket logs\n- bucket old"));
    assert_eq!(
        (&gates[0]["name"], &show[0]["stage"], &show[0]["text"]),
        (&plan.0, &plan.1, &plan.2)
    );
    assert_eq!(project.json(&["inspect", "latest", "--json"])["gates"][0]["show"], show);
    let server = Served::start(&project, &[]);
    assert_eq!(server.get("/gates")["gates"][0]["show"], show);
    let run = gates[0]["run"].as_str().unwrap();
    let shown = ["Apply the plan to production?", "+ bucket logs", "Apply to production"];
    check(&server, "/gates", &shown, &[]);
    check(&server, &format!("/runs/{run}"), &shown, &[]);
    // The edge is found by its target, even if its label was rendered.
    assert_eq!(project.exit(&["answer", "latest", "apply to PRODUCTION"]), 0);
    assert_eq!(project.exit(&["wait", "latest"]), 0);
    let gate = project.json(&["context", "latest", "--json"])["human.gate.label"].clone();
    assert_eq!(gate, "[A] Apply to production");
    let nodes = project.json(&["inspect", "latest", "--json"])["stages"].to_string();
    assert!(nodes.contains("\"done\""), "{nodes}");
}

#[test]
fn a_gate_of_an_element_is_named_by_it() {
    let _filters = filters().bind_to_scope();
    let project = paused("list.fabro", LIST, &[]);
    assert_snapshot!(project.run(&["answer", "latest"]), @r"
    exit 2
    ── stderr
    ? escalate[0] (acme) asks: Escalate acme?
        │ each@1/classify[0]/classify@1:
        │ looked at acme
        [Y] Yes  → join
        [N] No  → no
    ? escalate[1] (globex) asks: Escalate globex?
        │ each@1/classify[1]/classify@1:
        │ looked at globex
        [Y] Yes  → join
        [N] No  → no
    error: the answer is missing
      help: answer with `fabro answer [ID] GATE CHOICE`: GATE is a name above, such as `escalate[0]`
    ");
    assert_snapshot!(project.run(&["answer", "latest", "escalate", "y"]), @r"
    exit 2
    ── stderr
    error: several gates wait for an answer
      help: name one of them before the choice:
      escalate[0]  acme  Escalate acme?
      escalate[1]  globex  Escalate globex?
    ");
    assert_snapshot!(project.run(&["answer", "latest", "escalate[0]", "y", "--no-resume"]), @r"
    exit 0
    ── stdout
    answered escalate[0] (acme): [Y] Yes
    continue with: fabro resume [ID]
    ");
    assert_eq!(project.exit(&["resume", "latest", "-q"]), 3);
    // The other element was not answered.
    for name in ["classify[1]/escalate", "escalate[1]", "each@1/classify[1]/escalate@1"] {
        let refused = project.run(&["answer", "latest", name, "maybe"]);
        assert!(refused.contains("\"maybe\" is not an answer"), "{refused}");
    }
    assert_snapshot!(project.run(&["answer", "latest", "escalate[0]", "n"]), @r"
    exit 2
    ── stderr
    error: gate escalate[0]@1 was already answered: [Y] Yes, by [USER] (cli)
      help: an answer counts once; `fabro rewind` takes the run back before it
    ");
    assert_eq!(project.exit(&["inspect", "latest", "escalate[1]"]), 0);
    assert_snapshot!(project.run(&["answer", "latest", "escalate[1]", "y"]), @r"
    exit 0
    ── stdout
    answered escalate[1] (globex): [Y] Yes
    the run continues in the background · follow: fabro logs [ID] -f
    ");
    assert_eq!(project.exit(&["wait", "latest"]), 0);
}

#[test]
fn a_gate_in_a_sub_workflow_of_an_element_is_named_by_it() {
    let child = r#"digraph { start -> review; review [shape=hexagon, label="Fine?"]
        review -> exit [label="[Y] Yes"] }"#;
    let parent = r#"digraph { start -> make -> each
        make [shape=parallelogram, script="echo '[\"a\",\"b\"]'", on_failure=stop]
        each [shape=component, for_each="command.output", on_failure=stop]; each -> sub
        sub [shape=house, stack.child_workflow="child.fabro", on_failure=stop]; sub -> join
        join [shape=tripleoctagon]; join -> exit }"#;
    let project = Project::with(&[("child.fabro", child), ("parent.fabro", parent)]);
    assert_eq!(project.exit(&["run", "parent.fabro", "-q"]), 3);
    let gates = project.json(&["gates", "--json"]);
    let name = |gate: &Value| gate["name"].as_str().unwrap().to_owned();
    let mut names: Vec<_> = gates.as_array().unwrap().iter().map(name).collect();
    names.sort();
    assert_eq!(names, ["review[0]", "review[1]"]);
    assert!(project.run(&["inspect", "latest", "sub[1]/review"]).contains("Fine?"));
    assert_eq!(project.exit(&["answer", "latest", "review", "y"]), 2);
    assert_eq!(project.exit(&["answer", "latest", "sub[1]/review", "y", "--no-resume"]), 0);
    assert_eq!(project.exit(&["answer", "latest", "review[0]", "y"]), 0);
    assert_eq!(project.exit(&["wait", "latest"]), 0);
    for name in ["review[0]", "sub[0]/review", "sub[0]/review@1"] {
        let explained = project.json(&["explain", "latest", name, "--json"]);
        assert_eq!(explained["answer"]["label"], "Yes", "{name}: {explained}");
    }
}

/// The other branch ends only after the stage behind the gate, so nothing else wakes the sub-workflow.
#[test]
fn an_answer_wakes_a_sub_workflow_while_another_branch_runs() {
    let child = r#"digraph { start -> review; review [shape=hexagon, label="Fine?"]
        review -> sign [label="[Y] Yes"]; sign [shape=parallelogram, script="touch signed", on_failure=stop]
        sign -> exit }"#;
    let parent = r#"digraph { start -> both; both [shape=component, on_failure=stop]; both -> sub; both -> slow
        sub [shape=house, stack.child_workflow="child.fabro", on_failure=stop]; sub -> join
        slow [shape=parallelogram, script="until [ -e signed ]; do sleep 0.02; done", timeout=60s, on_failure=stop]
        slow -> join; join [shape=tripleoctagon]; join -> exit }"#;
    let project = Project::with(&[("child.fabro", child), ("parent.fabro", parent)]);
    assert_eq!(project.exit(&["run", "parent.fabro", "--detach"]), 0);
    let is_paused = || {
        let runs = project.json(&["ps", "-a", "--json"]);
        runs.as_array().unwrap().iter().any(|run| run["status"] == "paused")
    };
    while !is_paused() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(project.exit(&["answer", "latest", "review", "y"]), 0);
    assert_eq!(project.exit(&["wait", "latest"]), 0);
}

#[test]
fn a_resume_of_a_driven_run_follows_it() {
    let source = r#"digraph { start -> work -> exit
        work [shape=parallelogram, script="until [ -e go ]; do sleep 0.02; done; exit 3", on_failure=stop] }"#;
    let project = Project::with(&[("work.fabro", source)]);
    assert_eq!(project.exit(&["run", "work.fabro", "--detach"]), 0);
    let mut following = project.command(&["resume", "latest"]);
    let mut following = following.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(following.stderr.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(first.ends_with("is driven by another process; following it"), "{first}");
    // With options, resume is refused: they would change a run that another process drives.
    assert_eq!(project.exit(&["resume", "latest", "--max-cost", "1"]), 2);
    project.write("go", b"");
    let text = lines.map(Result::unwrap).collect::<Vec<_>>().join("\n");
    assert_eq!(following.wait().unwrap().code(), Some(1), "{text}");
    assert!(text.contains("exit code 3"), "{text}");
}

#[test]
fn an_answer_over_http_continues_the_run() {
    let project = paused("apply.fabro", APPLY, &["-I", "stage=test"]);
    let server = Served::start(&project, &["--role", "answer"]);
    let answered = server.post("/runs/latest/answer", &json!({"choice": "A"}));
    assert_eq!(answered["answered"], "ask@1");
    assert_eq!(project.exit(&["wait", "latest"]), 0);
    assert_eq!(answered_by(&project), [("http".to_owned(), json!("answer"))]);
    let explained = project.run(&["explain", "latest", "ask"]);
    assert!(explained.contains("[A] Apply to test") && !explained.contains("{{"), "{explained}");
}

#[test]
fn a_missing_value_in_a_question_fails_the_gate() {
    let source = r#"digraph { start -> ask; ask [shape=hexagon, label="Ship {{ context.nothing }}?", on_failure=stop]
        ask -> exit [label="[Y] Yes"] }"#;
    let project = Project::with(&[("ask.fabro", source)]);
    let told = project.run(&["run", "ask.fabro", "--auto-approve"]);
    assert!(told.starts_with("exit 1") && told.contains("`nothing`"), "{told}");
}
