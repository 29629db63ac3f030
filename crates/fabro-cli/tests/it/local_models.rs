//! Servers of one's own, which may have any models: what is asked where no model is named, and how their errors read.

use fabro_fakes::{Response, Server};

use super::project::Project;

const AGENT: &str = "digraph W { start -> a -> exit; a [prompt=x] }";
const PROMPT: &str = "digraph W { start -> a -> exit; a [prompt=x, shape=tab] }";

/// A server that lists these models and answers like this.
async fn server(models: &[&str], answers: Vec<Response>) -> Server {
    let items: Vec<_> = models.iter().map(|id| serde_json::json!({"id": id})).collect();
    let list = serde_json::json!({"object": "list", "data": items}).to_string();
    let mut script = vec![Response::bytes(200, "application/json", list).at("/v1/models")];
    script.extend(answers);
    Server::start(script).await.unwrap()
}

/// A project whose only provider is the server.
fn project(server: &Server, more: &str, workflow: &str) -> Project {
    let settings = format!(
        "_version = 1\n[providers.local]\nkind = 'openai-compatible'\nbase_url = '{}'\n{more}",
        server.base_url()
    );
    Project::with(&[(".fabro/config.toml", &settings), ("w.fabro", workflow)])
}

fn shown(project: &Project, server: &Server, args: &[&str]) -> String {
    project.run(args).replace(&server.address().to_string(), "ADDRESS")
}

/// What Ollama sends as an error.
fn ollama(status: u16, message: &str) -> Response {
    let body = serde_json::json!({"error": {"message": message, "type": "api_error"}});
    Response::bytes(status, "application/json", body.to_string())
}

/// The models that were asked for.
fn asked(server: &Server) -> Vec<String> {
    let requests = server.take_requests().into_iter().filter(|it| it.method == "POST");
    requests.map(|it| it.json()["model"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_only_model_of_a_server_is_taken() {
    let server = server(&["qwen3:8b"], vec![Response::text("ok").usage(20, 2, 0)]).await;
    let project = project(&server, "", PROMPT);
    let run = shown(&project, &server, &["run", "w.fabro"]);
    assert!(run.starts_with("exit 0"), "{run}");
    let header = "models: local/qwen3:8b (http://ADDRESS/v1, the only one that it lists)";
    assert!(run.lines().any(|line| line == header), "{run}");
    assert_eq!(asked(&server), ["qwen3:8b"]);
    let test = project.run(&["model", "test"]);
    assert!(test.contains("✓ local/qwen3:8b"), "{test}");
    let doctor = project.run(&["doctor"]);
    assert!(
        doctor.contains(
            "✓ model    the only one that local lists, if it lists one; `fabro model test` tests it"
        ),
        "{doctor}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn several_models_are_listed_and_none_is_asked() {
    let server = server(&["qwen3:8b", "llama3.2"], vec![Response::text("ok")]).await;
    let project = project(&server, "", PROMPT);
    let run = project.run(&["run", "w.fabro"]);
    assert!(run.starts_with("exit 2"), "{run}");
    let fix = "set [run.model] name = \"…\" in .fabro/config.toml or pass --model; the server lists: \
               qwen3:8b, llama3.2";
    assert!(run.contains("`a`: no model is named for provider `local`"), "{run}");
    assert!(run.contains(fix), "{run}");
    let test = project.run(&["model", "test"]);
    assert!(test.starts_with("exit 1") && test.contains(fix), "{test}");
    assert!(asked(&server).is_empty());
    // Each of the ways that it names.
    assert_eq!(project.exit(&["run", "w.fabro", "--model", "llama3.2"]), 0);
    let settings = project.read(".fabro/config.toml") + "[run.model]\nname = 'local/qwen3:8b'\n";
    project.write(".fabro/config.toml", settings.as_bytes());
    assert_eq!(project.exit(&["run", "w.fabro"]), 0);
    assert_eq!(asked(&server), ["llama3.2", "qwen3:8b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_without_a_list_is_not_asked() {
    let none = Response::bytes(404, "text/plain", "404 page not found").at("/v1/models");
    let server = Server::start(vec![none, Response::text("ok")]).await.unwrap();
    let project = project(&server, "", PROMPT);
    let run = project.run(&["run", "w.fabro"]);
    assert!(run.starts_with("exit 2"), "{run}");
    assert!(run.contains("error[unavailable]: `a`: no model is named for provider `local`, and its list of models cannot be read: "), "{run}");
    assert!(run.contains("error: w.fabro cannot run: its stages need what is missing"), "{run}");
    // A handled failure is a warning, as for a missing key.
    project.write(
        "w.fabro",
        b"digraph W { start -> a -> exit; a [prompt=x, shape=tab, fallbacks=\"local/m\"] }",
    );
    assert_eq!(project.exit(&["run", "w.fabro"]), 0);
    assert_eq!(asked(&server), ["m"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_unknown_model_pauses_the_run_and_the_remedies_work() {
    let missing = ollama(404, "model \"qwen\" not found, try pulling it first");
    let answers = vec![missing.clone(), missing, Response::text("ok"), Response::text("ok")];
    let server = server(&["a", "b"], answers).await;
    let project = project(&server, "[run.model]\nname = 'qwen'\n", PROMPT);
    let run = shown(&project, &server, &["run", "w.fabro", "--quiet"]);
    assert!(run.starts_with("exit 3"), "{run}");
    assert!(run.contains("does not know the model `qwen` or the address"), "{run}");
    assert!(!run.contains("overloaded"), "{run}");
    assert_eq!(asked(&server), ["qwen"]);
    assert_eq!(project.exit(&["run", "w.fabro", "--quiet"]), 3);
    assert_eq!(asked(&server), ["qwen"]);
    let settings = project.read(".fabro/config.toml").replace("'qwen'", "'local/a'");
    project.write(".fabro/config.toml", settings.as_bytes());
    assert_eq!(project.exit(&["resume", "latest", "--refresh-providers", "--quiet"]), 0);
    let first = project.json(&["ps", "--json"])[1]["id"].as_str().unwrap().to_owned();
    assert_eq!(project.exit(&["resume", &first, "--model", "b", "--quiet"]), 0);
    assert_eq!(asked(&server), ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_test_of_an_unknown_model_shows_what_there_is() {
    let missing = ollama(404, "model 'qwen3' not found");
    let server = server(&["llama3.2", "qwen3:8b"], vec![missing.clone(), missing]).await;
    let project = project(&server, "[run.model]\nname = 'local/qwen3'\n", PROMPT);
    let test = project.run(&["model", "test"]);
    assert!(test.contains("✗ local/qwen3  unknown_model:"), "{test}");
    let fix = "help: did you mean `local/qwen3:8b`? the server lists: llama3.2, qwen3:8b";
    assert!(test.contains(fix), "{test}");
    let other = project.run(&["model", "test", "local/nothing"]);
    assert!(other.contains("help: the server lists: llama3.2, qwen3:8b"), "{other}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_model_without_tools_is_named() {
    let error = ollama(400, "registry.ollama.ai/library/gemma:2b does not support tools");
    let server = server(&["gemma:2b"], vec![error]).await;
    let project = project(&server, "", AGENT);
    let run = project.run(&["run", "w.fabro", "--quiet"]);
    assert!(run.starts_with("exit 1"), "{run}");
    let what = "the model `gemma:2b` has no tools, which agents need: use another model, or a `prompt` node \
                (shape=tab)";
    assert!(run.contains(what), "{run}");
    assert_eq!(asked(&server), ["gemma:2b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_model_of_a_vendor_that_is_not_configured() {
    let server = server(&["tiny"], vec![Response::text("ok")]).await;
    let project = project(&server, "", PROMPT);
    let named = project.run(&["run", "w.fabro", "--model", "openai/gpt-5.2"]);
    assert!(named.starts_with("exit 2"), "{named}");
    let refused = "provider `openai` is not configured: set OPENAI_API_KEY, or [providers.openai]; \
                   where `local` has a model of this name: `local/openai/gpt-5.2`";
    assert!(named.contains(refused), "{named}");
    let test = project.run(&["model", "test", "openai/gpt-5.2"]);
    assert!(test.contains(refused), "{test}");
    assert!(asked(&server).is_empty());
    let bare = project.run(&["run", "w.fabro", "--model", "gpt-5.2"]);
    assert!(bare.starts_with("exit 0"), "{bare}");
    let warning = "`gpt-5.2` is a model of openai, which is not configured; asking local";
    assert!(bare.contains(warning), "{bare}");
    assert_eq!(asked(&server), ["gpt-5.2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_provider_that_is_nearly_named() {
    let server = server(&["tiny"], vec![Response::text("ok")]).await;
    let project = project(&server, "", PROMPT);
    let run = project.run(&["run", "w.fabro", "--model", "lokal/tiny"]);
    assert!(run.starts_with("exit 2"), "{run}");
    let refused = "`local` does not list the model `lokal/tiny`, and neither the catalog nor";
    assert!(run.contains(refused) && run.contains("did you mean `local/tiny`?"), "{run}");
    let other = project.run(&["run", "w.fabro", "--model", "qwen/tiny"]);
    assert!(other.starts_with("exit 2") && other.contains("the server lists: tiny"), "{other}");
    assert!(asked(&server).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn unknown_models_are_refused_before_the_first_stage() {
    const TYPO: &str =
        "digraph W { start -> a -> exit; a [prompt=x, shape=tab, model=\"claude-sonet-4-5\"] }";
    let server = server(&["tiny"], vec![Response::text("ok")]).await;
    let refused = project(&server, "", TYPO);
    let run = refused.run(&["run", "w.fabro"]);
    assert!(run.starts_with("exit 2"), "{run}");
    let message =
        "`a`: `local` does not list the model `claude-sonet-4-5`, and neither the catalog nor";
    assert!(run.contains(message), "{run}");
    assert!(run.contains("did you mean `claude-sonnet-4-5`? the server lists: tiny"), "{run}");
    let checked = refused.run(&["validate", "w.fabro"]);
    assert!(
        checked.starts_with("exit 0") && checked.contains("warning[unknown-model]"),
        "{checked}"
    );
    assert!(asked(&server).is_empty());
    // The settings name the model.
    for settings in [
        "[models.'claude-sonet-4-5']\ncontext_window = 8192\n",
        "[run.model]\nname = 'claude-sonet-4-5'\n",
    ] {
        assert_eq!(project(&server, settings, TYPO).exit(&["run", "w.fabro"]), 0, "{settings}");
    }
    assert_eq!(asked(&server), ["claude-sonet-4-5", "claude-sonet-4-5"]);
    // A server without a list takes only models of the settings.
    let none = Response::bytes(404, "text/plain", "404 page not found").at("/v1/models");
    let unlisted = Server::start(vec![none, Response::text("ok")]).await.unwrap();
    let run = project(&unlisted, "", TYPO).run(&["run", "w.fabro"]);
    assert!(run.starts_with("exit 2") && run.contains("does not list its models"), "{run}");
    assert!(run.contains("describe the model as [models.\"claude-sonet-4-5\"]"), "{run}");
    // An unreachable server does not refuse the name: the run pauses at the stage.
    drop(unlisted);
    let gone = Project::with(&[
        (
            ".fabro/config.toml",
            "_version = 1\n[providers.local]\nkind = 'openai-compatible'\nbase_url = 'http://127.0.0.1:1/v1'\n",
        ),
        ("w.fabro", TYPO),
    ]);
    let run = gone.run(&["run", "w.fabro", "--quiet"]);
    assert!(run.starts_with("exit 3"), "{run}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn local_servers_bypass_the_proxy() {
    let server = server(&["tiny"], vec![Response::text("ok")]).await;
    let project = project(&server, "", PROMPT);
    // No server listens on this port.
    let with_proxy = |variable: &str| {
        let mut command = project.command(&["run", "w.fabro", "--quiet"]);
        command.env(variable, "http://user:secret@127.0.0.1:9").output().unwrap()
    };
    for variable in ["HTTP_PROXY", "http_proxy", "ALL_PROXY"] {
        let run = with_proxy(variable);
        assert!(run.status.success(), "{variable}: {}", String::from_utf8_lossy(&run.stderr));
    }
    let settings = "_version = 1\n[providers.far]\nkind = 'openai-compatible'\nbase_url = 'http://models.invalid/v1'\n[run.model]\nname = 'far/tiny'\n";
    project.write(".fabro/config.toml", settings.as_bytes());
    let far = with_proxy("http_proxy");
    let text = String::from_utf8_lossy(&far.stderr);
    assert_eq!(far.status.code(), Some(3), "{text}");
    let named = "http://models.invalid/v1 cannot be reached through the proxy 127.0.0.1:9:";
    assert!(text.contains(named) && !text.contains("secret"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_script_answers_always_until_a_model_is_asked_for() {
    let server = server(&["tiny"], vec![Response::text("Hi")]).await;
    let project = project(&server, "", PROMPT);
    assert_eq!(project.exit(&["init"]), 0);
    let run = project.run(&["run", "hello"]);
    assert!(run.starts_with("exit 0"), "{run}");
    assert!(run.contains("\nmodels: scripted (model.json)\n"), "{run}");
    assert!(asked(&server).is_empty());
    for args in [["--live"].as_slice(), &["--model", "local/tiny"]] {
        let args = [&["run", "hello"], args].concat();
        let run = project.run(&args);
        assert!(run.contains("\nmodels: local/tiny (http://"), "{run}");
        assert_eq!(asked(&server), ["tiny"]);
    }
    let alone = Project::new();
    assert_eq!(alone.exit(&["init"]), 0);
    let live = alone.run(&["run", "hello", "--live"]);
    assert!(live.starts_with("exit 2") && live.contains("no model is configured"), "{live}");
    let unasked = alone.run(&["run", "hello", "--model", "gpt-x"]);
    let told = "\nmodels: scripted (model.json); gpt-x is not asked: no provider is configured\n";
    assert!(unasked.starts_with("exit 0") && unasked.contains(told), "{unasked}");
    // Without `script_when` a provider comes first.
    let toml = project.read(".fabro/workflows/hello/workflow.toml");
    let toml = toml.replace("script_when = \"always\"\n", "");
    project.write(".fabro/workflows/hello/workflow.toml", toml.as_bytes());
    let run = project.run(&["run", "hello"]);
    assert!(run.contains("\nmodels: local/tiny (http://"), "{run}");
}

#[test]
fn the_key_of_a_model_is_named_by_its_variable() {
    let project = Project::with(&[("w.fabro", PROMPT)]);
    let mut command = project.command(&["run", "w.fabro"]);
    command
        .env("ANTHROPIC_API_KEY", "sk-of-a-test")
        .env("ANTHROPIC_BASE_URL", "http://127.0.0.1:1");
    let text = String::from_utf8(command.output().unwrap().stderr).unwrap();
    let header =
        "models: anthropic/claude-sonnet-5-5 (http://127.0.0.1:1/v1, key from ANTHROPIC_API_KEY)";
    assert!(text.contains(header), "{text}");
    assert!(!text.contains("sk-of-a-test"), "{text}");
}

#[test]
fn warnings_of_settings_are_apart_from_the_error() {
    let project = Project::with(&[(".fabro/config.toml", "[providers.local]\nkind = 'x'\n")]);
    let text = project.run(&["model", "test"]);
    let lines: Vec<&str> = text.lines().skip(2).collect();
    let [warning, error] = lines.as_slice() else { panic!("{text}") };
    assert!(warning.starts_with("DIR/.fabro/config.toml:1:1: warning: "), "{text}");
    assert!(error.starts_with("error: DIR/.fabro/config.toml:2:"), "{text}");
    assert!(text.starts_with("exit 2\n") && !error.contains("warning"), "{text}");
}
