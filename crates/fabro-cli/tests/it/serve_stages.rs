//! What `fabro serve` reads of one stage: the same as the commands, which read the whole log.

use crate::project::Project;
use crate::served::Served;

/// A loop, a goal gate that keeps the run from its exit, branches, a failed attempt, and a gate that waits.
const WORKFLOW: &str = "digraph W { start -> work; retry_target=work
    work [shape=parallelogram, goal_gate=true, script=\"echo x >>n; echo long >&2; [ $(wc -l <n) -ge 3 ]\", on_failure=continue]
    work -> split [condition=\"outcome=success\"]; work -> exit [condition=\"outcome=fail\"]
    split [shape=component]; split -> a -> join; split -> b -> join; join [shape=tripleoctagon]
    a [shape=parallelogram, script=true]; b [shape=parallelogram, script=true]
    join -> ask; ask [shape=hexagon, label=\"Ship it?\"]
    ask -> exit [label=\"[Y] Yes\"]; ask -> work [label=\"[N] No\"] }";

const STAGES: [&str; 15] = [
    "start",
    "work",
    "work@1",
    "work@2",
    "work@9",
    "split",
    "a",
    "a@1",
    "split@1/a/a@1",
    "join",
    "ask",
    "ask@1",
    "exit",
    "exit@1",
    "none",
];

fn project() -> Project {
    let project = Project::with(&[(".fabro/workflows/w.fabro", WORKFLOW)]);
    assert_eq!(project.exit(&["run", "w"]), 3);
    project
}

/// Compares the reports of all stages.
#[track_caller]
fn check(project: &Project, server: &Served) {
    for stage in STAGES {
        for (path, command) in [("stages", "inspect"), ("explain", "explain")] {
            let response = server.send("GET", &format!("/runs/latest/{path}/{stage}"), "");
            let output = project.output(&[command, "latest", stage, "--json"]);
            if output.status.success() {
                assert_eq!(
                    response.json(),
                    project.json(&[command, "latest", stage, "--json"]),
                    "{path} {stage}"
                );
            } else {
                let printed = String::from_utf8(output.stderr).unwrap();
                let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
                let detail = response.json()["detail"].as_str().unwrap().to_owned();
                assert!(
                    response.status >= 400 && printed.contains(&detail),
                    "{path} {stage}: {detail} / {printed}"
                );
            }
        }
        let logs = server.send("GET", &format!("/runs/latest/logs?stage={stage}"), "");
        let output = project.output(&["logs", "latest", stage, "--json"]);
        if output.status.success() {
            let text = String::from_utf8(logs.body).unwrap();
            assert_eq!(text, String::from_utf8(output.stdout).unwrap(), "logs {stage}");
        } else {
            assert!(matches!(logs.status, 404 | 409), "logs {stage}: {}", logs.problem());
        }
    }
}

#[test]
fn stages_are_reported_as_by_the_commands() {
    let project = project();
    let server = Served::start(&project, &[]);
    check(&project, &server);
    server.post("/runs/latest/answer", &serde_json::json!({"choice": "N"}));
    assert_eq!(project.exit(&["resume", "latest"]), 3);
    check(&project, &server);
    server.post("/runs/latest/rewind", &serde_json::json!({"stage": "work@2"}));
    check(&project, &server);
    assert_eq!(project.exit(&["resume", "latest", "--auto-approve"]), 0);
    check(&project, &server);
}

#[test]
fn events_of_a_stage_are_all_of_its_events() {
    let project = project();
    let server = Served::start(&project, &[]);
    let run = server.get("/runs/latest")["id"].as_str().unwrap().to_owned();
    let events = server.get("/runs/latest/events");
    for (node, visit) in [("start", 1), ("work", 1), ("work", 2), ("a", 1), ("ask", 1), ("exit", 1)]
    {
        let own = events.as_array().unwrap().iter();
        let own = own.filter(|it| it["node_id"] == node && it["visit"] == visit);
        let expect: Vec<String> = own.map(|it| format!("id=\"e{}\"", it["seq"])).collect();
        assert!(!expect.is_empty(), "{node}@{visit}");
        let host = format!("Host: 127.0.0.1:{}", server.port);
        let token = format!("Authorization: Bearer {}", server.tokens[0]);
        let path = format!("GET /runs/{run}/events?stage={node}@{visit} HTTP/1.1");
        let page = String::from_utf8(server.raw(&path, &[&host, &token], "").body).unwrap();
        let shown: Vec<&str> =
            expect.iter().map(String::as_str).filter(|id| page.contains(*id)).collect();
        assert_eq!(shown, expect, "{node}@{visit}");
        assert_eq!(page.matches("<details id=\"e").count(), expect.len(), "{node}@{visit}");
    }
}
