//! Stages that another program answers: what they cost, and what a resume continues.

use std::fmt::Write as _;
use std::process::Command;

use serde_json::Value;

use super::project::Project;

/// A project with a program of a few lines of shell in its `bin`.
fn project(program: &str, script: &str, workflow: &str) -> Project {
    let source = format!("digraph {{ start; exit; {workflow} }}");
    let project = Project::with(&[("w.fabro", &source)]);
    install(&project, program, script);
    project
}

fn install(project: &Project, program: &str, script: &str) {
    let name = format!("bin/{program}");
    // Its arguments and its prompt are recorded.
    let head =
        "#!/bin/sh\nprompt=$(cat)\necho \"$* < $prompt\" | tr '\\n' ' ' >> asked; echo >> asked\n";
    project.write(&format!("{name}.new"), format!("{head}{script}\n").as_bytes());
    // Copied by another process: one that this process has open for writing while another test forks
    // could not be started.
    let copy = "cp \"$1.new\" \"$1\" && chmod +x \"$1\"";
    let path = project.path().join(name);
    let copied = Command::new("sh").args(["-c", copy, "sh"]).arg(path).status();
    assert!(copied.unwrap().success());
}

fn run(project: &Project, args: &[&str]) -> i32 {
    let path = format!("{}/bin:/usr/bin:/bin", project.path().display());
    let output = project.command(args).env("PATH", path).output().unwrap();
    output.status.code().unwrap()
}

/// What the program was asked, without the server for the context of its stage, which has a test of its own.
fn asked(project: &Project) -> String {
    let server = r" --allowedTools mcp__\S+ --mcp-config \{.*?\}\}\}";
    let server = regex::Regex::new(server).unwrap();
    server.replace_all(&project.read("asked"), "").into_owned()
}

/// The usage of the run, and why it paused.
fn spent(project: &Project) -> String {
    let events = project.output(&["events", "latest", "--json"]).stdout;
    let events = String::from_utf8(events).unwrap();
    let events = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut text = String::new();
    for event in events {
        let properties = &event["properties"];
        match event["event"].as_str().unwrap() {
            "run.paused" => {
                let _ = writeln!(text, "paused: {}", properties["message"].as_str().unwrap());
            }
            "agent.message" if properties["usage"].is_object() => {
                let usage = &properties["usage"];
                let cost = usage["cost_usd"].as_f64().unwrap_or_default();
                let role = properties["role"].as_str().unwrap();
                let session = event["session_id"].as_str().unwrap_or("-");
                let _ = writeln!(text, "{role} {session}: in {} ${cost:.4}", usage["input_tokens"]);
            }
            "agent.warning" => {
                let _ = writeln!(text, "warning: {}", properties["message"].as_str().unwrap());
            }
            "run.completed" | "run.failed" => {
                let usage = &properties["usage"];
                let cost = usage["cost_usd"].as_f64().unwrap_or_default();
                let _ = writeln!(text, "{}: ${cost:.4}", event["event"].as_str().unwrap());
            }
            _ => {}
        }
    }
    text
}

const CLAUDE: &str = r#"
init() { echo '{"type":"system","subtype":"init","session_id":"c1","model":"claude-x"}'; }
work() { echo '{"type":"assistant","message":{"id":"m1","model":"claude-x","content":[{"type":"text","text":"Hm."}]},"session_id":"c1"}'; }
result() { printf '{"type":"result","subtype":"success","is_error":%s,"api_error_status":%s,"result":"%s","session_id":"c1","total_cost_usd":%s,"usage":{"input_tokens":10,"output_tokens":5}}\n' "$1" "$2" "$3" "$4"; }
refused() { printf '{"type":"result","subtype":"success","is_error":true,"api_error_status":%s,"result":"%s","session_id":"c1","total_cost_usd":0,"usage":{"input_tokens":0,"output_tokens":0}}\n' "$1" "$2"; exit 1; }
n=$(wc -l < asked)
"#;

#[test]
fn a_budget_holds_for_programs() {
    let script = format!("{CLAUDE}\ninit; work; result false null done 0.30");
    let project = project(
        "claude",
        &script,
        "start -> a -> b -> exit; a [prompt=x, backend=cli]; b [prompt=y, backend=cli]",
    );
    assert_eq!(run(&project, &["run", "w.fabro", "--quiet", "--max-cost", "0.25"]), 3);
    assert_eq!(run(&project, &["resume", "latest", "--quiet", "--max-cost", "2"]), 0);
    insta::assert_snapshot!(spent(&project), @r"
    assistant c1: in 10 $0.3000
    paused: spent $0.30 of max_cost $0.25
    assistant c1: in 10 $0.3000
    run.completed: $0.6000
    ");
    insta::assert_snapshot!(asked(&project), @r"
    -p --output-format stream-json --verbose --permission-mode acceptEdits --disallowedTools Bash,WebFetch,WebSearch --max-budget-usd 0.2500 < x 
    -p --output-format stream-json --verbose --permission-mode acceptEdits --disallowedTools Bash,WebFetch,WebSearch --max-budget-usd 1.7000 < ## Completed stages - **a**: success   - Model: claude-x, 10 tokens in / 5 out  y
    ");
    assert_eq!(run(&project, &["replay", "latest"]), 0);
}

#[test]
fn tokens_are_priced_and_an_unknown_price_is_reported() {
    let script = r#"
    echo '{"type":"thread.started","thread_id":"t1"}'
    echo '{"type":"item.completed","item":{"type":"agent_message","text":"done"}}'
    echo '{"type":"turn.completed","usage":{"input_tokens":9000000,"cached_input_tokens":0,"output_tokens":100}}'"#;
    let stage = |model: &str| {
        format!(
            "start -> a -> b -> exit; a [prompt=x, backend=cli, provider=openai{model}]; b [shape=parallelogram, script=true]"
        )
    };
    let known = project("codex", script, &stage(", model=\"gpt-5.2\""));
    assert_eq!(run(&known, &["run", "w.fabro", "--quiet", "--max-cost", "0.5"]), 3);
    insta::assert_snapshot!(spent(&known), @r"
    assistant t1: in 9000000 $15.7514
    paused: spent $15.75 of max_cost $0.50
    ");
    let unknown = project("codex", script, &stage(""));
    run(&unknown, &["run", "w.fabro", "--quiet", "--max-cost", "0.5"]);
    insta::assert_snapshot!(spent(&unknown), @r"
    assistant t1: in 9000000 $0.0000
    warning: the price of the model of codex is not known, so max_cost does not count it
    run.completed: $0.0000
    ");
}

#[test]
fn a_session_goes_on_after_a_correction_and_a_pause() {
    // An invalid answer, then no service, then an answer.
    let script = format!(
        "{CLAUDE}\ncase $n in\n1) init; work; result false null 'no json' 0.10;;\n\
         2) init; refused 529 Overloaded;;\n\
         *) init; work; result false null '{{\\\"preferred_next_label\\\":\\\"go\\\"}}' 0.05;;\nesac"
    );
    let workflow =
        "start -> a; a -> exit [label=go]; a [prompt=x, backend=cli, output_schema=routing]";
    let project = project("claude", &script, workflow);
    assert_eq!(run(&project, &["run", "w.fabro", "--quiet"]), 3);
    assert_eq!(run(&project, &["resume", "latest", "--quiet"]), 0);
    insta::assert_snapshot!(spent(&project), @r"
    assistant c1: in 10 $0.1000
    paused: `a@1`: claude: Overloaded; to fix it, check the login, the account and the model of `claude` (start `claude` and enter /login, or set ANTHROPIC_API_KEY), or wait and ask again
    assistant c1: in 10 $0.0500
    run.completed: $0.1500
    ");
    insta::assert_snapshot!(asked(&project), @r"
    -p --output-format stream-json --verbose --permission-mode acceptEdits --disallowedTools Bash,WebFetch,WebSearch < x 
    -p --output-format stream-json --verbose --permission-mode acceptEdits --disallowedTools Bash,WebFetch,WebSearch --resume c1 < Your answer has no JSON object with a routing field. It must be a JSON object with at least one of these fields: outcome (a string: succeeded, failed, partially_succeeded or skipped), failure_reason (a string), preferred_next_label (a string), suggested_next_ids (an array of strings), context_updates (an object). Answer with the corrected JSON only. 
    -p --output-format stream-json --verbose --permission-mode acceptEdits --disallowedTools Bash,WebFetch,WebSearch --resume c1 < Your work on this request was interrupted. Check what is done already, then finish it and answer. The request was:  Your answer has no JSON object with a routing field. It must be a JSON object with at least one of these fields: outcome (a string: succeeded, failed, partially_succeeded or skipped), failure_reason (a string), preferred_next_label (a string), suggested_next_ids (an array of strings), context_updates (an object). Answer with the corrected JSON only.
    ");
    assert_eq!(run(&project, &["replay", "latest"]), 0);
}

#[test]
fn a_failure_after_work_is_a_result_of_the_stage() {
    let script =
        format!("{CLAUDE}\ninit; work; echo x > touched; result true 529 Overloaded 0.20; exit 1");
    let workflow = "start -> a; a -> exit [condition=\"outcome=success\"]; a -> b [condition=\"outcome=failed\"]; b -> exit; a [prompt=x, backend=cli, max_retries=0]; b [shape=parallelogram, script=true]";
    let project = project("claude", &script, workflow);
    assert_eq!(run(&project, &["run", "w.fabro", "--quiet"]), 0);
    insta::assert_snapshot!(spent(&project), @r"
    system c1: in 10 $0.2000
    run.completed: $0.2000
    ");
}

#[test]
fn a_session_that_is_gone_is_started_again() {
    let script = format!(
        "{CLAUDE}\ncase $n in\n1) init; refused 401 'log in';;\n\
         2) echo '{{\"type\":\"result\",\"subtype\":\"error_during_execution\",\"is_error\":true,\"errors\":[\"No conversation found\"]}}'; exit 1;;\n\
         *) init; work; result false null done 0.05;;\nesac"
    );
    let project =
        project("claude", &script, "start -> a -> exit; a [prompt=\"Say it\", backend=cli]");
    assert_eq!(run(&project, &["run", "w.fabro", "--quiet"]), 3);
    assert_eq!(run(&project, &["resume", "latest", "--quiet"]), 0);
    insta::assert_snapshot!(spent(&project), @r"
    paused: `a@1`: claude: log in; to fix it, check the login, the account and the model of `claude` (start `claude` and enter /login, or set ANTHROPIC_API_KEY), or wait and ask again
    warning: claude: No conversation found; a new session is started
    assistant c1: in 10 $0.0500
    run.completed: $0.0500
    ");
    insta::assert_snapshot!(asked(&project), @r"
    -p --output-format stream-json --verbose --permission-mode acceptEdits --disallowedTools Bash,WebFetch,WebSearch < Say it 
    -p --output-format stream-json --verbose --permission-mode acceptEdits --disallowedTools Bash,WebFetch,WebSearch --resume c1 < Your work on this request was interrupted. Check what is done already, then finish it and answer. The request was:  Say it 
    -p --output-format stream-json --verbose --permission-mode acceptEdits --disallowedTools Bash,WebFetch,WebSearch < Say it
    ");
}

#[test]
fn a_session_that_cannot_be_continued_is_replaced_by_a_new_one() {
    let script = format!(
        "{CLAUDE}\ncase $n in\n1) init; refused 401 'log in';;\n\
         2) init; echo '{{\"type\":\"assistant\",\"message\":{{\"model\":\"<synthetic>\",\"content\":[{{\"type\":\"text\",\"text\":\"Prompt is too long\"}}]}},\"session_id\":\"c1\"}}'\n\
         echo '{{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":true,\"result\":\"Prompt is too long\"}}'; exit 1;;\n\
         *) init; work; result false null done 0.05;;\nesac"
    );
    let project =
        project("claude", &script, "start -> a -> exit; a [prompt=\"Say it\", backend=cli]");
    assert_eq!(run(&project, &["run", "w.fabro", "--quiet"]), 3);
    assert_eq!(run(&project, &["resume", "latest", "--quiet"]), 0);
    insta::assert_snapshot!(spent(&project), @r"
    paused: `a@1`: claude: log in; to fix it, check the login, the account and the model of `claude` (start `claude` and enter /login, or set ANTHROPIC_API_KEY), or wait and ask again
    warning: claude: Prompt is too long; a new session is started
    assistant c1: in 10 $0.0500
    run.completed: $0.0500
    ");
}

#[test]
fn a_program_that_stopped_at_its_budget_goes_on_with_a_larger_one() {
    let script = format!(
        "{CLAUDE}\ninit; work\ncase $n in\n\
         1) echo '{{\"type\":\"result\",\"subtype\":\"error_max_budget_usd\",\"is_error\":true,\"session_id\":\"c1\",\"total_cost_usd\":0.26,\"usage\":{{\"input_tokens\":10,\"output_tokens\":5}}}}'; exit 1;;\n\
         *) result false null done 0.20;;\nesac"
    );
    let project = project("claude", &script, "start -> a -> exit; a [prompt=x, backend=cli]");
    assert_eq!(run(&project, &["run", "w.fabro", "--quiet", "--max-cost", "0.25"]), 3);
    assert_eq!(run(&project, &["resume", "latest", "--quiet"]), 3);
    assert_eq!(run(&project, &["resume", "latest", "--quiet", "--max-cost", "1"]), 0);
    insta::assert_snapshot!(spent(&project), @r"
    system c1: in 10 $0.2600
    paused: spent $0.26 of max_cost $0.25
    paused: spent $0.26 of max_cost $0.25
    assistant c1: in 10 $0.2000
    run.completed: $0.4600
    ");
}

#[test]
fn a_program_that_reports_no_usage_has_an_unknown_cost() {
    let script = r#"echo '{"event":"result","conversation_id":"c1","response":"done"}'"#;
    let project =
        project("agy", script, "start -> a -> exit; a [prompt=x, backend=cli, provider=agy]");
    assert_eq!(run(&project, &["run", "w.fabro", "--quiet"]), 0);
    let cost = project.output(&["cost", "latest", "--json"]).stdout;
    let cost: Value = serde_json::from_slice(&cost).unwrap();
    let total = &cost["total"];
    assert_eq!(
        (&total["cost_usd"], &total["unpriced_requests"]),
        (&Value::Null, &1.into()),
        "{cost}"
    );
}

/// A program does not have the conversation of its thread.
#[test]
fn a_program_in_a_thread_sees_the_stages_before() {
    let script = r#"echo '{"event":"result","conversation_id":"c1","response":"It is red."}'"#;
    let project = project(
        "agy",
        script,
        "graph [default_fidelity=full, default_thread=t]; node [backend=cli, provider=agy]; \
         start -> a -> b -> exit; a [prompt=x]; b [prompt=y]",
    );
    assert_eq!(run(&project, &["run", "w.fabro", "--quiet"]), 0);
    let asked = asked(&project);
    insta::assert_snapshot!(asked.lines().last().unwrap().trim(), @"--output-format stream-json --print-timeout 24h -p ## Completed stages  ### a: success - Response:   ```   It is red.   ```  y <");
}
