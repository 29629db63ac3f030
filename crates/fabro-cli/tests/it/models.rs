use fabro_fakes::{Fault, Response, SearchEngine, Server, search_engine};
use insta::assert_snapshot;

use super::project::{Project, filters};

/// A project with a server of its own and one without a listener.
async fn project(answers: Vec<Response>, more: &str) -> (Project, Server) {
    let server = Server::start(answers).await.unwrap();
    let settings = format!(
        "_version = 1\n[run.model]\nname = 'tiny'\n[providers.gone]\nkind = 'anthropic'\n\
         base_url = 'http://127.0.0.1:1'\n[providers.local]\nkind = 'openai-compatible'\n\
         base_url = '{}/v1'\n{more}[models.tiny]\nprovider = 'local'\ninput_cost = 2.0\noutput_cost = 4.0\n",
        server.url(),
    );
    (Project::with(&[(".fabro/config.toml", &settings)]), server)
}

fn shown(project: &Project, server: &Server, args: &[&str]) -> String {
    project.run(args).replace(&server.address().to_string(), "ADDRESS")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn providers_are_asked_a_question() {
    let sealed = "[providers.sealed]\nkind = 'openai'\napi_key_env = 'NOT_SET'\n";
    let (project, server) = project(vec![Response::text("Earth\n").usage(20, 2, 0)], sealed).await;
    filters().bind(|| {
        assert_snapshot!(shown(&project, &server, &["model", "test"]), @r#"
        exit 1
        ── stdout
        ✗ gone/claude-sonnet-5-5  unreachable: the model's provider cannot be reached: check its address (gone: http://127.0.0.1:1/v1 cannot be reached: Connection refused (os error 111))
            help: check base_url of the provider, and whether it is up
        ✓ local/tiny  "Earth" [T], 20 tokens in, 2 out, $0.000048
        ✗ sealed  settings: provider `sealed`: the environment variable `NOT_SET` is not set: set it, or correct its name in the settings
            help: set the variable, or remove it from the settings
        "#);
        let doctor = shown(&project, &server, &["doctor"]);
        let shown: Vec<&str> = doctor.lines().filter(|line| line.contains("provider") || line.contains("model")).collect();
        assert_snapshot!(shown.join("\n"), @r"
        ✓ provider gone (anthropic) at http://127.0.0.1:1; `fabro model test` asks it
        ✓ provider local (openai-compatible) at http://ADDRESS/v1; `fabro model test` asks it
        ✗ provider sealed (openai): provider `sealed`: the environment variable `NOT_SET` is not set: set it, or correct its name in the settings
        ✓ model    tiny
        ");
    });
    assert_eq!(server.requests()[0].json()["model"], "tiny");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_model_is_asked_by_its_name() {
    let refused = Response::error(Fault::RateLimit).retry_after("7");
    let (project, server) =
        project(vec![Response::text("Earth").usage(20, 2, 0), refused], "").await;
    let name = "local/other";
    let asked = project.run(&["model", "test", name]);
    assert!(asked.contains("price not known"), "{asked}");
    let output = project.output(&["model", "test", name, "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let tried: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_snapshot!(tried[0]["error"], @r#"{"kind":"rate_limit","message":"the model's rate limit is reached: try again later (local: 429 rate_limit_exceeded: Rate limit reached for requests)","fix":"try again in 7.0s"}"#);
    assert_eq!((&tried[0]["provider"], &tried[0]["model"]), (&"local".into(), &"other".into()));
    // It asks once, without retries: the user wants to see the error.
    assert_eq!(server.requests().len(), 2);
    let none = Project::new();
    assert_snapshot!(none.run(&["model", "test"]), @r"
    exit 1
    ── stderr
    error: no provider is configured
      help: set a key such as ANTHROPIC_API_KEY, a base URL such as OPENAI_BASE_URL, or name one in .fabro/config.toml
    ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_applied_compaction_has_a_price() {
    let call = |turn: u32| {
        let arguments = serde_json::json!({"file_path": "a.txt", "offset": turn});
        Response::calls([("read_file", arguments)]).usage(100, 30, 0)
    };
    let mut answers: Vec<Response> = (1..=8).map(call).collect();
    answers.push(Response::error(Fault::Overloaded));
    answers.push(Response::text("A summary.").usage(1_000_000, 10, 0));
    let (project, _server) = project(answers, "").await;
    let text = "words and words\n".repeat(60);
    project.write("a.txt", text.as_bytes());
    let workflow = "digraph { graph [max_tokens_total=1000]; start -> work -> exit\n\
        work [prompt=\"Read a.txt\", fidelity=full] }";
    project.write("a.fabro", workflow.as_bytes());
    assert_eq!(project.exit(&["run", "a.fabro"]), 3);
    // The overloaded server is asked again, as by a stage.
    let args = ["compact", "latest", "--keep-recent", "2", "--apply"];
    let shown = project.run(&args);
    assert!(shown.contains("messages became one"), "{shown}");
    assert!(shown.contains("A summary."), "{shown}");
    let spent = &project.json(&["inspect", "--json"])["usage"]["cost_usd"];
    assert!(spent.as_f64().unwrap() > 2.0, "{spent}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_limit_that_cannot_count_a_model_is_told_before_the_run() {
    let answers = (0..4).map(|_| Response::text("ok").usage(20, 2, 0)).collect();
    let (project, _server) = project(answers, "[models.claude_next]\nprovider = 'local'\n").await;
    project.write(
        "w.fabro",
        br#"digraph W { graph [max_cost=1]
            start [shape=Mdiamond]  exit [shape=Msquare]
            a [prompt="x", shape=tab]
            b [prompt="x", shape=tab, fallbacks="local/gpt-5.4-pro-own"]
            c [prompt="x", shape=tab, provider=local, model=claude_next]
            d [prompt="x", shape=tab, speed=fast]
            start -> a -> b -> c -> d -> exit }"#,
    );
    let output = project.output(&["run", "w.fabro", "--quiet"]);
    let told = String::from_utf8_lossy(&output.stderr);
    let told: Vec<&str> = told.lines().filter(|line| line.contains("price")).collect();
    assert_snapshot!(told.join("\n"), @r#"
    warning: the price of `claude_next` (`c`) is not known, so the spending limit does not count it: set input_cost and output_cost in [models."claude_next"], in US dollars for a million tokens
    warning: the price of `gpt-5.4-pro-own` (`b`) is not known, so the spending limit does not count it: set input_cost and output_cost in [models."gpt-5.4-pro-own"], in US dollars for a million tokens
    warning: the price of `tiny` with speed `fast` (`d`) is not known, so the spending limit does not count it: set fast_factor in [models."tiny"], or leave `speed` out
    "#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_model_that_is_shut_down_is_told_before_the_run() {
    let answers = (0..4).map(|_| Response::text("ok").usage(20, 2, 0)).collect();
    let more = "[models.old]\nprovider = 'local'\nshutdown_date = 2026-01-31\n\
                [models.new]\nprovider = 'local'\nshutdown_date = 2999-01-31\n";
    let (project, _server) = project(answers, more).await;
    project.write(
        "w.fabro",
        br#"digraph W {
            start [shape=Mdiamond]  exit [shape=Msquare]
            a [prompt="x", shape=tab, model=old]
            b [prompt="x", shape=tab, fallbacks="local/old"]
            c [prompt="x", shape=tab, model=new]
            start -> a -> b -> c -> exit }"#,
    );
    let output = project.output(&["run", "w.fabro", "--quiet"]);
    assert_snapshot!(String::from_utf8_lossy(&output.stderr), @"warning: `old` (`a`, `b`): its provider shuts it down on 2026-01-31; after that it may be refused, or another model may answer at its own price: choose another one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn costs_are_added_up_by_stage_model_and_kind() {
    let answers = [(1_000, 100, 400), (2_000, 50, 0), (10, 10, 0)];
    let answers =
        answers.map(|(input, output, cached)| Response::text("ok").usage(input, output, cached));
    let unpriced = "[models.unheard_of]\nprovider = 'local'\n";
    let (project, _server) = project(answers.into(), unpriced).await;
    project.write(
        "w.fabro",
        br#"digraph W {
            start [shape=Mdiamond]  exit [shape=Msquare]
            a [prompt="x", shape=tab]
            b [prompt="x", shape=tab]
            c [prompt="x", shape=tab, provider=local, model=unheard_of]
            start -> a -> b -> c -> exit }"#,
    );
    assert_eq!(project.exit(&["run", "w.fabro", "--quiet"]), 0);
    assert_snapshot!(project.run(&["cost"]), @"
    exit 0
    ── stdout
    $0.0066 + unknown  3 turns
    1 request without a known price: set input_cost and output_cost in [models.NAME] for unheard_of

    kind         tokens     cost
    input          2610  $0.0052
    cached read     400  $0.0008
    output          160  $0.0006

    model       turns  failed    in  cached  written  out  reasoning     cost
    tiny            2       0  2.6k     400        0  150          0  $0.0066
    unheard_of      1       0    10       0        0   10          0  unknown

    stage  turns  failed    in  cached  written  out  reasoning     cost
    a@1        1       0   600     400        0  100          0  $0.0024
    b@1        1       0  2.0k       0        0   50          0  $0.0042
    c@1        1       0    10       0        0   10          0  unknown
    ");
    let json = project.json(&["cost", "latest", "latest", "--json"]);
    assert_snapshot!(json["total"], @r#"
    {"cost_usd":0.0066,"unpriced_requests":1,"turns":3,"failed_requests":0,"kinds":{"input":{"tokens":2610,"cost_usd":0.0052},"cached":{"tokens":400,"cost_usd":0.0008},"cache_write":{"tokens":0,"cost_usd":0.0},"output":{"tokens":160,"cost_usd":0.0006},"reasoning":{"tokens":0,"cost_usd":0.0}},"other_usd":0.0}
    "#);
    assert_eq!(json["models"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn agents_search_the_web_with_the_engine_of_the_settings() {
    let server = Server::answering(search_engine(SearchEngine::Brave, "brave-key-7731"));
    let server = server.await.unwrap();
    let url = server.url() + "/res/v1/web/search";
    let settings = format!(
        "_version = 1\n[run.agent]\npermissions = 'full'\n[run.agent.web_search]\nurl = '{url}'\n\
         api_key_env = 'SEARCH_KEY'\nmax_results = 1\n"
    );
    let script = r#"{"a": [{"tool_calls": [{"name": "web_search", "arguments": {"query": "graphs"}}]},
        {"text": "done"}]}"#;
    let workflow =
        r#"digraph { start; exit; a [prompt="x", tools="web_search"]; start -> a -> exit }"#;
    let files = [(".fabro/config.toml", &*settings), ("s.json", script), ("w.fabro", workflow)];
    let project = Project::with(&files);
    let args = ["run", "w.fabro", "--model-script", "s.json", "--quiet"];
    let missing = project.output(&args);
    assert_eq!(missing.status.code(), Some(2));
    assert_snapshot!(String::from_utf8_lossy(&missing.stderr), @r"
    error: the key of [run.agent.web_search] is missing: SEARCH_KEY is not set
      help: set the variable, or remove [run.agent.web_search] from the settings
    ");
    let output = project.command(&args).env("SEARCH_KEY", "brave-key-7731").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let events = project.output(&["events", "latest", "--json"]).stdout;
    let events = String::from_utf8(events).unwrap();
    let found = events.lines().find(|line| line.contains("one.example")).unwrap();
    assert!(!found.contains("two.example"), "{found}");
    assert!(!events.contains("brave-key-7731"));
}
