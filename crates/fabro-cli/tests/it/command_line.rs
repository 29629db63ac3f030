//! What commands refuse, leave out and say first.

use insta::assert_snapshot;

use super::project::{Project, filters};

const STYLE: &str = r#"digraph W {
    graph [goal="Write in a {{ inputs.style }} style"]
    start -> plan -> write -> exit
    plan [shape=parallelogram, script="echo plan {{ inputs.style }}", on_failure=stop]
    write [shape=parallelogram, script="echo write {{ inputs.style }} $FABRO_GOAL", on_failure=stop]
}"#;

#[test]
fn a_fork_takes_other_inputs() {
    let project = Project::with(&[("w.fabro", STYLE)]);
    assert_eq!(project.exit(&["run", "w.fabro", "-I", "style=formal"]), 0);
    let fork = project.json(&["fork", "latest", "plan", "-I", "style=casual", "--json"]);
    let id = fork["id"].as_str().unwrap();
    assert_eq!(project.exit(&["resume", id]), 0);
    let logs = project.run(&["logs", id]);
    assert!(logs.contains("plan formal") && logs.contains("write casual"), "{logs}");
    let report = project.json(&["inspect", id, "--json"]);
    assert_eq!(report["goal"], "Write in a casual style");
    let unread = project.run(&["fork", "latest", "plan", "-I", "stlye=casual"]);
    assert!(unread.contains("warning: ") && unread.contains("`stlye`"), "{unread}");
    filters().bind(|| {
        assert_snapshot!(project.run(&["fork", "latest", "--set", "inputs.style=casual"]), @r"
        exit 2
        ── stderr
        error: `inputs.style` is an input of the run, not a value of its context
          help: make a copy of the run with another input: `fabro fork RUN STAGE -I style=VALUE`
        ");
    });
}

#[test]
fn rewind_of_a_succeeded_run_needs_a_stage() {
    let project = Project::hello();
    filters().bind(|| {
        assert_snapshot!(project.run(&["rewind", "latest"]), @r"
        exit 2
        ── stderr
        error: run [ID] has ended (succeeded), and no stage is named
          help: go back to the end of a stage with `fabro rewind [ID] STAGE`: start@1, write@1, check@1, write@2, check@2
        ");
    });
    assert_eq!(project.json(&["ps", "--json"])[0]["status"], "succeeded");
    assert_eq!(project.exit(&["rewind", "latest", "write@1"]), 0);
}

#[test]
fn explain_names_the_branch_and_the_others() {
    let flow = r#"digraph { start -> all; all [shape=component, max_parallel=1, for_each="[\"a\", \"b\", \"c\"]"]
        all -> classify -> done -> join; classify [shape=parallelogram, script="echo $FABRO_ITEM"]
        done [shape=parallelogram, script="true"]; join [shape=tripleoctagon]; join -> exit }"#;
    let project = Project::with(&[("w.fabro", flow)]);
    project.run(&["run", "w.fabro"]);
    let text = project.run(&["explain", "latest", "classify"]);
    assert!(text.contains("all@1/classify[2]/classify@1 → done"), "{text}");
    assert!(text.contains("ran in 3 branches"), "{text}");
    assert!(text.contains("all@1/classify[0]/classify@1, all@1/classify[1]/classify@1"), "{text}");
    let json = project.json(&["explain", "latest", "classify", "--json"]);
    assert_eq!(json["others"].as_array().unwrap().len(), 2);
    let one = project.json(&["explain", "latest", "classify[1]", "--json"]);
    assert_eq!(one["stage"], "all@1/classify[1]/classify@1");
    assert!(one["others"].is_null(), "{one}");
}

#[test]
fn keys_of_the_engine_are_shown_on_request() {
    let project = Project::hello();
    let usual = project.run(&["context"]);
    assert!(!usual.contains("internal.") && usual.contains("outcome"), "{usual}");
    assert!(project.run(&["context", "--all"]).contains("internal."));
    assert!(
        project
            .json(&["context", "--json"])
            .as_object()
            .unwrap()
            .keys()
            .any(|key| key.starts_with("internal."))
    );
    let change = ["context", "--diff", "write@1", "check@1"];
    assert!(!project.run(&change).contains("internal."));
}

#[test]
fn rm_needs_at_least_four_characters() {
    let project = Project::hello();
    filters().bind(|| {
        assert_snapshot!(project.run(&["rm", "0"]), @r"
        exit 2
        ── stderr
        error: `0` is too short to remove a run by
          help: write at least 4 characters of its id; `fabro ps` lists the runs
        ");
    });
    let id = project.json(&["ps", "--json"])[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(project.exit(&["rm", &id[..4]]), 0);
}

#[test]
fn the_output_of_the_first_cause_is_shown_without_a_terminal() {
    let flow = r#"digraph { start -> build -> exit
        build [shape=parallelogram, script="seq 1 30; echo why >&2; exit 2", on_failure=stop] }"#;
    let project = Project::with(&[("w.fabro", flow)]);
    let text = project.run(&["run", "w.fabro", "-q"]);
    let tail = text.split_once("The last lines of build@1:\n").expect(&text).1;
    let lines: Vec<_> = tail.lines().map(str::trim).collect();
    assert_eq!((lines.len(), lines[0], lines[18], lines[19]), (20, "12", "30", "why"), "{text}");
}

#[test]
fn unknown_commands_get_a_hint_to_settings() {
    assert_snapshot!(Project::new().run(&["secrets"]), @r"
    exit 2
    ── stderr
    error: there is no command `secrets`
      help: `fabro settings` shows the settings in force; secrets are environment variables of the shell that starts a run
    ");
}

#[test]
fn settings_are_shown_with_their_source() {
    let project = Project::hello();
    project.write(
        ".fabro/config.toml",
        b"_version = 1\n[run.agent]\nmax_turns = 7\n[run.model]\nname = \"x\"\n",
    );
    let mut command = project.command(&["settings"]);
    let text = project.shown(&command.env("ANTHROPIC_API_KEY", "secret-key").output().unwrap());
    for line in [
        "run.agent.max_turns              7                              .fabro/config.toml:3",
        "run.agent.permissions            \"read-write\"                   default",
        "ANTHROPIC_API_KEY is set",
    ] {
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(squeezed(&text).contains(&squeezed(line)), "{line} in {text}");
    }
    assert!(!text.contains("secret-key"), "{text}");
    let json = project.json(&["settings", "hello", "--json"]);
    let script = json.as_array().unwrap().iter().find(|it| it["name"] == "run.model.script");
    let script = script.unwrap();
    assert!(
        script["source"] == "file" && script["file"].as_str().unwrap().ends_with("workflow.toml")
    );
}

#[test]
fn the_last_line_counts_failed_attempts() {
    let flow = r#"digraph { graph [on_failure=stop]; start -> ask -> exit; ask [prompt="x", shape=tab, max_retries=1, retry_policy=none, output_schema="{\"type\":\"object\",\"required\":[\"a\"]}", output_retries=1] }"#;
    let model = r#"{"ask": [{"text": "no", "usage": {"input_tokens": 1000, "output_tokens": 500, "cost_usd": 0.5}}]}"#;
    let project = Project::with(&[("w.fabro", flow), ("m.json", model)]);
    let text = project.run(&["run", "w.fabro", "--model-script", "m.json"]);
    let cost = project.json(&["cost", "latest", "--json"]);
    let kinds = cost["total"]["kinds"].as_object().unwrap();
    let tokens: u64 = kinds.values().map(|kind| kind["tokens"].as_u64().unwrap()).sum();
    assert!(tokens > 0 && text.contains(&format!("{tokens} tokens")), "{cost}\n{text}");
}
