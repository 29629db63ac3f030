//! What a run left behind: lists, stages, events, context, reasons.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use fabro_events::{Entry, Event, EventBody};
use fabro_llm::{Message, Role};
use fabro_store::{Batch, RunLog as _, Runs as _, SqliteStore};
use insta::assert_snapshot;
use serde_json::Value;

use crate::project::{Project, filters, wait};

#[test]
fn a_first_project_runs_at_once() {
    let _filters = filters().bind_to_scope();
    let project = Project::new();
    assert_snapshot!(project.run(&["init"]), @r"
    exit 0
    ── stdout
    .fabro/workflows/hello/workflow.fabro
    .fabro/workflows/hello/workflow.toml
    .fabro/workflows/hello/model.json
    .fabro/config.toml

    run it with: fabro run hello
    ");
    let elsewhere = project.run(&["init", "a project"]);
    assert!(elsewhere.ends_with("run it with: cd 'a project' && fabro run hello\n"), "{elsewhere}");
    std::fs::remove_dir_all(project.path().join("a project")).unwrap();
    assert_snapshot!(project.run(&["validate"]), @r"
    exit 0
    ── stdout
    1 file checked, no findings
    ");
    assert_eq!(project.exit(&["fmt", "--check", "."]), 0);
    assert_snapshot!(project.run(&["run", "hello"]), @r"
    exit 0
    ── stderr
    run [ID] · fabro logs [ID] -f
    models: scripted (model.json)
    ✓ write          Write the greeting [T]  → check
    ✗ check          Is it short enough? [T]  exit code 1: Good morning to every single one of you, wherever in the wide world you are.  → write (outcome=failed)
    ✓ write@2        Write the greeting [T]  → check
    ✓ check@2        Is it short enough? [T]  → exit (outcome=succeeded)

    stage  visits  status time  tokens
    write       2  succeeded [T]
    check       2  succeeded [T]
    succeeded in [T], 4 stages

    response of write@2:
      Hello, world!
    ");
    project.write(".fabro/workflows/hello/model.json", b"mine");
    assert_snapshot!(project.run(&["init"]), @r"
    exit 2
    ── stderr
    error: .fabro/workflows/hello/workflow.fabro exists already
      help: nothing was changed; run it with `fabro run hello`, or choose another directory
    ");
    assert_eq!(project.read(".fabro/workflows/hello/model.json"), "mine");
}

#[test]
fn init_does_not_hide_a_workflow() {
    let project = Project::new();
    project.write(".fabro/workflows/hello.fabro", b"digraph Mine { start -> exit }");
    assert_snapshot!(project.run(&["init"]), @r"
    exit 2
    ── stderr
    error: this project has a workflow `hello`: .fabro/workflows/hello.fabro
      help: nothing was changed; run it with `fabro run hello`, or choose another directory
    ");
    assert_eq!(project.exit(&["init", "sub"]), 0);
    assert!(!project.path().join(".fabro/workflows/hello").exists());
}

#[test]
fn models_are_listed_with_who_serves_them() {
    let project = Project::new();
    project.write(
        ".fabro/config.toml",
        b"_version = 1\n[providers.local]\nkind = 'openai-compatible'\nbase_url = 'http://127.0.0.1:1/v1'\n\
          [models.\"tiny\"]\nprovider = 'local'\ncontext_window = 8192\naliases = ['t']\n",
    );
    let mut command = project.command(&["model", "list", "--json"]);
    let output = command.env("ANTHROPIC_API_KEY", "planted").output().unwrap();
    assert!(!String::from_utf8_lossy(&output.stdout).contains("planted"));
    let models: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let find =
        |name: &str| models.as_array().unwrap().iter().find(|it| it["name"] == name).unwrap();
    assert_eq!(find("claude-sonnet-4-5")["served_by"], "anthropic");
    assert!(find("gpt-5")["served_by"].is_null());
    assert_snapshot!(find("tiny"), @r#"{"name":"tiny","provider":"local","aliases":["t"],"context_window":8192,"served_by":"local"}"#);
    let text = project.run(&["model", "list"]);
    let head = text.lines().nth(2).unwrap();
    let tail = text.lines().rev().take(3);
    let tail: Vec<&str> = tail.collect();
    assert_snapshot!(format!("{head}\n{}\n{}\n{}", tail[2], tail[1], tail[0]), @r"
    model                                      provider     window   answer    $ in  $ cached  $ out  ready  also

    window and answer in tokens, prices in US dollars a million tokens
    provider local (openai-compatible) at http://127.0.0.1:1/v1
    ");
    let empty = Project::new().run(&["model", "list"]);
    assert!(empty.contains("no provider is configured: set a key"), "{empty}");
}

/// Adds a conversation of many turns to the log of the last run, at this node.
fn talk(project: &Project, node: &str) {
    let store = SqliteStore::open(&project.path().join(".fabro/state")).unwrap();
    let run_id = wait(store.find("latest")).unwrap();
    let last = wait(store.last_seq(run_id)).unwrap();
    let messages = (0..40).map(|turn| match turn % 2 {
        0 => Message::user(format!("Read file {turn}. {}", "Look closely. ".repeat(20))),
        _ => Message::assistant(format!("I have read it. {}", "It is long. ".repeat(40))),
    });
    let events: Vec<Event> = messages
        .zip(last + 1..)
        .map(|(message, seq)| {
            let body = EventBody::AgentMessage {
                role: if message.role == Role::User { "user" } else { "assistant" }.to_owned(),
                text: String::new(),
                message: Some(std::sync::Arc::new(serde_json::to_value(&message).unwrap())),
                usage: None,
                given: None,
                purpose: None,
            };
            let entry = Entry { node_id: Some(node.into()), visit: Some(1), ..Entry::new(body) };
            Event { run_id, seq, ts_ms: 0, entry }
        })
        .collect();
    wait(store.append(run_id, last, &Batch::of(&events))).unwrap();
}

#[test]
fn a_paused_conversation_is_compacted_for_the_resume() {
    let call = |turn: u32| {
        serde_json::json!({
            "text": format!("Turn {turn}. {}", "I think about it. ".repeat(30)),
            "tool_calls": [{"name": "read_file", "arguments": {"file_path": "a.txt", "offset": turn}}],
            "usage": {"input_tokens": 100, "output_tokens": 30},
        })
    };
    let mut turns: Vec<Value> = (1..=10).map(call).collect();
    turns.push(serde_json::json!({"text": "done"}));
    let script = serde_json::json!({ "work": turns }).to_string();
    let workflow = "digraph { graph [max_tokens_total=1000]; start -> work -> exit\n\
        work [prompt=\"Read a.txt\", fidelity=full] }";
    let text = "words and words\n".repeat(60);
    let project = Project::with(&[("a.fabro", workflow), ("m.json", &script), ("a.txt", &text)]);
    assert_eq!(project.exit(&["run", "a.fabro", "--model-script", "m.json"]), 3);
    let args = ["compact", "latest", "--no-summary", "--keep-recent", "2", "--json"];
    let before = project.output(&["events", "latest"]).stdout;
    let preview = project.json(&args);
    assert_eq!(project.output(&["events", "latest"]).stdout, before);
    let pause = project.json(&["ps", "--json"])[0]["pause"].clone();
    assert_eq!(pause["reason"], "budget");
    let applied = project.json(&[&args[..], &["--apply"]].concat());
    assert_eq!(applied["applied"], true);
    assert_eq!(applied["summary"], preview["summary"]);
    // The compaction is recorded after the pause, which is still shown.
    assert_eq!(project.json(&["ps", "--json"])[0]["pause"], pause);
    assert_eq!(project.json(&["inspect", "--json"])["pause"], pause);
    let shown = project.run(&["compact", "latest", "--no-summary", "--keep-recent", "99"]);
    assert!(shown.contains("nothing to compact in its 3 messages"), "{shown}");
    assert_eq!(project.exit(&["resume", "latest", "--max-cost", "5"]), 0);
    assert_eq!(project.exit(&["replay", "latest"]), 0);
    let events = project.run(&["events", "latest"]);
    assert!(events.contains("compacted its conversation from 17 to 3 messages"), "{events}");
    let shown = project.run(&["compact", "latest", "--no-summary", "--keep-recent", "99"]);
    assert!(shown.contains("nothing to compact in its 8 messages"), "{shown}");
    assert_snapshot!(project.run(&["compact", "latest", "--apply"]), @r"
    exit 2
    ── stderr
    error: `work@1` has ended: no resume continues its conversation
      help: leave out --apply
    ");
}

#[test]
fn a_conversation_is_shortened_for_a_look() {
    let project = Project::hello();
    talk(&project, "write");
    let before = project.output(&["events", "latest"]).stdout;
    let args = ["compact", "latest", "write@1", "--no-summary", "--json"];
    let shown = project.json(&args);
    // The stage asked and was answered before.
    assert_eq!(shown["compacted_entries"], 36);
    assert!(shown["summary"].as_str().unwrap().starts_with("[Context Summary]"), "{shown}");
    let kept = project.json(&[&args[..], &["--keep-recent", "10"]].concat());
    assert_eq!(kept["compacted_entries"], 32);
    let text = project.run(&["compact", "latest", "--no-summary"]);
    assert_snapshot!(text.lines().nth(2).unwrap(), @"write@1 36 of 42 messages would become one; 1887 tokens instead of 4025");
    assert_snapshot!(project.run(&["compact", "latest", "--keep-recent", "99"]), @r"
    exit 0
    ── stdout
    write@1: nothing to compact in its 42 messages
    ");
    assert_snapshot!(project.run(&["compact", "latest", "check"]), @r"
    exit 2
    ── stderr
    error: `check@2` has no conversation
      help: name a stage that talked with a model
    ");
    assert_eq!(project.output(&["events", "latest"]).stdout, before);
    let silent = Project::with(&[("s.fabro", "digraph { start -> exit }")]);
    assert_eq!(silent.exit(&["run", "s.fabro"]), 0);
    assert_snapshot!(silent.run(&["compact", "latest"]), @r"
    exit 2
    ── stderr
    error: no stage of the run has a conversation with a model
    ");
}

#[test]
fn lists_and_stages() {
    let _filters = filters().bind_to_scope();
    let project = Project::hello();
    assert_snapshot!(project.run(&["ps"]), @r"
    exit 0
    ── stdout
    run                         workflow  status age took  goal
    [ID]  hello     succeeded [T] [T]  Greet the world in one line of at most 40 charact…
    ");
    assert_snapshot!(project.run(&["ps", "--json"]), @r#"
    exit 0
    ── stdout
    [
      {
        "id": "[ID]",
        "workflow": "hello",
        "status": "succeeded",
        "started_at": "[TS]",
        "ended_at": "[TS]",
        "goal": "Greet the world in one line of at most 40 characters"
      }
    ]
    "#);
    assert_snapshot!(project.run(&["inspect", "latest"]), @r"
    exit 0
    ── stdout
    run       [ID]
    workflow  hello
    status    succeeded
    goal      Greet the world in one line of at most 40 characters
    started   [UTC]
    took [T]
    spent     2 turns, 0 tokens in, 0 out
    seed      4911662279236764

    stage    status time  next
    start@1  succeeded [T]  write
    write@1  succeeded [T]  check
    check@1  failed [T]  write (outcome=failed)
        exit code 1: Good morning to every single one of you, wherever in the wide world you are.
    write@2  succeeded [T]  check
    check@2  succeeded [T]  exit (outcome=succeeded)
    exit@1   succeeded [T]
    ");
    assert_snapshot!(project.run(&["inspect", "latest", "check@1"]), @r"
    exit 0
    ── stdout
    check@1 failed in [T]  → write (outcome=failed)
    exit code 1: Good morning to every single one of you, wherever in the wide world you are.
    started   [UTC]

    ── stdout
    Good morning to every single one of you, wherever in the wide world you are.

    ── outcome
    command.exit_code = 1
    ");
    assert_snapshot!(project.run(&["inspect", "latest", "write@3"]), @r"
    exit 2
    ── stderr
    error: the run has no stage `write@3`; it has entered start, write, check, exit
    ");
    let keys =
        |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    let report = project.json(&["inspect", "latest", "--json"]);
    assert_snapshot!(keys(&report), @"id workflow status goal inputs seed started_at ended_at duration_ms stages usage");
    assert_snapshot!(report["stages"][2], @r#"{"rank":3,"node":"check","visit":1,"branch":null,"status":"failed","started_at":"[TS]","ended_at":"[TS]","attempts":1,"edge":"write","duration_ms":[MS],"failure":{"class":"deterministic","message":"exit code 1: Good morning to every single one of you, wherever in the wide world you are.","signature":"check|deterministic|exit code <n>: good morning to every single one of you, wherever in the wide world you are."},"reason":{"tier":"condition","condition":"outcome=failed","label":"too long"}}"#);
    let stage = project.json(&["inspect", "latest", "write@1", "--json"]);
    assert_snapshot!(keys(&stage), @"rank node visit branch status started_at ended_at attempts edge duration_ms usage reason system tools opening prompt response outcome transcript");
    assert_eq!(stage["outcome"]["status"], "succeeded");
}

#[test]
fn a_stage_shows_what_its_model_was_told() {
    let _filters = filters().bind_to_scope();
    let project = Project::hello();
    let whole = project.run(&["inspect", "latest", "write@1"]);
    assert!(whole.contains("\n── tools\n"), "{whole}");
    let stage = project.json(&["inspect", "latest", "write@1", "--json"]);
    let names: Vec<_> =
        stage["tools"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert!(whole.contains(&format!("── tools\n{}\n", names.join(", "))), "{whole}");
    let system = stage["system"].as_str().unwrap();
    assert!(system.starts_with("You are an agent"), "{system}");
    assert!(whole.contains("── system prompt\nYou are an agent"), "{whole}");
    assert!(!whole.contains("── conversation"), "{whole}");
    talk(&project, "write");
    let cut = project.run(&["inspect", "latest", "write@1"]);
    let talk = &cut[cut.find("── conversation").unwrap()..cut.find("\n── outcome").unwrap()];
    let lines: Vec<_> = talk.lines().collect();
    assert_snapshot!([&lines[3..5], &lines[lines.len() - 2..]].concat().join("\n"), @r"
    user: Read file 0. Look closely. Look closely. Look closely. Look closely. Look closely. Look closely. Look closely. Look closely. Look closely. Look closely. Look c… (cut, 292 characters in all)
    assistant: I have read it. It is long. It is long. It is long. It is long. It is long. It is long. It is long. It is long. It is long. It is long. It is long. It is long.… (cut, 495 characters in all)
    assistant: I have read it. It is long. It is long. It is long. It is long. It is long. It is long. It is long. It is long. It is long. It is long. It is long. It is long.… (cut, 495 characters in all)
    every message in full: fabro inspect [ID] write@1 --json
    ");
}

#[test]
fn reasons() {
    let _filters = filters().bind_to_scope();
    let project = Project::hello();
    assert_snapshot!(project.run(&["explain", "latest", "check@1"]), @r#"
    exit 0
    ── stdout
    check@1 → write  by rule condition
      ✗ exit  if outcome=succeeded
          ✗ outcome=succeeded  saw "failed"
      ✓ write  "too long"  if outcome=failed
          ✓ outcome=failed  saw "failed"
    "#);
    assert_snapshot!(project.run(&["explain", "latest", "check", "--json"]), @r#"
    exit 0
    ── stdout
    {
      "stage": "check@2",
      "chosen": "exit",
      "tier": "condition",
      "candidates": [
        {
          "to": "exit",
          "label": null,
          "condition": "outcome=succeeded",
          "weight": 0,
          "holds": true,
          "clauses": [
            {
              "text": "outcome=succeeded",
              "value": "succeeded",
              "holds": true
            }
          ],
          "taken": true
        },
        {
          "to": "write",
          "label": "too long",
          "condition": "outcome=failed",
          "weight": 0,
          "holds": false,
          "clauses": [
            {
              "text": "outcome=failed",
              "value": "succeeded",
              "holds": false
            }
          ]
        }
      ]
    }
    "#);
    assert_snapshot!(project.run(&["explain", "latest", "exit"]), @r"
    exit 2
    ── stderr
    error: no edge was taken after `exit@1`: the run ended there
    ");
}

#[test]
fn reasons_of_a_run_that_failed() {
    let _filters = filters().bind_to_scope();
    let project = Project::with(&[(
        "stuck.fabro",
        r#"digraph { start -> a; a [shape=parallelogram, script="echo 5"]
        a -> exit [condition="outcome=success && command.output > 7"]; a -> a [label=again, condition="outcome=fail"] }"#,
    )]);
    assert_eq!(project.exit(&["run", "stuck.fabro"]), 1);
    assert_snapshot!(project.run(&["explain", "latest", "a"]), @r#"
    exit 0
    ── stdout
    a → no edge  no matching edge from `a`: add an edge without a condition, or one for this result (structural)
      ✗ exit  if outcome=success && command.output > 7
          ✓ outcome=success  saw "succeeded"
          ✗ command.output > 7  saw "5"
      ✗ a  "again"  if outcome=fail
          ✗ outcome=fail  saw "succeeded"
    "#);
    let shown = project.json(&["explain", "latest", "a", "--json"]);
    assert!(shown["chosen"].is_null() && shown["tier"].is_null(), "{shown}");
    assert_eq!(shown["candidates"][0]["clauses"][1]["value"], "5");
    assert_snapshot!(project.run(&["inspect", "latest"]), @r"
    exit 0
    ── stdout
    run       [ID]
    workflow  stuck
    status    failed
    failure   no matching edge from `a`: add an edge without a condition, or one for this result (structural)
    started   [UTC]
    took [T]
    seed      5821494897450994

    stage    status time  next
    start@1  succeeded [T]  a
    a@1      succeeded [T]

    see why no edge was taken with: fabro explain [ID] a@1
    ");
    assert_snapshot!(project.json(&["inspect", "latest", "--json"])["failure"]["message"], @r#""no matching edge from `a`""#);
}

#[test]
fn reasons_of_a_draw() {
    let project = Project::with(&[(
        "draw.fabro",
        "digraph { start -> pick; pick [shape=diamond, selection=random]; pick -> b -> exit; pick -> c -> exit
        b [shape=parallelogram, script=true]; c [shape=parallelogram, script=true] }",
    )]);
    assert_eq!(project.exit(&["run", "draw.fabro", "--seed", "3"]), 0);
    assert_snapshot!(project.run(&["explain", "latest", "pick"]), @r"
    exit 0
    ── stdout
    pick → b  by rule unconditional, drawn by weight with seed 3
      ✓ b  unconditional
      · c  unconditional
    ");
}

#[test]
fn the_context_and_its_changes() {
    let _filters = filters().bind_to_scope();
    let project = Project::hello();
    let at = |args: &[&str]| project.json(&[&["context", "latest", "--json"], args].concat());
    assert_eq!(at(&["--at", "check@1"])["outcome"], "failed");
    assert_eq!(at(&[])["command.output"].as_str().unwrap().split('/').nth(2), Some("sha256"));
    assert_eq!(at(&["--resolve"])["command.output"], "Hello, world!");
    let changes = at(&["--diff", "write@1", "write@2"]);
    let change = changes.as_array().unwrap().iter().find(|it| it["key"] == "response.write");
    assert_snapshot!(change.unwrap(), @r#"{"key":"response.write","before":"Good morning to every single one of you, wherever in the wide world you are.","after":"Hello, world!"}"#);
    assert_snapshot!(project.run(&["context", "latest", "--diff", "write@2", "check@2"]), @r#"
    exit 0
    ── stdout
    command.exit_code
      - 1
      + 0
    command.output
      - "Good morning to every single one of you, wherever in the wide world you are."
      + "Hello, world!"
    current_node
      - "write"
      + "check"
    last_stage
      - "write"
      + "check"
    "#);
}

#[test]
fn events_afterwards_are_those_of_the_run() {
    let _filters = filters().bind_to_scope();
    let project = Project::new();
    assert_eq!(project.exit(&["init"]), 0);
    let live = project.output(&["run", "hello", "--json"]);
    let later = project.output(&["events", "latest", "--json"]);
    let live = String::from_utf8(live.stdout).unwrap();
    let later = String::from_utf8(later.stdout).unwrap();
    assert_eq!(live, later);
    let last: Value = serde_json::from_str(live.lines().last().unwrap()).unwrap();
    assert_eq!(last["event"], "run.completed");
    assert_eq!(project.output(&["events", "latest", "--json", "-f"]).stdout, later.as_bytes());
    let text = project.run(&["events", "latest"]);
    assert_snapshot!(text.lines().take(4).collect::<Vec<_>>().join("\n"), @r"
    exit 0
    ── stdout
    [TIME] · run of hello created: Greet the world in one line of at most 40 characters
    [TIME] · run started
    ");
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let project = Project::hello();
    for args in [["events", "latest"], ["context", "latest"], ["inspect", "latest"]] {
        let mut child =
            project.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
    }
}

#[test]
fn a_run_continues_when_its_events_are_not_read() {
    let project = Project::new();
    assert_eq!(project.exit(&["init"]), 0);
    let mut child =
        project.command(&["run", "hello", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(project.json(&["ps", "--json"])[0]["status"], "succeeded");
}

#[test]
fn without_runs_there_is_an_empty_list() {
    let project = Project::new();
    assert_snapshot!(project.run(&["ps"]), @r"
    exit 0
    ── stderr
    there are no runs yet; start one with `fabro run`
    ");
    assert_snapshot!(project.run(&["ps", "--json"]), @r"
    exit 0
    ── stdout
    []
    ");
    assert_snapshot!(project.run(&["inspect", "latest"]), @r"
    exit 4
    ── stderr
    error: there are no runs: there is no store at DIR/.fabro/state
      help: start one with `fabro run`, or name another store with `--store`
    ");
    assert!(!project.path().join(".fabro").exists());
}

#[test]
fn runs_that_do_not_exist() {
    let project = Project::hello();
    assert_snapshot!(project.run(&["inspect", "zzz"]), @r"
    exit 2
    ── stderr
    error: there is no run `zzz`; `fabro ps` lists them
    ");
    assert_eq!(project.exit(&["events", "0"]), 0, "the beginning of an id is enough");
    assert_snapshot!(project.run(&["resume", "zzz"]), @r"
    exit 2
    ── stderr
    error: there is no run `zzz`; `fabro ps` lists them
    ");
}

#[test]
fn a_store_of_something_else_is_refused() {
    let project = Project::with(&[("other/fabro.db", "this is no database at all, but a text")]);
    assert_snapshot!(project.run(&["ps", "--store", "other"]), @r"
    exit 4
    ── stderr
    error: DIR/other/fabro.db is not a Fabro store; move it away
      help: fix that, or name another store with `--store`
    ");
}

#[test]
fn colors_only_when_asked_for() {
    let project = Project::hello();
    let has_escapes = |args: &[&str]| {
        let output = project.output(args);
        [output.stdout, output.stderr].concat().contains(&0x1b)
    };
    assert!(!has_escapes(&["ps"]));
    assert!(!has_escapes(&["run", "hello"]));
    assert!(has_escapes(&["ps", "--color", "always"]));
    assert!(has_escapes(&["run", "hello", "--color", "always"]));
}

#[test]
fn help_and_completion() {
    let project = Project::new();
    let help = project.run(&["--help"]);
    for command in ["run", "resume", "validate", "answer", "doctor"] {
        assert!(help.contains(&format!(" {command} ")), "{help}");
    }
    let script = project.output(&["completion", "bash"]);
    assert!(String::from_utf8_lossy(&script.stdout).contains("_clap_complete_fabro()"));
    assert_eq!(project.exit(&["frobnicate"]), 2);
    let doctor = project.json(&["doctor", "--json"]);
    assert_eq!(doctor[1]["check"], "sh");
}

#[test]
fn a_workflow_is_drawn_as_what_the_file_is_called() {
    let source = "digraph { start -> a -> exit; a [shape=parallelogram, script=\"exit 1\"]; a -> b [condition=\"outcome=fail\"]; b [shape=parallelogram, script=true]; b -> exit }";
    let project = Project::with(&[("flow.fabro", source)]);
    assert_eq!(project.exit(&["run", "flow.fabro"]), 0);
    for (file, begins) in
        [("x.svg", "<svg "), ("x.txt", "● start"), ("x.dot", "digraph "), ("x", "digraph ")]
    {
        assert_eq!(project.exit(&["graph", "flow.fabro", "-o", file]), 0);
        assert!(project.read(file).starts_with(begins), "{file}");
    }
    assert!(project.run(&["graph", "flow.fabro"]).contains("digraph "));
    let shown = project.run(&["graph", "--run", "latest", "--format", "outline"]);
    let lines: Vec<&str> = shown.lines().filter(|line| !line.contains("ms")).collect();
    assert_snapshot!(lines.join("\n"), @r"
    exit 0
    ── stdout
      └ → a  (1×)
      ├ → exit
      └ → b  (1×)  [outcome=fail]
      └ → exit  (1×)
    ");
    for (node, sign) in [("start", "✓"), ("a", "✗"), ("b", "✓"), ("exit", "✓")] {
        assert!(
            shown.lines().any(|line| line.contains(&format!(" {node} ")) && line.contains(sign))
        );
    }
    let picture = project.run(&["graph", "--run", "latest", "--format", "svg"]);
    assert!(picture.contains("kind-command failed\" data-node=\"a\""), "{picture}");
    assert!(picture.contains("edge taken"), "{picture}");
}

#[test]
fn the_picture_of_the_documentation_is_current() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let project = Project::new();
    let drawn = project.path().join("graph.svg");
    let workflow = format!("{root}/fixtures/demo/workflow.fabro");
    assert_eq!(project.exit(&["graph", &workflow, "-o", drawn.to_str().unwrap()]), 0);
    let committed = std::fs::read_to_string(format!("{root}/docs/graph.svg")).unwrap();
    assert!(
        project.read("graph.svg") == committed,
        "run `fabro graph fixtures/demo/workflow.fabro -o docs/graph.svg`"
    );
}
