use std::os::unix::fs::PermissionsExt;
use std::sync::LazyLock;

use fabro_external_agents::{Backend as _, Cli, CliAgent, ContextServer, Task};
use fabro_redact::Redactor;
use fabro_types::Permissions;
use insta::assert_snapshot;
use tokio_util::sync::CancellationToken;

use super::{Place, gone};

/// A program of a few lines of shell.
pub(super) fn program(place: &Place, agent: CliAgent, script: &str) -> Cli {
    let path = place.0.path().join(agent.name());
    // Written by another process: one that this process has open for writing while another test
    // forks could not be started.
    let written = std::process::Command::new("sh")
        .args(["-c", r#"printf '#!/bin/sh\n%s\n' "$2" > "$1""#, "sh"])
        .arg(&path)
        .arg(script)
        .status();
    assert!(written.unwrap().success());
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    Cli::new(agent).with_program(path.to_str().unwrap())
}

/// Prints lines.
pub(super) fn prints(lines: &[&str]) -> String {
    format!("cat > /dev/null\ncat <<'END'\n{}\nEND", lines.join("\n"))
}

pub(super) const CLAUDE: [&str; 6] = [
    r#"{"type":"system","subtype":"init","session_id":"c1","model":"claude-x","tools":["Read"]}"#,
    "Warning: something is old",
    r#"{"type":"assistant","message":{"model":"claude-x","content":[{"type":"text","text":"Let me see."},{"type":"tool_use","name":"Read","input":{}}]},"session_id":"c1"}"#,
    r#"{"type":"user","message":{"content":[{"type":"tool_result","content":"…"}]},"session_id":"c1"}"#,
    r#"{"type":"brand_new","what":[1,2]}"#,
    r#"{"type":"result","subtype":"success","is_error":false,"num_turns":2,"result":"It is 4.","session_id":"c1","total_cost_usd":0.25,"usage":{"input_tokens":10,"cache_creation_input_tokens":20,"cache_read_input_tokens":70,"output_tokens":5}}"#,
];

pub(super) const CODEX: [&str; 7] = [
    r#"{"type":"thread.started","thread_id":"t1"}"#,
    r#"{"type":"turn.started"}"#,
    r#"{"type":"item.started","item":{"id":"i1","type":"command_execution","command":"ls"}}"#,
    r#"{"type":"error","message":"Reconnecting... 1/5"}"#,
    r#"{"type":"item.completed","item":{"id":"i2","type":"agent_message","text":"First."}}"#,
    r#"{"type":"item.completed","item":{"id":"i3","type":"agent_message","text":"It is 4."}}"#,
    r#"{"type":"turn.completed","usage":{"input_tokens":100,"cached_input_tokens":60,"output_tokens":7}}"#,
];

const GEMINI: [&str; 3] = [
    "Loaded cached credentials.",
    "{",
    r#""session_id":"g1","response":"It is 4.","stats":{"models":{"gemini-a":{"api":{"totalRequests":2},"tokens":{"prompt":40,"candidates":3,"cached":10,"thoughts":2}},"gemini-b":{"api":{"totalRequests":1},"tokens":{"prompt":1,"candidates":1}}}}}"#,
];

pub(super) const GEMINI_STREAM: [&str; 9] = [
    "Loaded cached credentials.",
    r#"{"type":"init","session_id":"g2","model":"gemini-a"}"#,
    r#"{"type":"message","role":"user","content":"What is 2 + 2?"}"#,
    r#"{"type":"message","role":"assistant","content":"Let me","delta":true}"#,
    r#"{"type":"message","role":"assistant","content":" see.","delta":true}"#,
    r#"{"type":"tool_use","tool_name":"read_file","tool_id":"1","parameters":{}}"#,
    r#"{"type":"brand_new","what":[1,2]}"#,
    r#"{"type":"message","role":"assistant","content":"It is 4.","delta":true}"#,
    r#"{"type":"result","status":"success","stats":{"total_tokens":50,"input_tokens":40,"output_tokens":3,"cached":10,"tool_calls":1}}"#,
];

const AGY: [&str; 4] = [
    r#"{"event":"init","conversation_id":"a1"}"#,
    r#"{"event":"step_update","step":{"kind":"tool"}}"#,
    r#"{"event":"brand_new"}"#,
    r#"{"event":"result","conversation_id":"a1","response":"It is 4."}"#,
];

type Variables<'a> = &'a [(String, String)];

async fn run(place: &Place, program: &Cli, env: Variables<'_>, keys: Variables<'_>) {
    let work = place.work();
    let logs = place.0.path().join("logs");
    let task = Task { env, keys, ..Task::new("", &work, &logs) };
    assert!(program.run(task).await.is_err(), "it fails");
}

#[tokio::test]
async fn each_program_gets_the_keys_of_its_own_provider() {
    let keys = ["ANTHROPIC_API_KEY", "CODEX_HOME", "GEMINI_API_KEY", "OPENAI_API_KEY", "OTHER_KEY"];
    let keys = keys.map(|name| (name.to_owned(), "kept".to_owned()));
    let place = Place::new();
    let path = [("PATH".to_owned(), std::env::var("PATH").unwrap())];
    for (agent, own) in [
        (CliAgent::Claude, "ANTHROPIC_API_KEY"),
        (CliAgent::Codex, "CODEX_HOME OPENAI_API_KEY"),
        (CliAgent::Gemini, "GEMINI_API_KEY"),
    ] {
        let program = program(&place, agent, "env | grep =kept | sort | tr '\\n' ' ' >&2; exit 3");
        run(&place, &program, &path, &keys).await;
        let seen = place.log("stderr.log").replace("=kept", "");
        assert_eq!(seen.trim(), own, "{agent:?}");
    }
    // What a task has of its own is its word.
    let env = [("PATH", "/usr/bin:/bin"), ("ANTHROPIC_API_KEY", "=kept")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let program = program(&place, CliAgent::Codex, "env | grep =kept >&2; exit 3");
    run(&place, &program, &env, &[]).await;
    assert_eq!(place.log("stderr.log").trim(), "ANTHROPIC_API_KEY==kept");
}

pub(super) async fn answer(agent: CliAgent, script: &str) -> String {
    let place = Place::new();
    place.run(&program(&place, agent, script), "What is 2 + 2?", |_| {}).await
}

#[tokio::test]
async fn claude_counts_its_models_apart_and_what_is_kept_for_an_hour() {
    let usage = r#""usage":{"input_tokens":10,"cache_creation_input_tokens":20,"cache_creation":{"ephemeral_5m_input_tokens":5,"ephemeral_1h_input_tokens":15},"cache_read_input_tokens":70,"output_tokens":5}"#;
    let models = |own: &str| {
        format!(
            r#""modelUsage":{{"{own}":{{"inputTokens":10,"costUSD":0.2}},"small":{{"inputTokens":7,"outputTokens":3,"cacheReadInputTokens":2,"cacheCreationInputTokens":1,"costUSD":0.05}}}}"#
        )
    };
    let result = |more: &str| {
        format!(
            r#"{{"type":"result","subtype":"success","is_error":false,"num_turns":2,"result":"It is 4.",{usage}{more}}}"#
        )
    };
    for (more, expect) in [
        (String::new(), "claude-x 100+5 long 15 $0"),
        (
            format!(r#","total_cost_usd":0.25,{}"#, models("claude-x")),
            "small 10+3 long 0 $0.05, claude-x 100+5 long 15 $0.2",
        ),
        // Without its own model among them, what belongs to it is not known.
        (format!(r#","total_cost_usd":0.25,{}"#, models("y")), "claude-x 100+5 long 15 $0.25"),
        (
            format!(r#","total_cost_usd":0.05,{}"#, models("claude-x")),
            "claude-x 100+5 long 15 $0.05",
        ),
    ] {
        let place = Place::new();
        let program = program(&place, CliAgent::Claude, &prints(&[CLAUDE[0], &result(&more)]));
        let work = place.work();
        let logs = place.0.path().join("logs");
        let done = program.run(Task::new("", &work, &logs)).await.unwrap();
        let used = done.usage.iter().map(|used| {
            format!(
                "{} {}+{} long {} ${}",
                used.model.as_deref().unwrap_or("-"),
                used.input_tokens,
                used.output_tokens,
                used.long_cache_write_tokens,
                used.cost_usd
            )
        });
        assert_eq!(used.collect::<Vec<_>>().join(", "), expect);
    }
}

#[tokio::test]
pub(super) async fn answers_are_read() {
    assert_snapshot!(answer(CliAgent::Claude, &prints(&CLAUDE)).await, @r#"
    says Let me see.
    uses Read
    answer: It is 4.
    session: c1
    usage: Some("claude-x") in 100 out 5 cached 70 $0.25 in 2 turns
    "#);
    assert_snapshot!(answer(CliAgent::Codex, &prints(&CODEX)).await, @r"
    uses command_execution
    says First.
    says It is 4.
    answer: It is 4.
    session: t1
    usage: None in 100 out 7 cached 60 $0 in 1 turns
    ");
    assert_snapshot!(answer(CliAgent::Gemini, &prints(&GEMINI_STREAM)).await, @r#"
    says Let me
    says  see.
    uses read_file
    says It is 4.
    answer: It is 4.
    session: g2
    usage: Some("gemini-a") in 40 out 10 cached 10 $0 in 1 turns
    "#);
    assert_snapshot!(answer(CliAgent::Agy, &prints(&AGY)).await, @r"
    answer: It is 4.
    session: a1
    warning: agy has no options for permissions: its own settings say what it may do
    ");
    assert_snapshot!(answer(CliAgent::Agy, &prints(&[r#"{"conversation_id":"a1","response":"It is 4."}"#])).await, @r"
    answer: It is 4.
    session: a1
    warning: agy has no options for permissions: its own settings say what it may do
    ");
    assert_snapshot!(answer(CliAgent::Gemini, &prints(&GEMINI)).await, @r#"
    answer: It is 4.
    session: g1
    usage: Some("gemini-a") in 40 out 5 cached 10 $0 in 2 turns
    usage: Some("gemini-b") in 1 out 1 cached 0 $0 in 1 turns
    "#);
}

#[tokio::test]
async fn each_program_gets_the_permissions_as_its_own_arguments() {
    let mut lines = Vec::new();
    for agent in CliAgent::ALL {
        for permissions in [Permissions::ReadOnly, Permissions::ReadWrite, Permissions::Full] {
            for dangerous in [false, true] {
                let place = Place::new();
                let log = place.0.path().join("args");
                let cli = program(&place, agent, &format!("echo \"$@\" > '{}'", log.display()));
                let cli = cli.with_dangerous(dangerous);
                place
                    .run(&cli, "", |task| {
                        task.permissions = permissions;
                        task.model = dangerous.then_some("m-1");
                    })
                    .await;
                let args = std::fs::read_to_string(log).unwrap();
                lines.push(format!(
                    "{} {}{}: {args}",
                    agent.name(),
                    permissions.as_str(),
                    if dangerous { "!" } else { "" }
                ));
            }
        }
    }
    assert_snapshot!(lines.concat(), @r"
    claude read-only: -p --output-format stream-json --verbose --permission-mode default --disallowedTools Edit,MultiEdit,Write,NotebookEdit Bash,WebFetch,WebSearch
    claude read-only!: -p --output-format stream-json --verbose --permission-mode default --disallowedTools Edit,MultiEdit,Write,NotebookEdit Bash,WebFetch,WebSearch --model m-1
    claude read-write: -p --output-format stream-json --verbose --permission-mode acceptEdits --disallowedTools Bash,WebFetch,WebSearch
    claude read-write!: -p --output-format stream-json --verbose --permission-mode acceptEdits --disallowedTools Bash,WebFetch,WebSearch --model m-1
    claude full: -p --output-format stream-json --verbose --permission-mode acceptEdits --allowedTools Bash,WebFetch,WebSearch
    claude full!: -p --output-format stream-json --verbose --dangerously-skip-permissions --model m-1
    codex read-only: exec --json --skip-git-repo-check --sandbox read-only -
    codex read-only!: exec --json --skip-git-repo-check --sandbox read-only --model m-1 -
    codex read-write: exec --json --skip-git-repo-check --sandbox workspace-write -
    codex read-write!: exec --json --skip-git-repo-check --sandbox workspace-write --model m-1 -
    codex full: exec --json --skip-git-repo-check --sandbox workspace-write -c sandbox_workspace_write.network_access=true -
    codex full!: exec --json --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox --model m-1 -
    gemini read-only: --output-format stream-json --approval-mode default
    gemini read-only!: --output-format stream-json --approval-mode default --model m-1
    gemini read-write: --output-format stream-json --approval-mode auto_edit
    gemini read-write!: --output-format stream-json --approval-mode auto_edit --model m-1
    gemini full: --output-format stream-json --approval-mode auto_edit --allowed-tools run_shell_command,web_fetch,google_web_search
    gemini full!: --output-format stream-json --approval-mode yolo --model m-1
    agy read-only: --output-format stream-json --print-timeout 24h -p 
    agy read-only!: --output-format stream-json --print-timeout 24h --model m-1 -p 
    agy read-write: --output-format stream-json --print-timeout 24h -p 
    agy read-write!: --output-format stream-json --print-timeout 24h --model m-1 -p 
    agy full: --output-format stream-json --print-timeout 24h -p 
    agy full!: --output-format stream-json --print-timeout 24h --dangerously-skip-permissions --model m-1 -p
    ");
}

/// Its tool is a value of the option for allowed tools, never an argument of its own, which is a prompt.
#[tokio::test]
async fn claude_is_given_the_server_for_the_context() {
    static SERVER: LazyLock<ContextServer> =
        LazyLock::new(|| ContextServer::new("/bin/fabro", ["mcp", "context", "c.json"]));
    let mut lines = Vec::new();
    for (permissions, dangerous) in
        [(Permissions::ReadWrite, false), (Permissions::Full, false), (Permissions::Full, true)]
    {
        let place = Place::new();
        let log = place.0.path().join("args");
        let script = format!("echo \"$@\" > '{}'", log.display());
        let cli = program(&place, CliAgent::Claude, &script).with_dangerous(dangerous);
        place
            .run(&cli, "", |task| {
                task.permissions = permissions;
                task.context_server = Some(&SERVER);
            })
            .await;
        let args = std::fs::read_to_string(log).unwrap();
        lines.push(args.split_once("--verbose ").unwrap().1.to_owned());
    }
    assert_snapshot!(lines.concat(), @r#"
    --permission-mode acceptEdits --disallowedTools Bash,WebFetch,WebSearch --allowedTools mcp__fabro__get_workflow_context --mcp-config {"mcpServers":{"fabro":{"command":"/bin/fabro","args":["mcp","context","c.json"]}}}
    --permission-mode acceptEdits --allowedTools Bash,WebFetch,WebSearch mcp__fabro__get_workflow_context --mcp-config {"mcpServers":{"fabro":{"command":"/bin/fabro","args":["mcp","context","c.json"]}}}
    --dangerously-skip-permissions --allowedTools mcp__fabro__get_workflow_context --mcp-config {"mcpServers":{"fabro":{"command":"/bin/fabro","args":["mcp","context","c.json"]}}}
    "#);
}

#[tokio::test]
async fn a_prompt_of_any_length_comes_over_stdin() {
    let place = Place::new();
    let count = r#"printf '{"type":"result","result":"%s in %s"}' $(wc -c) "$PWD""#;
    let prompt = "ä".repeat(500_000);
    let said = place.run(&program(&place, CliAgent::Claude, count), &prompt, |_| {}).await;
    assert_snapshot!(said, @"answer: 1000000 in DIR/work");
    // One that does not read it.
    let deaf = r#"echo '{"type":"result","result":"done"}'"#;
    let said = place.run(&program(&place, CliAgent::Claude, deaf), &prompt, |_| {}).await;
    assert_snapshot!(said, @"answer: done");
}

#[tokio::test]
async fn errors_have_the_class_that_is_stated() {
    let claude =
        async |line: &str| answer(CliAgent::Claude, &format!("{}\nexit 1", prints(&[line]))).await;
    assert_snapshot!(claude(r#"{"type":"result","subtype":"success","is_error":true,"result":"API Error: 429","api_error_status":429}"#).await, @"error: claude: API Error: 429 (transient_infra, unavailable)");
    assert_snapshot!(claude(r#"{"type":"result","subtype":"error_max_turns","is_error":false}"#).await, @"error: claude: error_max_turns (budget_exhausted)");
    assert_snapshot!(claude(r#"{"type":"result","subtype":"error_during_execution","is_error":true,"errors":["rate limit, it seems"]}"#).await, @"error: claude: rate limit, it seems (deterministic)");
    assert_snapshot!(claude(r#"{"type":"assistant","error":"billing_error","message":{"content":[{"type":"text","text":"Credit balance is too low"}]}}"#).await, @r"
    error: claude: Credit balance is too low (budget_exhausted, unavailable)
    ");
    assert_snapshot!(claude("").await, @"error: claude failed with exit code 1 (deterministic)");
    let codex = async |line: &str| answer(CliAgent::Codex, &prints(&[line])).await;
    assert_snapshot!(codex(r#"{"type":"turn.failed","error":{"message":"slow down","code":"rate_limit_exceeded"}}"#).await, @"error: codex: slow down (transient_infra, unavailable)");
    assert_snapshot!(codex(r#"{"type":"turn.failed","error":{"message":"rate limit"}}"#).await, @"error: codex: rate limit (deterministic, unavailable)");
    assert_snapshot!(codex(r#"{"type":"error","message":"unexpected status 401"}"#).await, @"error: codex: unexpected status 401 (deterministic, unavailable)");
    let gemini = async |script: &str| answer(CliAgent::Gemini, script).await;
    assert_snapshot!(gemini(r#"echo '{"error":{"type":"ApiError","message":"busy","code":503}}'"#).await, @"error: gemini: busy (transient_infra, unavailable)");
    assert_snapshot!(gemini(r#"echo '{"error":{"type":"FatalAuthenticationError","message":"log in","code":41}}' >&2; exit 41"#).await, @"error: gemini: log in (deterministic, unavailable)");
}

#[tokio::test]
async fn programs_that_fail_without_a_message_have_different_errors() {
    assert_snapshot!(answer(CliAgent::Claude, "echo unknown option >&2; exit 2").await, @r"
    error: claude failed with exit code 2; it said:
    unknown option (deterministic)
    ");
    assert_snapshot!(answer(CliAgent::Claude, "kill -9 $$").await, @"error: claude was killed by signal 9 (transient_infra)");
    assert_snapshot!(answer(CliAgent::Codex, "echo hello").await, @r"
    error: codex ended without an answer: check that its version fits; it said:
    hello (deterministic)
    ");
    assert_snapshot!(answer(CliAgent::Gemini, "printf '{\\n{\\n{'").await, @r"
    error: gemini ended without an answer: check that its version fits; it said:
    {
    {
    { (deterministic)
    ");
    let place = Place::new();
    for agent in [CliAgent::Claude, CliAgent::Codex, CliAgent::Gemini] {
        let missing = Cli::new(agent).with_program("no-such-agent");
        let said = place.run(&missing, "", |_| {}).await;
        assert!(said.contains("no-such-agent not found: install"), "{said}");
        assert!(said.ends_with("(deterministic, unavailable)"), "{said}");
    }
    let said = place
        .run(&Cli::new(CliAgent::Claude), "", |task| task.work_dir = "/no/such".as_ref())
        .await;
    assert_snapshot!(said, @"error: working directory /no/such is not a directory: create it, or choose another (deterministic, unavailable)");
}

#[tokio::test]
async fn a_flood_is_survived() {
    let flood = format!(
        "cat > /dev/null\nhead -c 40000000 /dev/zero | tr '\\0' x\necho\nhead -c 3000000 /dev/zero | tr '\\0' '\\n'\n{}",
        prints(&CLAUDE[5..])
    );
    assert_snapshot!(answer(CliAgent::Claude, &flood).await, @r"
    answer: It is 4.
    session: c1
    usage: None in 100 out 5 cached 70 $0.25 in 2 turns
    ");
}

#[tokio::test]
async fn a_canceled_agent_ends_with_all_it_started() {
    let place = Place::new();
    let cli = program(&place, CliAgent::Claude, "sleep 600 & echo $! > pid; sleep 600");
    let cancel = CancellationToken::new();
    let pid = place.work().join("pid");
    let watch = async {
        while std::fs::read_to_string(&pid).unwrap_or_default().trim().is_empty() {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
    };
    let run = place.run(&cli, "", |task| task.cancel = cancel.clone());
    let (said, ()) = tokio::join!(run, watch);
    assert_snapshot!(said, @"error: the agent was canceled (canceled)");
    gone(std::fs::read_to_string(&pid).unwrap().trim()).await;
    assert_snapshot!(place.run(&cli, "", |task| task.cancel = cancel).await, @"error: the agent was canceled (canceled)");
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn what_left_its_group_ends_with_the_agent() {
    let place = Place::new();
    let answer = prints(&[r#"{"type":"result","subtype":"success","result":"4"}"#]);
    let leave = "setsid -f sh -c 'echo $$ > new; mv new pid; exec sleep 600' > /dev/null 2>&1";
    let script = format!("{leave}; until test -e pid; do sleep 0.01; done\n{answer}");
    let cli = program(&place, CliAgent::Claude, &script);
    assert_snapshot!(place.run(&cli, "", |_| {}).await, @"answer: 4");
    gone(std::fs::read_to_string(place.work().join("pid")).unwrap().trim()).await;
}

#[tokio::test]
async fn secrets_are_blanked_out_everywhere() {
    let place = Place::new();
    let script = prints(&[
        r#"{"type":"assistant","message":{"content":[{"type":"text","text":"the key is hunter2hunter2"}]}}"#,
        r#"{"type":"result","subtype":"success","result":"hunter2hunter2 works"}"#,
    ]);
    let cli = program(&place, CliAgent::Claude, &format!("{script}\necho hunter2hunter2 >&2"));
    let redactor = Redactor::new([("KEY", "hunter2hunter2")]);
    let said = place.run(&cli, "", |task| task.redactor = redactor.clone()).await;
    assert_snapshot!(said, @r"
    says the key is [redacted:KEY]
    answer: [redacted:KEY] works
    ");
    assert_snapshot!(place.log("stdout.log"), @r#"
    {"type":"assistant","message":{"content":[{"type":"text","text":"the key is [redacted:KEY]"}]}}
    {"type":"result","subtype":"success","result":"[redacted:KEY] works"}
    "#);
    assert_snapshot!(place.log("stderr.log"), @"[redacted:KEY]");
    let (work, logs) = (place.work(), place.0.path().join("logs"));
    let env = [("PATH".to_owned(), std::env::var("PATH").unwrap())];
    let done = cli.run(Task { env: &env, redactor, ..Task::new("", &work, &logs) }).await.unwrap();
    let unredacted = done.unredacted.as_ref().map(fabro_redact::Unredacted::expose);
    assert_eq!(unredacted, Some("hunter2hunter2 works"));
    assert!(!format!("{done:?}").contains("hunter2"), "{done:?}");
}
