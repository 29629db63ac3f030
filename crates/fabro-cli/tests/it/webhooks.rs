//! Webhooks of `fabro serve`: signed, in order, without loss.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::project::Project;
use crate::served::Served;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

const WORKFLOW: &str = "digraph W { start -> make; make [shape=parallelogram, script=\"echo made\"]
    make -> ask; ask [shape=hexagon, label=\"Ship it?\"]; ask -> exit [label=\"[Y] Yes\"] }";

/// A delivery as an endpoint got it.
#[derive(Clone, Debug)]
struct Delivery {
    headers: Vec<(String, String)>,
    body: String,
}

impl Delivery {
    fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(it, _)| it == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// An endpoint, which answers with the statuses it is given, in order, and then with 204.
struct Endpoint {
    url: String,
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
struct State {
    statuses: Vec<u16>,
    got: Vec<Delivery>,
}

impl Endpoint {
    fn start(statuses: &[u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook?key=in-the-url", listener.local_addr().unwrap());
        let state = State { statuses: statuses.iter().rev().copied().collect(), got: Vec::new() };
        let state = Arc::new((Mutex::new(state), Condvar::new()));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream.unwrap(), &shared));
            }
        });
        Self { url, state }
    }

    /// Waits until so many deliveries were answered, and takes all there are.
    fn wait(&self, count: usize) -> Vec<Delivery> {
        let (state, changed) = &*self.state;
        let is_waiting = |state: &mut State| state.got.len() < count;
        let limit = Duration::from_mins(1);
        let (state, _) =
            changed.wait_timeout_while(state.lock().unwrap(), limit, is_waiting).unwrap();
        assert!(state.got.len() >= count, "{} of {count} deliveries", state.got.len());
        state.got.clone()
    }

    fn count(&self) -> usize {
        self.state.0.lock().unwrap().got.len()
    }
}

fn serve(mut stream: TcpStream, state: &(Mutex<State>, Condvar)) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut headers = Vec::new();
        let mut line = String::new();
        while matches!(reader.read_line(&mut line), Ok(1..)) && line.trim() != "" {
            if let Some((name, value)) = line.trim().split_once(": ") {
                headers.push((name.to_ascii_lowercase(), value.to_owned()));
            }
            line.clear();
        }
        let Some((_, length)) = headers.iter().find(|(name, _)| name == "content-length") else {
            return;
        };
        let mut body = vec![0; length.parse().unwrap()];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let mut held = state.0.lock().unwrap();
        let status = held.statuses.pop().unwrap_or(204);
        held.got.push(Delivery { headers, body: String::from_utf8(body).unwrap() });
        let _ = stream
            .write_all(format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n").as_bytes());
        state.1.notify_all();
    }
}

fn project(hooks: &[(&str, &str)]) -> Project {
    let mut config = "_version = 1\n".to_owned();
    for (url, more) in hooks {
        let _ =
            write!(config, "[[webhooks]]\nurl = \"{url}\"\nsecret_env = \"HOOK_SECRET\"\n{more}\n");
    }
    Project::with(&[(".fabro/workflows/w.fabro", WORKFLOW), (".fabro/config.toml", &config)])
}

fn serve_project(project: &Project) -> Served {
    Served::start_with(project, &[], &[("HOOK_SECRET", SECRET)])
}

fn names(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(|it| it.json()["type"].as_str().unwrap().to_owned()).collect()
}

/// The signature by another implementation of HMAC than ours.
fn signature(delivery: &Delivery) -> String {
    let script = "import base64,hmac,sys\n\
        key=base64.b64decode(sys.argv[1][6:]); text=sys.stdin.buffer.read()\n\
        print('v1,'+base64.b64encode(hmac.new(key,text,'sha256').digest()).decode(),end='')";
    let (id, time) = (delivery.header("webhook-id"), delivery.header("webhook-timestamp"));
    let mut python = std::process::Command::new("python3");
    python.args(["-c", script, SECRET]);
    python.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = python.spawn().unwrap();
    let text = format!("{id}.{time}.{}", delivery.body);
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

#[test]
fn events_are_signed_cloud_events() {
    let endpoint = Endpoint::start(&[]);
    let project = project(&[(&endpoint.url, "")]);
    // What was recorded before the first server with the webhook is not sent.
    assert_eq!(project.exit(&["run", "w"]), 3);
    let server = serve_project(&project);
    let run = server.post("/runs", &json!({"workflow": "w", "auto_approve": true}));
    let got = endpoint.wait(5);
    assert_eq!(
        names(&got),
        [
            "fabro.run.created",
            "fabro.run.started",
            "fabro.gate.asked",
            "fabro.gate.answered",
            "fabro.run.completed"
        ]
    );
    let events = server.get(&format!("/runs/{}/events", run["id"].as_str().unwrap()));
    for delivery in &got {
        let cloud = delivery.json();
        let event = events.as_array().unwrap().iter().find(|event| event["id"] == cloud["id"]);
        assert_eq!(Some(&cloud["data"]), event);
        assert_eq!(cloud["specversion"], "1.0");
        assert_eq!(cloud["source"], format!("/runs/{}", run["id"].as_str().unwrap()));
        assert_eq!(cloud["time"], cloud["data"]["ts"]);
        assert_eq!(delivery.header("webhook-id"), cloud["id"]);
        assert_eq!(delivery.header("content-type"), "application/cloudevents+json");
        assert_eq!(delivery.header("webhook-signature"), signature(delivery));
    }
    assert_eq!(got[2].json()["subject"], "ask");
}

#[test]
fn a_dead_endpoint_stalls_no_other_and_loses_nothing() {
    // No program listens there, and no system gives it away.
    let closed = "127.0.0.1:1";
    let dead = format!("http://{closed}/secret-path");
    let refusing = Endpoint::start(&[500, 429]);
    let other = Endpoint::start(&[]);
    let only = "events = [\"run.completed\", \"run.failed\"]";
    let project =
        project(&[(&dead, ""), (&refusing.url, "events = [\"run.*\"]"), (&other.url, only)]);
    let server = serve_project(&project);
    let started = server.post("/runs", &json!({"workflow": "w", "auto_approve": true}));
    let run = started["id"].as_str().unwrap();
    assert_eq!(project.exit(&["wait", run]), 0);
    assert_eq!(names(&other.wait(1)), ["fabro.run.completed"]);
    let tries = refusing.wait(5);
    let ids: Vec<_> = tries.iter().map(|it| it.header("webhook-id").to_owned()).collect();
    assert_eq!((&ids[0], &ids[0]), (&ids[1], &ids[2]), "the first one is sent until it is taken");
    let first = "fabro.run.created";
    assert_eq!(names(&tries), [first, first, first, "fabro.run.started", "fabro.run.completed"]);
    let shown = format!("http://{closed} cannot be reached");
    let reports = || project.run(&["doctor"]);
    // The first try may not have ended.
    let doctor =
        (0..100).map(|_| reports()).find(|text| text.contains(&shown)).unwrap_or_else(reports);
    assert!(doctor.contains(&shown), "{doctor}");
    assert!(!doctor.contains("secret-path") && !doctor.contains(&refusing.url), "{doctor}");
}

#[test]
fn a_killed_server_loses_no_event() {
    let endpoint = Endpoint::start(&[]);
    let project = project(&[(&endpoint.url, "events = [\"*\"]")]);
    let mut server = serve_project(&project);
    let started = server.post("/runs", &json!({"workflow": "w", "auto_approve": true}));
    let run = started["id"].as_str().unwrap().to_owned();
    for so_far in [1, 4] {
        endpoint.wait(so_far);
        server.child.kill().unwrap();
        server.child.wait().unwrap();
        server = serve_project(&project);
    }
    assert_eq!(project.exit(&["wait", &run]), 0);
    let events = server.get(&format!("/runs/{run}/events"));
    let expect: Vec<_> =
        events.as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap().to_owned()).collect();
    let mut got = endpoint.wait(expect.len());
    while got.last().unwrap().header("webhook-id") != expect.last().unwrap() {
        got = endpoint.wait(got.len() + 1);
    }
    // In order, and what was sent twice has the same id.
    let mut seen = BTreeSet::new();
    let firsts: Vec<_> = got
        .iter()
        .map(|it| it.header("webhook-id").to_owned())
        .filter(|id| seen.insert(id.clone()))
        .collect();
    assert_eq!(firsts, expect);
    // A server that is started again sends at most the last one again.
    let before = endpoint.count();
    drop(server);
    let server = serve_project(&project);
    server.post("/runs", &json!({"workflow": "w"}));
    let next = endpoint.wait(before + 2).split_off(before);
    let repeated = next.iter().take_while(|it| it.header("webhook-id") == expect[expect.len() - 1]);
    let first = &next[repeated.count()];
    assert_eq!(first.json()["type"], "fabro.run.created");
}

#[test]
fn a_webhook_needs_its_secret() {
    let project = project(&[("https://h.example/x", "")]);
    let missing = project.run(&["serve", "--port", "0"]);
    assert!(missing.starts_with("exit 2\n") && missing.contains("`HOOK_SECRET`"), "{missing}");
    let mut command = project.command(&["serve", "--port", "0"]);
    let output = command.env("HOOK_SECRET", "short").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("24 to 64 random bytes in base64") && !text.contains("short"), "{text}");
}
