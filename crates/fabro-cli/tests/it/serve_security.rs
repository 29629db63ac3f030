//! What `fabro serve` refuses.

#[cfg(target_os = "linux")]
use std::io::{Read as _, Write as _};

use serde_json::json;

use crate::project::Project;
use crate::served::Served;

const ALL: [&str; 6] = ["--role", "read", "--role", "answer", "--role", "admin"];

fn project() -> Project {
    let source = "digraph { start -> ask; ask [shape=hexagon]; ask -> exit [label=\"[Y] Yes\"] }";
    let project = Project::with(&[
        (".fabro/workflows/gate.fabro", source),
        ("sub/outside.fabro", source),
        ("secret.txt", "secret"),
    ]);
    assert_eq!(project.exit(&["run", "gate"]), 3);
    project
}

#[test]
fn other_hosts_and_origins_are_refused() {
    let project = project();
    let server = Served::start(&project, &["--allow-host", "build.example"]);
    let token = format!("Authorization: Bearer {}", server.tokens[0]);
    let get = |headers: &[&str]| {
        let all: Vec<&str> = headers.iter().copied().chain([&*token]).collect();
        let response = server.raw("GET /api/v1/runs HTTP/1.1", &all, "");
        if response.status == 200 { "200".to_owned() } else { response.problem() }
    };
    let own = format!("Host: 127.0.0.1:{}", server.port);
    assert_eq!(get(&[&own]), "200");
    assert_eq!(get(&["Host: build.example"]), "200");
    // DNS rebinding: the name of the attacker's page now means this machine.
    assert_eq!(get(&["Host: evil.example"]), "421 host_not_allowed");
    assert_eq!(get(&["Host: 127.0.0.1.evil.example"]), "421 host_not_allowed");
    assert_eq!(get(&[]), "421 host_not_allowed");
    assert_eq!(get(&[&own, "Host: evil.example"]), "421 host_not_allowed");
    assert_eq!(get(&[&own, "Origin: http://evil.example"]), "403 cross_site");
    assert_eq!(get(&[&own, "Origin: null"]), "403 cross_site");
    assert_eq!(get(&[&own, "Sec-Fetch-Site: cross-site"]), "403 cross_site");
    assert_eq!(get(&[&own, "Sec-Fetch-Site: same-site"]), "403 cross_site");
}

#[test]
fn tokens_have_roles() {
    let project = project();
    let server = Served::start(&project, &ALL);
    let host = format!("Host: 127.0.0.1:{}", server.port);
    let send = |token: &str, method: &str, path: &str, body: &str| {
        let token = format!("Authorization: Bearer {token}");
        let headers = [&*host, &*token, "Content-Type: application/json"];
        let response = server.raw(&format!("{method} /api/v1{path} HTTP/1.1"), &headers, body);
        if response.status < 300 { response.status.to_string() } else { response.problem() }
    };
    let [read, answer, admin] = &server.tokens[..] else { panic!("three roles") };
    for wrong in ["", "x", &read[1..], &format!("{read}x")] {
        assert_eq!(send(wrong, "GET", "/runs", ""), "401 token_invalid");
        assert_eq!(send(wrong, "POST", "/runs/latest/answer", "{}"), "401 token_invalid");
    }
    assert_eq!(send(read, "GET", "/runs/latest", ""), "200");
    assert_eq!(send(read, "POST", "/runs/latest/answer", "{}"), "403 role_insufficient");
    assert_eq!(send(answer, "POST", "/runs/latest/cancel", "{}"), "403 role_insufficient");
    assert_eq!(send(answer, "POST", "/runs", "{}"), "403 role_insufficient");
    assert_eq!(
        send(answer, "POST", "/runs/latest/answer", r#"{"choice": "y", "resume": false}"#),
        "200"
    );
    assert_eq!(send(admin, "POST", "/runs/latest/cancel", ""), "200");
    // A server for readers takes no token of another role.
    let second = Served::start(&project, &["--role", "read"]);
    let host = format!("Host: 127.0.0.1:{}", second.port);
    let token = format!("Authorization: Bearer {admin}");
    let refused = second.raw("GET /api/v1/runs HTTP/1.1", &[&host, &token], "");
    assert_eq!(refused.problem(), "401 token_invalid");
}

#[test]
fn a_cookie_is_no_ticket_for_other_sites() {
    let project = project();
    let server = Served::start(&project, &[]);
    let host = format!("Host: localhost:{}", server.port);
    let origin = format!("Origin: http://localhost:{}", server.port);
    let json = "Content-Type: application/json";
    let login = json!({"token": server.tokens[0]}).to_string();
    let response = server.raw("POST /api/v1/session HTTP/1.1", &[&host, json, &origin], &login);
    assert_eq!(response.json(), json!({"role": "admin"}));
    let cookie = response.header("set-cookie");
    assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
    let cookie = format!("Cookie: {}", cookie.split(';').next().unwrap());
    let wrong = json!({"token": "x"}).to_string();
    let response = server.raw("POST /api/v1/session HTTP/1.1", &[&host, json], &wrong);
    assert_eq!(
        (response.problem().as_str(), response.header("set-cookie")),
        ("401 token_invalid", "")
    );

    let cancel = |headers: &[&str], body: &str| {
        let all: Vec<&str> = headers.iter().copied().chain([&*host, &*cookie]).collect();
        let response = server.raw("POST /api/v1/runs/latest/cancel HTTP/1.1", &all, body);
        if response.status == 200 { "200".to_owned() } else { response.problem() }
    };
    assert_eq!(cancel(&[json], "{}"), "403 cross_site");
    assert_eq!(cancel(&[json, "Origin: http://evil.example"], "{}"), "403 cross_site");
    assert_eq!(cancel(&[json, "Sec-Fetch-Site: cross-site"], "{}"), "403 cross_site");
    // A form can be sent without asking, but not as JSON.
    assert_eq!(cancel(&["Content-Type: text/plain", &origin], "{}"), "415 media_type");
    assert_eq!(cancel(&[json, &origin, "Sec-Fetch-Site: same-origin"], "{}"), "200");
}

#[test]
fn nothing_but_runs_and_workflows_of_the_project_is_read() {
    let project = project();
    let server = Served::start(&project, &[]);
    for path in [
        "/runs/..%2f..%2fsecret.txt",
        "/runs/latest/artifacts/..%2f..%2f..%2fsecret.txt",
        "/runs/latest/artifacts/../../secret.txt",
        "/../../secret.txt",
        "/runs/latest/stages/..%2f..%2fsecret.txt",
    ] {
        let response = server.send("GET", path, "");
        assert_eq!(response.status, 404, "{path}");
        assert!(!String::from_utf8_lossy(&response.body).contains("\"secret\""), "{path}");
    }
    for name in
        ["sub/outside.fabro", "./sub/outside.fabro", "outside.fabro", "../x", "/etc/passwd", ""]
    {
        let body = json!({"workflow": name}).to_string();
        let refused = server.send("POST", "/runs", &body);
        assert_eq!(refused.problem(), "404 workflow_not_found", "{name}");
    }
}

#[test]
fn responses_allow_no_foreign_content() {
    let project = project();
    let server = Served::start(&project, &[]);
    let host = format!("Host: 127.0.0.1:{}", server.port);
    for (head, headers) in [
        ("GET / HTTP/1.1", vec![&*host]),
        ("GET /none HTTP/1.1", vec![&*host]),
        ("GET /api/v1/runs HTTP/1.1", vec!["Host: evil.example"]),
    ] {
        let response = server.raw(head, &headers, "");
        let policy = response.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; "), "{head}: {policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(response.header("x-content-type-options"), "nosniff");
        assert_eq!(response.header("cache-control"), "no-store");
    }
}

#[test]
fn requests_are_bounded() {
    let project = project();
    let server = Served::start(&project, &[]);
    let long = format!("X-Long: {}", "x".repeat(20_000));
    assert_eq!(server.send_with("GET", "/runs", &[&long], "").status, 431);
    let many: Vec<String> = (0..100).map(|at| format!("X-{at}: 1")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(server.send_with("GET", "/runs", &many, "").status, 431);
    let large = json!({"choice": "x".repeat(10 << 20)}).to_string();
    let refused = server.send("POST", "/runs/latest/answer", &large);
    // The connection may be closed before all of the body was sent, and the answer be lost.
    assert!(matches!(refused.status, 0 | 413), "{refused:?}");
    assert_eq!(server.get("/runs/latest")["status"], "paused");
}

#[cfg(target_os = "linux")]
#[test]
fn connections_that_say_nothing_do_not_exhaust_the_server() {
    let project = project();
    let server = Served::start(&project, &[]);
    let mut idle: Vec<_> = (0..1_000).map(|_| server.connect()).collect();
    for stream in &mut idle {
        // The head never ends.
        let _ = stream.write_all(b"GET /api/v1/runs HTTP/1.1\r\nHost: local");
    }
    // Served once the first of them were dropped.
    assert_eq!(server.send("GET", "/runs", "").status, 200);
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", server.child.id())).unwrap().count();
    assert!(descriptors < 560, "{descriptors}");
    let mut answer = Vec::new();
    let _ = idle[0].read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("200 OK"));
}
