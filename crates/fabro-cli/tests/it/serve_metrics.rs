//! `/healthz` and `/metrics` of `fabro serve`.

use crate::project::Project;
use crate::served::Served;

const SCRIPT: &str =
    r#"{"*": [{"text": "ok", "usage": {"input_tokens": 20, "output_tokens": 3}}]}"#;

fn project() -> Project {
    let work = r#"digraph { start -> a -> b -> exit; a [script="exit 1", on_failure=continue]; b [prompt=x, shape=tab] }"#;
    let gate = r#"digraph { start -> ask; ask [shape=hexagon]; ask -> exit [label="[Y] Yes"] }"#;
    let settings = "_version = 1\n[run.model]\nscript = '../turns.json'\nscript_when = 'always'\n";
    Project::with(&[
        (".fabro/workflows/work.fabro", work),
        (".fabro/workflows/gate.fabro", gate),
        (".fabro/config.toml", settings),
        ("turns.json", SCRIPT),
    ])
}

/// The values of these metrics.
fn metrics(server: &Served, names: &[&str]) -> String {
    let token = format!("Authorization: Bearer {}", server.tokens[0]);
    let host = format!("Host: 127.0.0.1:{}", server.port);
    let response = server.raw("GET /metrics HTTP/1.1", &[&host, &token], "");
    assert_eq!(response.status, 200, "{response:?}");
    assert_eq!(response.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    let text = String::from_utf8(response.body).unwrap();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
        let family = name.split('{').next().unwrap();
        assert!(text.contains(&format!("# TYPE {family} ")), "{line}");
    }
    let shown = text.lines().filter(|line| names.iter().any(|name| line.starts_with(name)));
    shown.filter(|line| !line.ends_with(" 0")).collect::<Vec<_>>().join("\n")
}

#[test]
fn metrics_count_runs_gates_stages_and_tokens() {
    const ALL: [&str; 5] = ["fabro_runs", "fabro_gates_w", "fabro_st", "fabro_to", "fabro_co"];
    let project = project();
    assert_eq!(project.exit(&["run", "work", "--quiet"]), 0);
    let server = Served::start(&project, &[]);
    // Events from before the start of the server are not counted.
    let before = metrics(&server, &ALL);
    assert!(before.contains("fabro_runs{status=\"succeeded\"} 1"), "{before}");
    assert!(!before.contains("_total"), "{before}");
    assert_eq!(project.exit(&["run", "work", "--quiet"]), 0);
    assert_eq!(project.exit(&["run", "gate", "--quiet"]), 3);
    let after = metrics(&server, &ALL);
    for line in [
        "fabro_runs{status=\"succeeded\"} 2",
        "fabro_runs{status=\"paused\"} 1",
        "fabro_gates_waiting 1",
        "fabro_stages_total{status=\"failed\"} 1",
        "fabro_tokens_total{kind=\"input\"} 20",
        "fabro_tokens_total{kind=\"output\"} 3",
    ] {
        assert!(after.contains(line), "{line}: {after}");
    }
    let age = metrics(&server, &["fabro_gates_oldest_age_seconds"]);
    assert!(age.starts_with("fabro_gates_oldest_age_seconds "), "{age}");
}

#[test]
fn probes_need_no_token_and_metrics_do() {
    let project = project();
    let server = Served::start(&project, &[]);
    let probe = server.raw("GET /healthz HTTP/1.1", &["Host: 10.1.2.3:8080"], "");
    assert_eq!((probe.status, &*probe.body), (200, &b"ok\n"[..]));
    let host = format!("Host: 127.0.0.1:{}", server.port);
    let get = |headers: &[&str]| server.raw("GET /metrics HTTP/1.1", headers, "");
    assert_eq!(get(&[&host]).problem(), "401 token_invalid");
    let token = format!("Authorization: Bearer {}", server.tokens[0]);
    assert_eq!(get(&[&host, &token]).status, 200);
    assert_eq!(get(&["Host: evil.example", &token]).problem(), "421 host_not_allowed");
}
