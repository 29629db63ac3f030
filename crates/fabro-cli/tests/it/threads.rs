//! A thread of stages as its providers get it: one beginning for all of them, which they have cached.

use std::fmt::Write as _;

use fabro_fakes::{Block, Request, Response, Server, Vendor, caching, strict};
use insta::assert_snapshot;
use serde_json::Value;

use super::project::Project;

const WORKFLOW: &[u8] = br#"digraph W {
    graph [default_fidelity=full, default_thread=work]
    start [shape=Mdiamond]  exit [shape=Msquare]
    build [label="Build it", prompt="Build it now"]
    review [label="Review it", prompt="Review it now"]
    fix [label="Fix it", prompt="Fix it now"]
    start -> build -> review -> fix -> exit }"#;

/// A file of each stage: two of them change between the stages.
const DOCUMENT: &str = "Keep to the rules of this project.\n";

/// Calls a tool in each stage, and then answers.
fn plays(request: &Request) -> Response {
    let body = request.json();
    let lists = [&body["messages"], &body["input"], &body["contents"]];
    let list = lists.into_iter().find_map(Value::as_array).unwrap();
    let newest = list.last().unwrap().to_string();
    if newest.contains("it now") {
        let call = |id: &str, name: &str, arguments: Value| Block::Call {
            id: format!("{id}{}", list.len()),
            name: name.to_owned(),
            arguments: arguments.to_string(),
        };
        let path = format!("out{}.txt", list.len());
        return Response::turn(vec![
            call("read", "read_file", serde_json::json!({"file_path": "a.txt"})),
            call("write", "write_file", serde_json::json!({"file_path": path, "content": "x"})),
        ]);
    }
    Response::text("Done")
}

/// Runs the thread on one provider; the cached part of each request's input, in percent, and the requests.
async fn run(vendor: Vendor, settings: &str) -> (Project, Vec<u64>, Vec<Request>) {
    let server = Server::answering(caching(strict(vendor, plays))).await.unwrap();
    let settings = settings.replace("ADDRESS", &server.url());
    let rules = DOCUMENT.repeat(100);
    let text = "A line of the file.\n".repeat(300);
    let project = Project::with(&[
        (".fabro/config.toml", &settings),
        ("AGENTS.md", &rules),
        ("a.txt", &text),
    ]);
    let identity = ["-c", "user.name=a", "-c", "user.email=a@b"];
    for args in [&["init", "-q"][..], &["add", "."], &["commit", "-q", "-m", "First"]] {
        let git = std::process::Command::new("git")
            .args(identity)
            .args(args)
            .current_dir(project.path())
            .status();
        assert!(git.unwrap().success());
    }
    project.write("w.fabro", WORKFLOW);
    assert_eq!(project.exit(&["run", "w.fabro", "--quiet"]), 0);
    let mut shares = Vec::new();
    let events = project.output(&["events", "latest", "--json"]).stdout;
    for line in String::from_utf8(events).unwrap().lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let usage = &event["properties"]["usage"];
        if event["event"] == "agent.message" && usage.is_object() {
            let tokens = |key: &str| usage[key].as_u64().unwrap_or_default();
            shares.push(tokens("cached_tokens") * 100 / tokens("input_tokens"));
        }
    }
    assert!(project.run(&["replay", "latest"]).starts_with("exit 0"));
    (project, shares, server.requests())
}

fn own(kind: &str, model: &str) -> String {
    format!(
        "_version = 1\n[run.model]\nname = '{model}'\n[providers.{kind}]\nkind = '{kind}'\n\
         base_url = 'ADDRESS/{}'\n",
        if kind == "gemini" { "v1beta" } else { "v1" }
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_stages_of_a_thread_share_what_their_provider_has_cached() {
    let mut told = String::new();
    for (vendor, kind, model) in [
        (Vendor::Anthropic, "anthropic", "claude-opus-5-5"),
        (Vendor::OpenAi, "openai", "gpt-6.2-sol"),
        (Vendor::OpenAi, "openai", "gpt-5.2"),
        (Vendor::Gemini, "gemini", "gemini-4-argon"),
    ] {
        let (_project, shares, requests) = run(vendor, &own(kind, model)).await;
        assert_eq!(requests.len(), 6, "{model}");
        let _ = writeln!(told, "{model}: {shares:?}");
        let last = requests.last().unwrap().json().to_string();
        for stage in ["Build it", "Review it", "Fix it"] {
            assert!(last.contains(&format!(r#"The stage is \"{stage}\""#)), "{stage}: {last}");
        }
    }
    assert_snapshot!(told, @r"
    claude-opus-5-5: [0, 58, 98, 71, 98, 77]
    gpt-6.2-sol: [0, 58, 97, 71, 97, 77]
    gpt-5.2: [0, 58, 98, 70, 98, 77]
    gemini-4-argon: [0, 56, 96, 70, 97, 77]
    ");
}
