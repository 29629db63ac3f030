//! How programs end, the sessions they continue, what they use.

use fabro_external_agents::{Backend as _, Cli, CliAgent, Session, Task};
use fabro_types::Usage;
use insta::assert_snapshot;

use super::Place;
use super::cli::{CLAUDE, CODEX, GEMINI_STREAM, answer, prints, program};

/// An end of each of these programs, and what becomes of it: a pause when the model was not asked.
async fn ends<const N: usize>(cases: [(CliAgent, String, i32); N]) -> String {
    let mut lines = Vec::new();
    for (agent, script, code) in cases {
        let ended = answer(agent, &format!("{script}\nexit {code}")).await;
        let ended =
            ended.lines().filter(|line| !line.starts_with("says") && !line.starts_with("uses"));
        lines.push(format!("{} {code}: {}", agent.name(), ended.collect::<Vec<_>>().join(" / ")));
    }
    lines.join("\n")
}

#[tokio::test]
async fn ends_of_claude_have_classes() {
    let claude = |event: &str| prints(&[event]);
    let worked = r#"{"type":"assistant","message":{"id":"m1","model":"claude-x","content":[{"type":"tool_use","name":"Edit"}],"usage":{"input_tokens":9,"output_tokens":4}},"session_id":"c1"}"#;
    let after = |event: &str| prints(&[CLAUDE[0], worked, event]);
    let too_long = TOO_LONG.join("\n");
    let ends = ends([
        // The type of the error, not its text.
        (
            CliAgent::Claude,
            claude(
                r#"{"type":"result","subtype":"success","is_error":true,"result":"Invalid API key \u00b7 Please run /login","session_id":"c1","total_cost_usd":0,"usage":{"input_tokens":0,"output_tokens":0}}"#,
            ),
            1,
        ),
        (
            CliAgent::Claude,
            claude(
                r#"{"type":"result","subtype":"success","is_error":true,"api_error_status":529,"result":"API Error: 529"}"#,
            ),
            0,
        ),
        (
            CliAgent::Claude,
            claude(
                r#"{"type":"result","subtype":"success","is_error":true,"api_error_status":400,"result":"API Error: 400"}"#,
            ),
            1,
        ),
        (
            CliAgent::Claude,
            after(
                r#"{"type":"result","subtype":"success","is_error":true,"api_error_status":529,"result":"API Error: 529"}"#,
            ),
            1,
        ),
        (
            CliAgent::Claude,
            after(
                r#"{"type":"result","subtype":"success","is_error":true,"api_error_status":404,"result":"API Error: 404"}"#,
            ),
            1,
        ),
        (
            CliAgent::Claude,
            after(
                r#"{"type":"result","subtype":"success","is_error":true,"api_error_status":402,"result":"API Error: 402"}"#,
            ),
            1,
        ),
        (CliAgent::Claude, after("killed"), 1),
        (
            CliAgent::Claude,
            claude(
                r#"{"type":"result","subtype":"error_max_structured_output_retries","is_error":true,"errors":["no"]}"#,
            ),
            1,
        ),
        (
            CliAgent::Claude,
            claude(
                r#"{"type":"result","subtype":"error_during_execution","is_error":true,"errors":["No conversation found with session ID: x"]}"#,
            ),
            1,
        ),
        (CliAgent::Claude, claude("Invalid API key. Please run /login"), 1),
        (CliAgent::Claude, claude(r#"{"type":"result","subtype":"success","result":"ok"}"#), 1),
        (CliAgent::Claude, claude(&too_long), 1),
        (
            CliAgent::Claude,
            claude(r#"{"type":"result","subtype":"success","result":"","stop_reason":"refusal"}"#),
            0,
        ),
    ]);
    assert_snapshot!(ends.await, @r#"
    claude 1: error: claude: Invalid API key · Please run /login (deterministic, unavailable) / usage: None in 0 out 0 cached 0 $0 in 0 turns
    claude 0: error: claude: API Error: 529 (transient_infra, unavailable)
    claude 1: error: claude: API Error: 400 (deterministic)
    claude 1: error: claude: API Error: 529 (transient_infra) / usage: Some("claude-x") in 9 out 4 cached 0 $0 in 1 turns
    claude 1: error: claude: API Error: 404 (transient_infra) / usage: Some("claude-x") in 9 out 4 cached 0 $0 in 1 turns
    claude 1: error: claude: API Error: 402 (budget_exhausted) / usage: Some("claude-x") in 9 out 4 cached 0 $0 in 1 turns
    claude 1: error: claude failed with exit code 1; it said: / killed (deterministic) / usage: Some("claude-x") in 9 out 4 cached 0 $0 in 1 turns
    claude 1: error: claude: no (deterministic)
    claude 1: error: claude: No conversation found with session ID: x (deterministic)
    claude 1: error: claude failed with exit code 1; it said: / Invalid API key. Please run /login (deterministic, unavailable)
    claude 1: answer: ok
    claude 1: error: claude: Prompt is too long (budget_exhausted) / usage: Some("claude-x") in 0 out 0 cached 0 $0 in 0 turns
    claude 0: error: claude: it refused to continue: change the prompt (deterministic)
    "#);
}

/// The program's own message is no work of its model.
const TOO_LONG: [&str; 3] = [
    CLAUDE[0],
    r#"{"type":"assistant","message":{"id":"m","role":"assistant","model":"<synthetic>","content":[{"type":"text","text":"Prompt is too long"}],"usage":{"input_tokens":0,"output_tokens":0}},"error":"invalid_request","session_id":"c1"}"#,
    r#"{"type":"result","subtype":"success","is_error":true,"result":"Prompt is too long","session_id":"c1","total_cost_usd":0,"usage":{"input_tokens":0,"output_tokens":0}}"#,
];

#[tokio::test]
async fn ends_of_codex_have_classes() {
    let ends = ends([
        // The end of the turn counts more than the exit code.
        (CliAgent::Codex, prints(&CODEX), 1),
        (CliAgent::Codex, prints(&CODEX[..6]), 1),
        (
            CliAgent::Codex,
            prints(&[
                r#"{"type":"turn.failed","error":{"message":"You've hit your usage limit. Try again at 4 pm."}}"#,
            ]),
            0,
        ),
        (
            CliAgent::Codex,
            prints(&[
                r#"{"type":"error","message":"unexpected status 401 Unauthorized: x"}"#,
                r#"{"type":"turn.failed","error":{"message":"unexpected status 401 Unauthorized: x"}}"#,
            ]),
            1,
        ),
        (
            CliAgent::Codex,
            prints(&[
                r#"{"type":"turn.failed","error":{"message":"unexpected status 400 Bad Request: x"}}"#,
            ]),
            1,
        ),
        (
            CliAgent::Codex,
            prints(&[
                CODEX[2],
                r#"{"type":"turn.failed","error":{"message":"stream disconnected"}}"#,
            ]),
            1,
        ),
        (
            CliAgent::Codex,
            prints(&[
                CODEX[0],
                r#"{"type":"turn.failed","error":{"message":"Codex ran out of room in the model's context window. Start a new conversation."}}"#,
            ]),
            1,
        ),
    ]);
    assert_snapshot!(ends.await, @r"
    codex 1: answer: It is 4. / session: t1 / usage: None in 100 out 7 cached 60 $0 in 1 turns
    codex 1: error: codex: Reconnecting... 1/5 (transient_infra)
    codex 0: error: codex: You've hit your usage limit. Try again at 4 pm. (budget_exhausted, unavailable)
    codex 1: error: codex: unexpected status 401 Unauthorized: x (deterministic, unavailable)
    codex 1: error: codex: unexpected status 400 Bad Request: x (deterministic)
    codex 1: error: codex: stream disconnected (transient_infra)
    codex 1: error: codex: Codex ran out of room in the model's context window. Start a new conversation. (budget_exhausted)
    ");
}

#[tokio::test]
async fn ends_of_other_programs_have_classes() {
    let ends = ends([
        (CliAgent::Gemini, "echo 'Please set an Auth method' >&2".to_owned(), 41),
        (CliAgent::Gemini, "echo bad settings >&2".to_owned(), 52),
        (CliAgent::Gemini, "echo no input >&2".to_owned(), 42),
        (CliAgent::Gemini, "echo too long >&2".to_owned(), 53),
        (CliAgent::Gemini, prints(&GEMINI_STREAM[..6]), 130),
        (
            CliAgent::Gemini,
            prints(&[
                r#"{"type":"result","status":"error","error":{"type":"FatalTurnLimitedError","message":"too many turns","code":53},"stats":{"total_tokens":9,"input_tokens":5,"output_tokens":2}}"#,
            ]),
            53,
        ),
        (CliAgent::Agy, "true".to_owned(), 0),
        (CliAgent::Agy, agy_error("UNAUTHENTICATED"), 1),
        (CliAgent::Agy, agy_error("PERMISSION_DENIED"), 1),
        (CliAgent::Agy, agy_error("INTERNAL"), 1),
        (CliAgent::Agy, agy_error("INVALID_ARGUMENT"), 1),
        (CliAgent::Claude, "true".to_owned(), 127),
        (CliAgent::Claude, "echo 'segmentation fault' >&2".to_owned(), 139),
    ]);
    assert_snapshot!(ends.await, @r"
    gemini 41: error: gemini failed with exit code 41; it said: / Please set an Auth method (deterministic, unavailable)
    gemini 52: error: gemini failed with exit code 52; it said: / bad settings (deterministic, unavailable)
    gemini 42: error: gemini failed with exit code 42; it said: / no input (deterministic)
    gemini 53: error: gemini failed with exit code 53; it said: / too long (budget_exhausted)
    gemini 130: error: gemini failed with exit code 130; it said: / Loaded cached credentials. (transient_infra)
    gemini 53: error: gemini: too many turns (budget_exhausted) / usage: None in 5 out 4 cached 0 $0 in 1 turns
    agy 0: error: agy ended without an answer: check that its version fits (deterministic)
    agy 1: error: agy: x (deterministic, unavailable)
    agy 1: error: agy: x (deterministic, unavailable)
    agy 1: error: agy: x (transient_infra, unavailable)
    agy 1: error: agy: x (deterministic)
    claude 127: error: claude failed with exit code 127 (deterministic, unavailable)
    claude 139: error: claude failed with exit code 139; it said: / segmentation fault (deterministic)
    ");
}

/// What agy prints where the interface of its model refuses a request with this status.
fn agy_error(status: &str) -> String {
    let error = format!(r#"{{"message":"x","status":"{status}"}}"#);
    prints(&[&format!(r#"{{"event":"result","conversation_id":"c1","error":{error}}}"#)])
}

/// A session for as long as the tests run.
fn session(id: &'static str, used: Usage) -> Session<'static> {
    Session { id, used: Box::leak(Box::new(used)) }
}

#[tokio::test]
async fn a_session_is_continued() {
    let mut lines = Vec::new();
    for agent in CliAgent::ALL {
        let place = Place::new();
        let log = place.0.path().join("args");
        let cli = program(&place, agent, &format!("echo \"$@\" > '{}'; cat", log.display()));
        let session = session("s-1", Usage::default());
        let set = |task: &mut Task<'_>| {
            task.resume = Some(session);
            task.budget_usd = Some(0.25);
        };
        let said = place.run(&cli, "go on", set).await;
        lines.push(std::fs::read_to_string(log).unwrap_or(said + "\n"));
    }
    assert_snapshot!(lines.concat(), @r"
    -p --output-format stream-json --verbose --permission-mode acceptEdits --disallowedTools Bash,WebFetch,WebSearch --max-budget-usd 0.2500 --resume s-1
    exec --json --skip-git-repo-check --sandbox workspace-write resume s-1 -
    --output-format stream-json --approval-mode auto_edit --resume s-1
    error: agy cannot continue its session: it has no option for that (deterministic)
    ");
}

#[tokio::test]
async fn usage_of_a_continued_session_is_counted_once() {
    let used = |input, output, cached| Usage {
        input_tokens: input,
        output_tokens: output,
        cached_tokens: cached,
        ..Usage::default()
    };
    let run = async |before: Usage| {
        let place = Place::new();
        let cli = program(&place, CliAgent::Codex, &prints(&CODEX[5..]));
        let session = session("t1", before);
        let set = |task: &mut Task<'_>| {
            task.model = Some("gpt-x");
            task.resume = Some(session);
        };
        place.run(&cli, "", set).await.lines().last().unwrap().to_owned()
    };
    assert_snapshot!(run(used(90, 5, 60)).await, @r#"usage: Some("gpt-x") in 10 out 2 cached 0 $0 in 1 turns"#);
    // Less than before: it is of this turn.
    assert_snapshot!(run(used(900, 5, 60)).await, @r#"usage: Some("gpt-x") in 100 out 7 cached 60 $0 in 1 turns"#);
    // As much as before: a turn that used nothing does not exist.
    assert_snapshot!(run(used(100, 7, 60)).await, @r#"usage: Some("gpt-x") in 100 out 7 cached 60 $0 in 1 turns"#);
}

#[tokio::test]
async fn a_program_stops_at_its_budget() {
    let place = Place::new();
    let event = r#"{"type":"result","subtype":"error_max_budget_usd","is_error":true,"total_cost_usd":0.26,"usage":{"input_tokens":7,"output_tokens":5}}"#;
    let cli = program(&place, CliAgent::Claude, &format!("{}\nexit 1", prints(&[event])));
    assert_snapshot!(place.run(&cli, "", |task| task.budget_usd = Some(0.25)).await, @r"
    error: claude stopped: its budget is used up (budget_exhausted)
    usage: None in 7 out 5 cached 0 $0.26 in 0 turns
    ");
}

#[tokio::test]
async fn a_successor_takes_the_place_of_a_program_that_is_missing() {
    let place = Place::new();
    program(&place, CliAgent::Agy, r#"printf '{"event":"result","response":"%s"}' "$*""#);
    let path = format!("{}:/usr/bin:/bin", place.0.path().display());
    let env = [("PATH".to_owned(), path)];
    let logs = place.0.path().join("logs");
    let work = place.work();
    let task = Task { env: &env, ..Task::new("What?", &work, &logs) };
    let done = Cli::new(CliAgent::Gemini).run(task).await.unwrap();
    assert_snapshot!(done.text, @"--output-format stream-json --print-timeout 24h -p What?");
    let prompt = "x".repeat(200_000);
    let task = Task { env: &env, ..Task::new(&prompt, &work, &logs) };
    let error = Cli::new(CliAgent::Gemini).run(task).await.unwrap_err();
    assert_snapshot!(error, @"the prompt has 200000 bytes, and agy takes at most 131071: shorten it, or choose a lower fidelity");
}
