//! The examples of `docs/workflow-language.md`, each one run.

use std::collections::BTreeSet;

use insta::assert_snapshot;

use super::project::Project;
use super::worktrees::git;

const DOCS: &str = include_str!("../../../../docs/workflow-language.md");

/// The examples, by the names of their graphs.
fn examples() -> impl Iterator<Item = (&'static str, &'static str)> {
    let blocks = DOCS.split("```dot\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.map(|block| {
        let name = block.strip_prefix("digraph ").and_then(|rest| rest.split(' ').next()).unwrap();
        (name, block)
    })
}

/// A project with the example of this name, the turns of its models, and what its scripts need.
fn example(name: &str, model: &str, files: &[(&str, &str)]) -> Project {
    let source = examples().find(|(it, _)| *it == name).unwrap().1;
    let project = Project::with(files);
    project.write("flow.fabro", source.as_bytes());
    project.write("model.json", model.as_bytes());
    project
}

/// Runs an example, and says how each stage ended.
#[track_caller]
fn run(project: &Project, args: &[&str], exit: i32) -> String {
    let args = [&["run", "flow.fabro", "--model-script", "model.json"], args].concat();
    let shown = project.run(&args);
    assert!(shown.starts_with(&format!("exit {exit}\n")), "{shown}");
    story(project)
}

fn story(project: &Project) -> String {
    let run = project.json(&["inspect", "latest", "--json"]);
    let mut text = String::new();
    for stage in run["stages"].as_array().unwrap() {
        let word = |key: &str| stage[key].as_str().unwrap_or_default().to_owned();
        let branch = if stage["branch"].is_string() { "  " } else { "" };
        let line = format!("{branch}{}@{} {}", word("node"), stage["visit"], word("status"));
        text.push_str(line.trim_end());
        if stage["edge"].is_string() {
            text.push_str(" -> ");
        }
        text.push_str(&word("edge"));
        text.push('\n');
    }
    text + run["status"].as_str().unwrap()
}

fn prompt(project: &Project, stage: &str) -> String {
    let stage = project.json(&["inspect", "latest", stage, "--json"]);
    stage["prompt"].as_str().unwrap().to_owned()
}

fn context(project: &Project, key: &str) -> String {
    project.json(&["context", "latest", "--json", "--resolve"])[key].to_string()
}

#[test]
fn every_example_is_run() {
    let here = include_str!("documented.rs");
    // It has a test of its own, with kills and forks.
    let elsewhere = ["Translate"];
    let mut names = BTreeSet::new();
    for (name, _) in examples() {
        assert!(names.insert(name), "two examples are called {name}");
        let is_run = here.contains(&format!("\"{name}\","));
        assert!(is_run || elsewhere.contains(&name), "no test runs the example {name}");
    }
    assert!(!DOCS.contains("```text\ndigraph"), "an example is a block of `dot`");
}

#[test]
fn release() {
    let project = example("Release", r#"{"fix": [{"text": "Fixed."}]}"#, &[]);
    assert_snapshot!(run(&project, &["--dry-run"], 0), @r"
    start@1 succeeded -> test
    test@1 succeeded -> ask
    ask@1 succeeded -> exit
    exit@1 succeeded
    succeeded
    ");
}

#[test]
fn commands_that_route() {
    for (severity, exit, end) in [(5, 1, "failed"), (2, 0, "succeeded")] {
        let turn = format!(
            r#"{{"review": [{{"text": "{{\"findings\": [{{\"severity\": {severity}}}]}}"}}]}}"#
        );
        let project = example("Severity", &turn, &[]);
        assert!(run(&project, &[], exit).ends_with(end), "{severity}");
    }
}

#[test]
fn scopes_and_styles() {
    let turn = r#"{"*": [{"text": "Done."}]}"#;
    let scopes = example("Scopes", turn, &[]);
    assert_snapshot!(run(&scopes, &[], 0), @r"
    start@1 succeeded -> plan
    plan@1 succeeded -> code
    code@1 succeeded -> exit
    exit@1 succeeded
    succeeded
    ");
    let styled = example("Styled", turn, &[]);
    assert_snapshot!(run(&styled, &[], 0), @r"
    start@1 succeeded -> plan
    plan@1 succeeded -> review
    review@1 succeeded -> exit
    exit@1 succeeded
    succeeded
    ");
}

#[test]
fn templates() {
    let project = example("Greet", r#"{"say": [{"text": "Hello!"}]}"#, &[]);
    run(&project, &["--input", "name=ada"], 0);
    let prompt = prompt(&project, "say");
    assert!(prompt.ends_with("Greet Ada, 4 times."), "{prompt}");
}

#[test]
fn transitions() {
    let taken = |answer: &str| {
        let model = serde_json::json!({"sort": [{"text": answer}]}).to_string();
        let story = run(&example("Triage", &model, &[]), &[], 0);
        story.lines().nth(1).unwrap().to_owned()
    };
    let severe = r#"{"preferred_next_label": "bug", "context_updates": {"severity": 10}}"#;
    assert_snapshot!(taken(severe), @"sort@1 succeeded -> page");
    assert_snapshot!(taken(r#"{"preferred_next_label": "bug"}"#), @"sort@1 succeeded -> fix");
    assert_snapshot!(taken("I do not know."), @"sort@1 succeeded -> close");
}

#[test]
fn custom_words() {
    let model = r#"{"review": [{"text": "{\"outcome\": \"needs_docs\"}"}, {"text": "Fine."}],
        "write": [{"text": "Written."}]}"#;
    assert_snapshot!(run(&example("Review", model, &[]), &[], 0), @r"
    start@1 succeeded -> review
    review@1 succeeded -> write
    write@1 succeeded -> review
    review@2 succeeded -> exit
    exit@1 succeeded
    succeeded
    ");
}

#[test]
fn failures_and_retries() {
    let files = [
        ("build.sh", "echo >> builds; test $(wc -l < builds) != 1"),
        ("deploy.sh", "test $(wc -l < builds) != 2"),
    ];
    let project = example("Deploy", "{}", &files);
    assert_snapshot!(run(&project, &[], 0), @r"
    start@1 succeeded -> build
    build@1 succeeded -> deploy
    deploy@1 failed -> build
    build@2 succeeded -> deploy
    deploy@2 succeeded -> exit
    exit@1 succeeded
    succeeded
    ");
    let stage = project.json(&["inspect", "latest", "build@1", "--json"]);
    assert_eq!(stage["attempts"], 2);
}

#[test]
fn models_that_are_not_available() {
    let project = example("Draft", r#"{"draft": [{"error": "auth"}]}"#, &[]);
    assert_snapshot!(run(&project, &[], 0), @r"
    start@1 succeeded -> draft
    draft@1 failed -> template
    template@1 succeeded -> exit
    exit@1 succeeded
    succeeded
    ");
}

#[test]
fn green_runs() {
    let mut files = [("build.sh", "true"), ("lint.sh", "false"), ("publish.sh", "true")];
    assert_snapshot!(run(&example("Stop", "{}", &files), &[], 0), @r"
    start@1 succeeded -> build
    build@1 succeeded -> lint
    lint@1 failed -> publish
    publish@1 succeeded -> exit
    exit@1 succeeded
    succeeded
    ");
    files[0].1 = "false";
    assert_snapshot!(run(&example("Stop", "{}", &files), &[], 1), @r"
    start@1 succeeded -> build
    build@1 failed
    failed
    ");
    let files = [("test.sh", "false")];
    let project = example("GiveUp", r#"{"fix": [{"text": "I tried."}]}"#, &files);
    assert_snapshot!(run(&project, &[], 1), @r"
    start@1 succeeded -> test
    test@1 failed -> fix
    fix@1 succeeded -> test
    test@2 failed -> fix
    fix@2 succeeded -> test
    test@3 failed -> gave_up
    gave_up@1 succeeded
    failed
    ");
}

#[test]
fn files_of_branches() {
    let model = r#"{"small": [{"text": "Fixed."}], "large": [{"text": "Cleaned up."}]}"#;
    let project = example("Attempts", model, &[("test.sh", "true")]);
    git(&project, &["init", "-q"]);
    git(&project, &["add", "test.sh"]);
    git(&project, &["commit", "-q", "-m", "first"]);
    assert_snapshot!(run(&project, &["--worktree"], 0), @r"
    start@1 succeeded -> attempts
    attempts@1 succeeded -> choose
      small@1 succeeded -> choose
      large@1 succeeded -> choose
    choose@1 succeeded -> test
    test@1 succeeded -> exit
    exit@1 succeeded
    succeeded
    ");
    assert_eq!(git(&project, &["branch", "--list", "fabro/branch/*"]).lines().count(), 2);
}

#[test]
fn fan_outs() {
    let project = example("Checks", "{}", &[]);
    assert_snapshot!(run(&project, &["--dry-run"], 0), @r"
    start@1 succeeded -> checks
    checks@1 succeeded -> merge
      lint@1 succeeded -> merge
      unit@1 succeeded -> merge
    merge@1 succeeded -> exit
    exit@1 succeeded
    succeeded
    ");
}

#[test]
fn loops() {
    let turns = r#"{"*": [{"text": "1"}, {"text": "2"}, {"text": "3"}]}"#;
    assert_snapshot!(run(&example("Rounds", turns, &[]), &[], 0), @r"
    start@1 succeeded -> improve
    improve@1 succeeded -> enough
    enough@1 succeeded -> improve
    improve@2 succeeded -> enough
    enough@2 succeeded -> improve
    improve@3 succeeded -> enough
    enough@3 succeeded -> exit
    exit@1 succeeded
    succeeded
    ");
}

#[test]
fn goal_gates_and_restarts() {
    let turns = r#"{"code": [{"text": "Try."}, {"text": "Try again."}]}"#;
    let test = ("test.sh", "echo >> tries; test $(wc -l < tries) = 2");
    assert_snapshot!(run(&example("Goal", turns, &[test]), &[], 0), @r"
    start@1 succeeded -> code
    code@1 succeeded -> test
    test@1 failed -> exit
    code@2 succeeded -> test
    test@2 succeeded -> exit
    exit@1 succeeded
    succeeded
    ");
    let fetch =
        ("fetch.sh", "if test -e was_late; then echo news; else touch was_late; sleep 60; fi");
    assert_snapshot!(run(&example("Fetch", "{}", &[fetch]), &[], 0), @r"
    start@1 succeeded -> fetch
    fetch@1 failed -> fetch
    fetch@2 succeeded -> report
    report@1 succeeded -> exit
    exit@1 succeeded
    succeeded
    ");
}

#[test]
fn contexts() {
    let model = r#"{"measure": [{"text": "{\"context_updates\": {\"coverage\": 60}}"},
        {"text": "{\"context_updates\": {\"coverage\": 85.5}}"}], "more": [{"text": "Added."}]}"#;
    let project = example("Coverage", model, &[]);
    assert_snapshot!(run(&project, &[], 0), @r"
    start@1 succeeded -> measure
    measure@1 succeeded -> enough
    enough@1 succeeded -> more
    more@1 succeeded -> measure
    measure@2 succeeded -> enough
    enough@2 succeeded -> exit
    exit@1 succeeded
    succeeded
    ");
    let prompt = prompt(&project, "more");
    assert!(prompt.ends_with("The coverage is 60 %. Add tests."), "{prompt}");
}

#[test]
fn commands() {
    let model = r#"{"audit": [{"text": "{\"score\": 7}"}]}"#;
    let project = example("Publish", model, &[]);
    run(&project, &[], 0);
    let run = project.json(&["ps", "--json"])[0]["id"].as_str().unwrap().to_owned();
    let note = project.read(&format!(".fabro/state/runs/{run}/note.txt"));
    assert_eq!(note, "It's \"done\": $(date)");
    assert_snapshot!(context(&project, "command.output"), @r#""7""#);
}

#[test]
fn agents_and_prompts() {
    let model = r#"{"plan": [{"text": "Steps?"}, {"text": "{\"steps\": [\"read\", \"write\"]}"}],
        "work": [{"text": "Done."}]}"#;
    let project = example("Plan", model, &[]);
    run(&project, &[], 0);
    let prompt = prompt(&project, "work");
    assert!(prompt.ends_with("Do these steps:\nread\nwrite"), "{prompt}");
}

#[test]
fn fidelities() {
    let project = example("Talk", r#"{"*": [{"text": "Yes."}]}"#, &[]);
    run(&project, &[], 0);
    assert_eq!(prompt(&project, "code"), "Do it.");
    let review = prompt(&project, "review");
    assert!(review.contains("code") && review.ends_with("Review it."), "{review}");
}

#[test]
fn gates() {
    let model = r#"{"notes": [{"text": "Notes."}, {"text": "Shorter notes."}]}"#;
    let answers = ("answers.json", r#"{"ask": ["shorter, please", "Y"]}"#);
    let project = example("Ship", model, &[answers]);
    assert_snapshot!(run(&project, &["--answers", "answers.json"], 0), @r"
    start@1 succeeded -> notes
    notes@1 succeeded -> ask
    ask@1 succeeded -> notes
    notes@2 succeeded -> ask
    ask@2 succeeded -> publish
    publish@1 succeeded -> exit
    exit@1 succeeded
    succeeded
    ");
    assert!(prompt(&project, "notes@2").ends_with("shorter, please"));
}

#[test]
fn what_a_gate_shows() {
    let project = example("Apply", "{}", &[]);
    assert_snapshot!(run(&project, &["-I", "stage=test", "--auto-approve"], 0), @r"
    start@1 succeeded -> plan
    plan@1 succeeded -> ask
    ask@1 succeeded -> apply
    apply@1 succeeded -> exit
    exit@1 succeeded
    succeeded
    ");
}

#[test]
fn imports() {
    let judge = examples().find(|(name, _)| *name == "Judge").unwrap().1;
    let files = [("lib/judge.fabro", judge), ("lib/prompts/read.md", "Read it.")];
    let model = r#"{"plan": [{"text": "Planned."}], "code": [{"text": "Coded."}],
        "first.read": [{"text": "{\"summary\": \"one\"}"}],
        "second.read": [{"text": "{\"summary\": \"two\"}"}], "*": [{"text": "Good."}]}"#;
    let project = example("Change", model, &files);
    assert_snapshot!(run(&project, &[], 0), @r"
    start@1 succeeded -> plan
    plan@1 succeeded -> first.read
    first.read@1 succeeded -> first.judge
    first.judge@1 succeeded -> code
    code@1 succeeded -> second.read
    second.read@1 succeeded -> second.judge
    second.judge@1 succeeded -> exit
    exit@1 succeeded
    succeeded
    ");
    assert!(prompt(&project, "second.judge").ends_with("Judge two."));
    let judge = example(
        "Judge",
        r#"{"read": [{"text": "{\"summary\": \"x\"}"}], "judge": [{"text": "Good."}]}"#,
        &[("prompts/read.md", "Read it.")],
    );
    assert_snapshot!(run(&judge, &[], 0), @r"
    start@1 succeeded -> read
    read@1 succeeded -> judge
    judge@1 succeeded -> exit
    exit@1 succeeded
    succeeded
    ");
}

#[test]
fn sub_workflows() {
    let model = r#"{"list": [{"text": "{\"packages\": [\"a\", \"b\"]}"}],
        "score": [{"text": "{\"points\": 70}"}], "report": [{"text": "Because."}]}"#;
    let project = example("Audits", model, &[]);
    assert_snapshot!(run(&project, &[], 0), @r"
    start@1 succeeded -> list
    list@1 succeeded -> audit
    audit@1 succeeded -> report
    report@1 succeeded -> exit
    exit@1 succeeded
    succeeded
    ");
    let prompt = prompt(&project, "report");
    assert!(prompt.ends_with("Explain why only 70 points."), "{prompt}");
}

#[test]
fn budgets() {
    let model = r#"{"research": [{"text": "Much.", "usage": {"cost_usd": 6}}],
        "write": [{"text": "The report."}]}"#;
    let project = example("Bounded", model, &[]);
    assert_snapshot!(run(&project, &[], 3), @r"
    start@1 succeeded -> research
    research@1 succeeded -> write
    paused
    ");
    assert_eq!(project.exit(&["resume", "latest", "--max-cost", "10"]), 0);
    assert_snapshot!(story(&project), @r"
    start@1 succeeded -> research
    research@1 succeeded -> write
    write@1 succeeded -> exit
    exit@1 succeeded
    succeeded
    ");
}
