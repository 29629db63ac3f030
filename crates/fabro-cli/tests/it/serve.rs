//! `fabro serve`: the API gives what the commands give, and runs do not need the server.

use std::io::{BufRead as _, BufReader, Write as _};
use std::sync::Barrier;

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::project::Project;
use crate::served::Served;

const GATE: &str = "digraph { start -> make; make [shape=parallelogram, script=\"echo made\"]
    make -> ask; ask [shape=hexagon, label=\"Ship it?\"]
    ask -> exit [label=\"[Y] Yes\"]; ask -> make [label=\"[N] No\"] }";

const WAITS: &str = "digraph { start -> make
    make [shape=parallelogram, script=\"echo $$ >begun; until [ -e go ]; do sleep 0.02; done\"]
    make -> exit }";

fn project() -> Project {
    let project = Project::with(&[
        (".fabro/workflows/gate.fabro", GATE),
        (".fabro/workflows/waits.fabro", WAITS),
    ]);
    assert_eq!(project.exit(&["run", "gate"]), 3);
    project
}

/// Waits until a file is there.
fn until(project: &Project, name: &str) {
    while project.read_or_default(name).is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn reports_are_those_of_the_command_line() {
    let project = project();
    let server = Served::start(&project, &[]);
    let check = |path: &str, args: &[&str]| {
        let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
        assert_eq!(server.get(path), project.json(&args), "{path}");
    };
    check("/runs/latest", &["inspect", "latest"]);
    check("/runs/latest/stages/make@1", &["inspect", "latest", "make@1"]);
    check("/runs/latest/explain/make", &["explain", "latest", "make"]);
    check("/runs/latest/context", &["context", "latest"]);
    check("/runs/latest/context?at=start", &["context", "latest", "--at", "start"]);
    let changes = ["context", "latest", "--diff", "start", "make"];
    check("/runs/latest/context?from=start&to=make", &changes);
    check("/runs/latest/artifacts", &["artifact", "list", "latest"]);
    assert_eq!(server.get("/runs")["runs"], project.json(&["ps", "--json"]));
    let lines = |args: &[&str]| {
        let output = project.output(args);
        String::from_utf8(output.stdout).unwrap()
    };
    let logs = server.send("GET", "/runs/latest/logs", "");
    assert_eq!(String::from_utf8(logs.body).unwrap(), lines(&["logs", "latest", "--json"]));
    let events = lines(&["events", "latest", "--json"]);
    let events: Vec<Value> =
        events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(server.get("/runs/latest/events"), json!(events));
    assert_eq!(server.get("/runs/latest/events?after=2&limit=1"), json!(events[2..3]));
    assert_eq!(server.get("/workflows"), json!(["gate", "waits"]));
    let gates = server.get("/gates");
    let gate = &gates["gates"][0];
    let shown = (&gate["name"], &gate["question"], &gate["status"], &gate["workflow"]);
    assert_snapshot!(json!(shown), @r#"["ask@1","Ship it?","paused","gate"]"#);
}

#[test]
fn lists_have_pages_and_filters() {
    let project = project();
    assert_eq!(project.exit(&["run", "gate", "--auto-approve", "--goal", "Second"]), 0);
    assert_eq!(project.exit(&["run", "gate", "--dry-run"]), 0);
    let server = Served::start(&project, &[]);
    let ids = |page: &Value| -> Vec<String> {
        let runs = page["runs"].as_array().unwrap().iter();
        runs.map(|run| run["id"].as_str().unwrap().to_owned()).collect()
    };
    let all = ids(&server.get("/runs"));
    assert_eq!(all.len(), 3);
    let first = server.get("/runs?limit=2");
    assert_eq!(ids(&first), all[..2]);
    let next = first["next"].as_str().unwrap();
    let second = server.get(&format!("/runs?limit=2&cursor={next}"));
    assert_eq!((ids(&second), &second["next"]), (all[2..].to_vec(), &Value::Null));
    assert_eq!(ids(&server.get("/runs?status=paused")), all[2..]);
    assert_eq!(ids(&server.get("/runs?search=sECOND")), all[1..2]);
    assert_eq!(ids(&server.get("/runs?workflow=other")), [""; 0]);
    let refused = |path: &str| server.send("GET", path, "").problem();
    assert_eq!(refused("/runs?limit=0"), "422 input_invalid");
    assert_eq!(refused("/runs?cursor=x"), "422 input_invalid");
    assert_eq!(refused("/runs?page=2"), "422 input_invalid");
}

#[test]
fn runs_are_changed_as_by_the_command_line() {
    let project = project();
    let server = Served::start(&project, &[]);
    let first = server.get("/runs/latest")["id"].as_str().unwrap().to_owned();
    let run = |rest: &str| format!("/runs/{first}{rest}");
    let refused = |path: &str, body: &Value| server.send("POST", path, &body.to_string()).problem();
    assert_eq!(refused(&run("/answer"), &json!({"choice": "maybe"})), "422 choice_invalid");
    let gate = json!({"choice": "y", "gate": "other"});
    assert_eq!(refused(&run("/answer"), &gate), "404 gate_not_found");
    assert_eq!(refused(&run("/steer"), &json!({"text": "Hello"})), "409 no_agent");
    assert_eq!(refused("/runs/0000/cancel", &json!({})), "404 run_not_found");
    assert_eq!(refused(&run("/rewind"), &json!({"stage": "none"})), "404 stage_not_found");
    assert_eq!(refused(&run("/rewind"), &json!({"stages": "make"})), "422 input_invalid");

    let changes = json!({"stage": "make", "set": {"k": 1}, "inputs": {"style": "casual"}});
    let fork = server.post(&run("/fork"), &changes);
    let unread = fork["warnings"][0].as_str().unwrap();
    assert!(unread.contains("style"), "{unread}");
    assert_snapshot!(fork["stage"], @r#""make@1""#);
    let copy = fork["id"].as_str().unwrap();
    assert_eq!(server.get(&format!("/runs/{copy}/context"))["k"], 1);
    assert_eq!(server.get(&format!("/runs/{copy}"))["inputs"], json!({"style": "casual"}));
    let canceled = server.post(&format!("/runs/{copy}/cancel"), &json!({"reason": "enough"}));
    assert_eq!(canceled, json!({"id": copy, "ended": true}));
    assert_eq!(refused(&format!("/runs/{copy}/cancel"), &json!({})), "409 run_ended");
    server.post(&format!("/runs/{copy}/rewind"), &json!({"stage": "make"}));

    let old = server.send("GET", &run(""), "").header("etag").to_owned();
    assert_eq!(server.post(&run("/rewind"), &json!({"stage": "make"}))["id"], *first);
    let stale = format!("If-Match: {old}");
    for change in ["/cancel", "/rewind", "/resume", "/fork", "/steer", "/answer"] {
        let body = match change {
            "/steer" => json!({"text": "Hello"}),
            "/answer" => json!({"choice": "y"}),
            _ => json!({}),
        };
        let refused = server.send_with("POST", &run(change), &[&stale], &body.to_string());
        assert_eq!(refused.problem(), "412 run_changed", "{change}");
    }
    let long = format!("Idempotency-Key: {}", "x".repeat(256));
    let invalid = server.send_with("POST", &run("/resume"), &[&stale, &long], "{}");
    assert_eq!(invalid.problem(), "422 input_invalid", "the form of a request comes first");
    let free = json!({"max_cost": 0}).to_string();
    let unlimited = server.send_with("POST", &run("/resume"), &[&stale], &free);
    assert_eq!(unlimited.problem(), "422 input_invalid");
    let weak = server.send_with("POST", &run("/cancel"), &["If-Match: W/\"9\""], "{}");
    assert_eq!(weak.problem(), "412 run_changed");
    server.post(&run("/resume"), &json!({}));
    assert_eq!(project.exit(&["wait", &first]), 3);
    let answered = server.post(&run("/answer"), &json!({"choice": "y", "resume": false}));
    assert_eq!(answered, json!({"id": *first, "answered": "ask@1", "driven": false}));
    server.post(&run("/resume"), &json!({}));
    assert_eq!(project.exit(&["wait", &first]), 0);
    assert_eq!(refused(&run("/resume"), &json!({})), "409 run_ended");
    let why = server.get(&run("/explain/ask"));
    assert_eq!(why["answer"]["source"], "http");
}

#[test]
fn a_run_needs_no_server() {
    let project = project();
    let mut server = Served::start(&project, &[]);
    let started = server.post("/runs", &json!({"workflow": "waits", "goal": "Wait"}));
    let run = started["id"].as_str().unwrap().to_owned();
    until(&project, "begun");
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let token = server.tokens[0].clone();
    // The next one knows the same tokens, and the run.
    let server = Served::start(&project, &[]);
    assert_eq!(server.tokens, [token]);
    assert_eq!(server.get(&format!("/runs/{run}"))["status"], "running");
    let mut events = server.follow(&run, 0);
    assert_eq!(events.next().unwrap().1["event"], "run.created");
    project.write("go", b"now");
    let last = events.find(|(_, event)| event["event"] == "run.completed").unwrap();
    assert_eq!(project.exit(&["wait", &run]), 0);
    // What follows an event is sent to who has seen it.
    let again = server.follow(&run, last.0 - 1).next().unwrap();
    assert_eq!(again, last);
}

#[test]
fn the_logs_of_a_silent_stage_are_followed() {
    let project = project();
    let server = Served::start(&project, &[]);
    let started = server.post("/runs", &json!({"workflow": "waits", "goal": "Wait"}));
    let run = started["id"].as_str().unwrap().to_owned();
    until(&project, "begun");
    let mut stream = server.connect();
    let token = &server.tokens[0];
    let text = format!(
        "GET /api/v1/runs/{run}/logs?follow=true HTTP/1.1\r\nHost: localhost\r\n\
         Authorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(text.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    // The stage ends only after this line has come.
    assert_eq!(lines.next().unwrap(), "HTTP/1.1 200 OK");
    project.write("go", b"now");
    assert_eq!(project.exit(&["wait", &run]), 0);
    // The response ends with the run: a read that waits for a minute fails.
    lines.for_each(drop);
}

#[test]
fn a_repeated_request_starts_one_run() {
    let project = project();
    project.write("go", b"now");
    let server = Served::start(&project, &[]);
    let start = |key: &str, body: &Value| {
        let key = format!("Idempotency-Key: {key}");
        server.send_with("POST", "/runs", &[&key], &body.to_string())
    };
    let request = json!({"workflow": "waits"});
    let first = start("one", &request);
    assert_eq!(first.status, 201, "{first:?}");
    let second = start("one", &request);
    assert_eq!((second.status, second.header("idempotency-replayed")), (200, "true"));
    assert_eq!(second.json(), first.json());
    assert_eq!(start("one", &json!({"workflow": "gate"})).problem(), "422 idempotency_key_reused");
    assert_eq!(start("", &request).problem(), "422 input_invalid");
    assert_ne!(start("two", &request).json()["id"], first.json()["id"]);
    // A refused request does not use its key up.
    assert_eq!(start("three", &json!({"workflow": "none"})).problem(), "404 workflow_not_found");
    assert_eq!(start("three", &request).status, 201);
}

#[test]
fn one_of_two_answers_counts() {
    let project = project();
    let server = Served::start(&project, &[]);
    let together = Barrier::new(2);
    let answer = |choice: &str| {
        together.wait();
        let body = json!({"choice": choice}).to_string();
        let response = server.send("POST", "/runs/latest/answer", &body);
        if response.status == 200 { "200".to_owned() } else { response.problem() }
    };
    let mut results = std::thread::scope(|scope| {
        let both = ["y", "n"].map(|choice| scope.spawn(move || answer(choice)));
        both.map(|thread| thread.join().unwrap())
    });
    results.sort();
    assert_eq!(results, ["200", "409 gate_answered"]);
}

/// The results of requests that are sent at the same time, sorted.
fn race(server: &Served, requests: [(String, Value); 2]) -> [String; 2] {
    let tag = server.send("GET", "/runs/latest", "").header("etag").to_owned();
    let tag = format!("If-Match: {tag}");
    let together = Barrier::new(2);
    let send = |(path, body): (String, Value)| {
        together.wait();
        let response = server.send_with("POST", &path, &[&tag], &body.to_string());
        if response.status == 200 { "200".to_owned() } else { response.problem() }
    };
    let mut results = std::thread::scope(|scope| {
        let both = requests.map(|request| scope.spawn(|| send(request)));
        both.map(|thread| thread.join().unwrap())
    });
    results.sort();
    results
}

#[test]
fn one_of_two_changes_to_the_same_state_counts() {
    let project = project();
    let server = Served::start(&project, &[]);
    let id = server.get("/runs/latest")["id"].as_str().unwrap().to_owned();
    let events = || server.get(&format!("/runs/{id}/events")).as_array().unwrap().len();
    for attempt in 0..10 {
        let before = events();
        let rewind = |mark: &str| {
            (format!("/runs/{id}/rewind"), json!({"stage": "make", "set": {"by": mark}}))
        };
        let [first, second] = race(&server, [rewind("a"), rewind("b")]);
        assert_eq!(first, "200", "{attempt}: {second}");
        assert!(["409 run_driven", "412 run_changed"].contains(&&*second), "{attempt}: {second}");
        assert_eq!(events(), before + 1, "{attempt}");
    }
    server.post(&format!("/runs/{id}/resume"), &json!({}));
    assert_eq!(project.exit(&["wait", &id]), 3);
    let answer =
        |choice: &str| (format!("/runs/{id}/answer"), json!({"choice": choice, "resume": false}));
    assert_eq!(race(&server, [answer("y"), answer("n")]), ["200", "409 gate_answered"]);
    let resume = || (format!("/runs/{id}/resume"), json!({}));
    let [first, second] = race(&server, [resume(), resume()]);
    assert_eq!(first, "200", "{second}");
    assert!(["409 run_driven", "409 run_ended", "412 run_changed"].contains(&&*second), "{second}");
}

#[test]
fn artifacts_are_downloads() {
    let source = "digraph { start -> make; make -> exit
        make [shape=parallelogram, script=\"mkdir -p out; echo '<script>' >'out/a \\\"b.html'\"] }";
    let toml = "_version = 1\nworkflow.graph = 'w.fabro'\n[run.artifacts]\ninclude = ['out/**']\n";
    let project = Project::with(&[("w.fabro", source), ("run.toml", toml)]);
    assert_eq!(project.run(&["run", "run.toml", "-q"]), "exit 0\n");
    let server = Served::start(&project, &[]);
    let rows = server.get("/runs/latest/artifacts");
    let hash = rows[0]["sha256"].as_str().unwrap();
    let file = server.send("GET", &format!("/runs/latest/artifacts/{hash}"), "");
    assert_eq!(file.body, b"<script>\n");
    assert_eq!(file.header("content-type"), "application/octet-stream");
    assert_eq!(file.header("content-disposition"), "attachment; filename*=UTF-8''a%20%22b%2Ehtml");
    assert_eq!(file.header("x-content-type-options"), "nosniff");
    let other = format!("/runs/latest/artifacts/{}", "0".repeat(64));
    assert_eq!(server.send("GET", &other, "").problem(), "404 artifact_not_found");
}
