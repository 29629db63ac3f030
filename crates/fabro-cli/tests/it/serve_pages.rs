//! The pages of `fabro serve`: what they show, to whom, and that texts of a run stay texts.

use crate::project::Project;
use crate::served::Served;

const HOSTILE: &str = "<script>alert(1)</script>\u{202e}";

fn project() -> Project {
    let source = format!(
        "digraph {{ goal=\"{HOSTILE}\"; start -> make
        make [shape=parallelogram, label=\"{HOSTILE}\", script=\"echo '<img src=x onerror=alert(2)>'; echo kept >note.txt\"]
        make -> ask; ask [shape=hexagon, label=\"Ship {HOSTILE}?\"]
        ask -> exit [label=\"[Y] Yes {HOSTILE}\"]; ask -> make [label=\"[N] No\"] }}"
    );
    let project = Project::with(&[
        (".fabro/workflows/gate.fabro", &source),
        (
            ".fabro/workflows/bad.fabro",
            "digraph { start -> a; a [shape=parallelogram, script=\"exit 3\"]; a -> exit }",
        ),
    ]);
    assert_eq!(project.exit(&["run", "gate"]), 3);
    assert_eq!(project.exit(&["run", "bad"]), 1);
    project
}

/// The status of a page and its text, as a browser with the token of a role gets it.
fn page(server: &Served, token: Option<&str>, path: &str) -> (u16, String) {
    let host = format!("Host: 127.0.0.1:{}", server.port);
    let token = token.map(|token| format!("Authorization: Bearer {token}"));
    let headers: Vec<&str> = [&*host].into_iter().chain(token.as_deref()).collect();
    let response = server.raw(&format!("GET {path} HTTP/1.1"), &headers, "");
    assert!(response.header("content-security-policy").starts_with("default-src 'none'"));
    (response.status, String::from_utf8(response.body).unwrap())
}

fn run_of(project: &Project, workflow: &str) -> String {
    let rows = project.json(&["ps", "--json"]);
    let row = rows.as_array().unwrap().iter().find(|row| row["workflow"] == workflow);
    row.unwrap()["id"].as_str().unwrap().to_owned()
}

#[test]
fn without_a_login_nothing_of_a_run_is_shown() {
    let project = project();
    let server = Served::start(&project, &[]);
    let run = run_of(&project, "gate");
    let paths = [
        "/".to_owned(),
        format!("/runs/{run}"),
        format!("/runs/{run}/stages/make"),
        "/runs/no".into(),
    ];
    for path in &paths {
        for token in [None, Some("wrong")] {
            let (status, text) = page(&server, token, path);
            assert_eq!(status, 200, "{path}");
            assert!(text.contains("To log in, open the address"), "{path}: {text}");
            assert!(!text.contains(&run) && !text.contains("gate"), "{path}: {text}");
        }
    }
}

#[test]
fn pages_show_runs_and_stages() {
    let project = project();
    let server = Served::start(&project, &[]);
    let admin = Some(&*server.tokens[0]);
    let [run, bad] = ["gate", "bad"].map(|name| run_of(&project, name));
    let check = |path: &str, has: &[&str], has_not: &[&str]| {
        let (status, text) = page(&server, admin, path);
        assert_eq!(status, 200, "{path}: {text}");
        for part in has {
            assert!(text.contains(part), "{path} lacks {part}: {text}");
        }
        for part in has_not {
            assert!(!text.contains(part), "{path} has {part}: {text}");
        }
    };
    let [to_run, to_bad] = [&run, &bad].map(|id| format!("href=\"/runs/{id}\""));
    check(
        "/",
        &[&to_run, &to_bad, "Waiting for an answer", "ask@1", "/api/v1/changes"],
        &["data-post"],
    );
    check("/?status=partially_succeeded&search=", &[&to_bad, "a: "], &[">paused</span>"]);
    check("/?status=&search=GATE", &[&to_run], &[&to_bad]);
    let answer = format!("data-post=\"/api/v1/runs/{run}/answer\"");
    let cancel = format!("data-post=\"/api/v1/runs/{run}/cancel\"");
    let stage = format!("href=\"/runs/{run}/stages/make@1\"");
    let stream = format!("data-stream=\"/api/v1/runs/{run}/events\"");
    let shown =
        [&*answer, &cancel, &stage, &stream, "value=\"Y\"", "<svg", "class=\"timeline\"", "3 of 3"];
    check(&format!("/runs/{run}"), &shown, &["id=\"cost\""]);
    check(&format!("/runs/{run}?search=MAKE"), &["1 of 3"], &[]);
    check(&format!("/runs/{run}?filter=failed"), &["No stage is here", "aria-current"], &[]);
    check(&format!("/runs/{bad}?filter=failed"), &["1 of "], &["data-post", "data-stream"]);
    let stage = format!("/runs/{run}/stages/make@1");
    check(&stage, &["Output", "&#60;img src=x", "rel=\"prev\"", "rel=\"next\""], &["<img"]);
    let (_, style) = page(&server, None, "/assets/page.css");
    assert!(style.contains(".timeline") && style.contains(".runs"), "{style}");
    let (_, script) = page(&server, None, "/assets/page.js");
    assert!(script.contains("EventSource") && !script.contains("innerHTML"), "{script}");
}

#[test]
fn texts_of_a_run_stay_texts() {
    let project = project();
    let server = Served::start(&project, &[]);
    let admin = Some(&*server.tokens[0]);
    let run = run_of(&project, "gate");
    let paths = ["/".to_owned(), format!("/runs/{run}"), format!("/runs/{run}/stages/make@1")];
    for path in &paths {
        let (_, text) = page(&server, admin, path);
        assert!(text.contains("alert(1)"), "{path}: {text}");
        assert!(!text.contains("<script>") && !text.contains('\u{202e}'), "{path}: {text}");
    }
    let search = "/?search=%22%3E%3Cscript%3Ealert(3)%3C%2Fscript%3E";
    let (status, text) = page(&server, admin, search);
    assert_eq!(status, 200);
    assert!(text.contains("alert(3)") && !text.contains("<script>"), "{text}");
}

#[test]
fn roles_see_what_they_may_do() {
    let project = project();
    let roles = ["--role", "read", "--role", "answer", "--role", "admin"];
    let server = Served::start(&project, &roles);
    let path = format!("/runs/{}", run_of(&project, "gate"));
    let forms = server.tokens.iter().map(|token| {
        let (_, text) = page(&server, Some(token), &path);
        assert!(text.contains("ask@1"), "{text}");
        ["/answer\"", "/resume\"", "/cancel\""].map(|it| text.contains(it))
    });
    let forms: Vec<[bool; 3]> = forms.collect();
    assert_eq!(forms, [[false; 3], [true, false, false], [true; 3]]);
}

#[test]
fn what_is_not_there_is_a_page_too() {
    let project = project();
    let server = Served::start(&project, &[]);
    let admin = Some(&*server.tokens[0]);
    let run = run_of(&project, "gate");
    let check = |path: &str, expect: u16, part: &str| {
        let (status, text) = page(&server, admin, path);
        assert_eq!(status, expect, "{path}: {text}");
        assert!(text.starts_with("<!doctype html>") && text.contains(part), "{path}: {text}");
    };
    check("/runs/01ZZZZ", 404, "run not found");
    check("/runs/%3Cscript%3E", 404, "run not found");
    check(&format!("/runs/{run}/stages/none"), 404, "stage not found");
    check(&format!("/runs/{run}?filter=none"), 422, "`filter` is none");
    check(&format!("/runs/{run}?from=x"), 422, "input invalid");
    check("/runs/%ff", 400, "address invalid");
}
