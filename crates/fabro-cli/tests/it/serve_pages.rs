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
pub(super) fn page(server: &Served, token: Option<&str>, path: &str) -> (u16, String) {
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
    let of_run = ["", "/stages/make", "/events", "/logs", "/changes", "/artifacts", "/context"];
    let more = ["/cost", "/workflow", "/rows?from=0&count=1", "/fork?stage=start", "/again"];
    let of_run = of_run.iter().chain(&more).map(|part| format!("/runs/{run}{part}"));
    let others = ["/", "/gates", "/start", "/start/gate", "/runs/no"].map(str::to_owned);
    for path in of_run.chain(others) {
        for token in [None, Some("wrong")] {
            let (status, text) = page(&server, token, &path);
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
    // What it imports sets HTML in two places: blocks of rows, which the server has escaped.
    let (_, list) = page(&server, None, "/assets/list.js");
    let set: Vec<&str> = list.lines().filter(|line| line.contains("innerHTML")).collect();
    assert_eq!(set, ["    block.innerHTML = html;"; 2]);
    for script in [&script, &list] {
        for other in ["outerHTML =", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!script.contains(other), "{other}: {script}");
        }
    }
}

#[test]
fn runs_have_short_ids_and_forks_are_marked() {
    let project = project();
    let run = run_of(&project, "gate");
    assert_eq!(project.exit(&["fork", &run, "make"]), 0);
    let server = Served::start(&project, &[]);
    let rows = |what: &str| {
        let (status, text) = page(&server, Some(&server.tokens[0]), "/");
        assert_eq!(status, 200, "{what}: {text}");
        text.split("<tr>")
            .filter(|row| row.contains("class=\"sign ") && row.contains(">gate</b>"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let check = |what: &str| {
        let [fork, old] = &rows(what)[..] else { panic!("{what}") };
        assert!(
            fork.contains(">fork</span>") && !old.contains(">fork</span>"),
            "{what}: {fork}{old}"
        );
        assert!(old.contains(&format!("title=\"{run}\">{}</code>", &run[..13])), "{old}");
    };
    check("not resumed");
    let (_, text) = page(&server, Some(&server.tokens[0]), "/");
    assert!(
        text.contains("aria-label=\"forked\"")
            && text.contains("forked after make@1, not resumed yet"),
        "{text}"
    );
    // A fork stays one when it was resumed.
    assert_eq!(project.exit(&["resume", "latest"]), 3);
    check("resumed");
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

/// Checks that a page has these texts and not those.
#[track_caller]
pub(super) fn check(server: &Served, path: &str, has: &[&str], has_not: &[&str]) {
    let (status, text) = page(server, server.tokens.last().map(String::as_str), path);
    assert_eq!(status, 200, "{path}: {text}");
    for part in has {
        assert!(text.contains(part), "{path} lacks {part}: {text}");
    }
    for part in has_not {
        assert!(!text.contains(part), "{path} has {part}: {text}");
    }
}

#[test]
fn a_run_has_a_page_for_each_part() {
    let project = project();
    let server = Served::start(&project, &[]);
    let run = run_of(&project, "gate");
    let of = |part: &str| format!("/runs/{run}/{part}");
    check(&server, &of("events"), &["run.created", "gate.asked", "id=\"e1\""], &["<script>alert"]);
    check(&server, &of("events?name=gate."), &["gate.asked"], &["<span>run.created</span>"]);
    check(&server, &of("events?stage=make"), &["stage.completed"], &["<span>gate.asked</span>"]);
    check(
        &server,
        &of("events?at=3"),
        &["<details id=\"e3\" open>"],
        &["<details id=\"e4\" open>"],
    );
    check(&server, &of("logs"), &["&#60;img src=x onerror"], &["<img", "data-logs"]);
    check(&server, &of("logs?stage=make"), &["&#60;img src=x onerror"], &["<img"]);
    check(&server, &of("changes"), &["has no git worktree"], &[]);
    check(&server, &of("artifacts"), &["No stage has left a file"], &[]);
    check(&server, &of("cost"), &["No stage has used a model"], &[]);
    check(&server, &of("context"), &["command.output"], &["<img"]);
    check(&server, &of("context?at=start"), &["After start@1"], &["command.output"]);
    let changed = ["From start@1 to make@1", "command.output", "class=\"added\""];
    check(&server, &of("context?from=start&to=make"), &changed, &[]);
    check(&server, &of("rows?from=1&count=1"), &["id=\"make@1\""], &["start@1", "ask@1", "<html"]);
    let (status, _) = page(&server, Some(&server.tokens[0]), &of("context?from=start"));
    assert_eq!(status, 422);
}

#[test]
fn a_gate_names_failures_and_has_a_button_for_a_free_text_edge() {
    let source = r#"digraph { start -> test; test [shape=parallelogram, script="exit 4"]
        test -> ask [condition="outcome=failed"]; test -> ask; ask [shape=hexagon]
        ask -> exit [label="[Y] Yes"]; ask -> test [label="[N] No", freeform=true] }"#;
    let project = Project::with(&[("flow.fabro", source)]);
    assert_eq!(project.exit(&["run", "flow.fabro", "-q"]), 3);
    let server = Served::start(&project, &[]);
    let no = r#"<button name="choice" value="N">No <span class="dim">→ test</span>"#;
    let failure = r#"test@1</a> <span class="failure">exit code 4</span>"#;
    check(&server, "/gates", &[failure, no, "In your own words"], &[]);
}

#[test]
fn the_inbox_has_the_stage_before_a_gate_and_what_was_answered() {
    let project = project();
    let server = Served::start(&project, &[]);
    let run = run_of(&project, "gate");
    let form = format!("data-post=\"/api/v1/runs/{run}/answer\"");
    check(
        &server,
        "/gates",
        &["ask@1", &form, "class=\"shown\"", "make@1", "onerror=alert(2)"],
        &["<img"],
    );
    server
        .post(&format!("/runs/{run}/answer"), &serde_json::json!({"choice": "Y", "resume": false}));
    // The run is paused: nothing has taken the answer yet.
    for path in ["/gates", &format!("/runs/{run}")] {
        check(&server, path, &["Answered with <b>Y</b>", "(http)"], &[&form]);
    }
    check(&server, "/", &["answered with Y, not resumed yet"], &["Waiting for an answer"]);
}

#[test]
fn a_run_is_started_by_a_form_with_its_inputs() {
    let project = Project::with(&[
        (
            ".fabro/workflows/hello.fabro",
            "digraph { goal=\"Hello\"; start -> a; a [shape=parallelogram, script=\"echo {{ inputs.name }}\"]; a -> exit }",
        ),
        (".fabro/workflows/broken.fabro", "digraph { start -> a; a -> nowhere; a -> exit }"),
        (
            "note.fabro",
            "digraph { start -> a; a [shape=parallelogram, script=\"true\"]; a -> exit }",
        ),
        ("Cargo.toml", "[package]\n"),
        ("src/other.fabro", "digraph { start -> exit }"),
    ]);
    let server = Served::start(&project, &["--role", "read", "--role", "admin"]);
    check(&server, "/start", &["/start/hello", "/start/broken", "1 error", "✓ valid"], &[]);
    let place = format!("{}</code>", project.path().display());
    check(
        &server,
        "/start",
        &["/start/note%2Efabro", "<b>note.fabro</b>", &place],
        &["Cargo.toml"],
    );
    check(&server, "/start/note%2Efabro", &["data-post=\"/api/v1/runs\""], &[]);
    let form = ["name=\"inputs.name\"", "data-post=\"/api/v1/runs\"", "data-key=\"", "Hello"];
    check(&server, "/start/hello", &form, &[]);
    check(&server, "/start/broken", &["not valid", "edge-target", "^^^"], &["data-post"]);
    for path in ["/start", "/start/hello"] {
        let (status, text) = page(&server, Some(&server.tokens[0]), path);
        assert_eq!(status, 403, "{path}: {text}");
    }
    for path in [
        "/start/none",
        "/start/..%2f..%2fetc%2fpasswd",
        "/start/Cargo.toml",
        "/start/src%2Fother.fabro",
    ] {
        let (status, text) = page(&server, Some(&server.tokens[1]), path);
        assert_eq!(status, 404, "{path}: {text}");
    }
}

#[test]
fn a_fork_says_first_what_runs_again_and_a_rewound_run_is_read_again() {
    let project = project();
    let server = Served::start(&project, &[]);
    let run = run_of(&project, "gate");
    check(&server, &format!("/runs/{run}"), &["3 of 3", "id=\"ask@1\""], &[]);
    let said = ["<b>2</b> stages", "id=\"make@1\"", "id=\"ask@1\"", "1 stage stays", "/rewind\""];
    check(&server, &format!("/runs/{run}/fork?stage=start"), &said, &["id=\"start@1\""]);
    server.post(&format!("/runs/{run}/rewind"), &serde_json::json!({"stage": "start"}));
    check(&server, &format!("/runs/{run}"), &["1 of 1", "id=\"start@1\""], &["id=\"ask@1\""]);
    check(&server, &format!("/runs/{run}/events"), &["taken back by a rewind"], &[]);
}

#[test]
fn the_inbox_says_which_run_a_gate_is_of_and_what_failed_before_it() {
    let source = "digraph { start -> early -> split
        early [shape=parallelogram, script=\"echo not here >&2; exit 4\", on_failure=continue]
        split [shape=component]; split -> good; split -> bad; good -> join; bad -> join
        good [shape=parallelogram, script=true]
        bad [shape=parallelogram, script=\"echo no disk >&2; exit 3\"]
        join [shape=tripleoctagon]; join -> ask; ask [shape=hexagon, label=\"Release?\"]
        ask -> exit [label=\"[Y] Yes\"]; ask -> again [label=\"[N] No\"]
        again [shape=parallelogram, script=true]; again -> second
        second [shape=hexagon, label=\"Now?\"]; second -> exit }";
    let project = Project::with(&[(".fabro/workflows/fan.fabro", source)]);
    let goals = ["ship the red one", "ship the blue one"];
    for goal in goals {
        assert_eq!(project.exit(&["run", "fan", "--goal", goal]), 3);
    }
    let rows = project.json(&["ps", "--json"]);
    let runs: Vec<&str> =
        rows.as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    let codes: Vec<String> = runs.iter().map(|id| format!("<code>{id}</code>")).collect();
    let server = Served::start(&project, &[]);
    let told_apart = [goals[0], goals[1], &codes[0], &codes[1], ", started <time"];
    check(&server, "/", &told_apart, &["Results before this gate"]);
    let before = [
        &told_apart[..],
        &["Results before this gate", "split@1/good/good@1", "early@1", "no disk"],
    ]
    .concat();
    check(&server, "/gates", &before, &[]);
    check(&server, &format!("/runs/{}", runs[0]), &["Results before this gate", "no disk"], &[]);
    // What a gate before this one was asked about is not listed again.
    for run in &runs {
        assert_eq!(project.exit(&["answer", "--no-resume", run, "N"]), 0);
        assert_eq!(project.exit(&["resume", run]), 3);
    }
    check(&server, "/gates", &["Now?"], &["no disk", "Release?", "After <a"]);
}

#[test]
fn the_inbox_says_which_run_cannot_be_read() {
    let project = project();
    let [readable, lost] = [(); 2].map(|()| {
        assert_eq!(project.exit(&["run", "gate"]), 3);
        run_of(&project, "gate")
    });
    let db = project.path().join(".fabro/state/fabro.db");
    let sql = "UPDATE events SET entry = '{' WHERE id = (SELECT max(id) - 2 FROM events)";
    rusqlite::Connection::open(db).unwrap().execute_batch(sql).unwrap();
    let server = Served::start(&project, &[]);
    let form = format!("data-post=\"/api/v1/runs/{readable}/answer\"");
    let why = format!("<code>{lost}</code>: its gates cannot be read");
    check(&server, "/gates", &[&form, &why], &["No gate waits"]);
    check(&server, "/", &[&why], &[]);
    let all = server.get("/gates");
    let runs: Vec<&str> =
        all["gates"].as_array().unwrap().iter().filter_map(|it| it["run"].as_str()).collect();
    assert!(runs.contains(&&*readable) && !runs.contains(&&*lost), "{all}");
    let unreadable = &all["unreadable"][0];
    assert_eq!((&unreadable["run"], &unreadable["code"]), (&lost.into(), &"store_error".into()));
}

#[test]
fn options_can_be_read_without_a_form() {
    let project = project();
    let server = Served::start(&project, &["--role", "read", "--role", "admin"]);
    let run = run_of(&project, "gate");
    let (_, text) = page(&server, Some(&server.tokens[0]), "/gates");
    assert!(text.contains("<kbd>N</kbd> No <span class=\"dim\">→ make</span>"), "{text}");
    assert!(!text.contains("data-post"), "{text}");
    // With scripts the buttons have them.
    let answer = format!("<code>fabro answer {run} …</code>");
    check(&server, "/gates", &["class=\"options unscripted\"", "<kbd>Y</kbd>", &answer], &[]);
    check(&server, "/", &["Waiting for an answer"], &["class=\"options"]);
}

#[test]
fn a_run_is_started_again_with_its_goal_inputs_and_options() {
    let source = "digraph { goal=\"Greet {{ inputs.name }}\"; start -> a; a [shape=parallelogram, script=\"echo {{ inputs.name }}\"]; a -> exit }";
    let toml =
        "_version = 1\n[workflow]\ngraph = \"workflow.fabro\"\n[run.inputs]\nname = \"you\"\n";
    let project = Project::with(&[
        (".fabro/workflows/hello/workflow.fabro", source),
        (".fabro/workflows/hello/workflow.toml", toml),
        ("sub/other.fabro", source),
    ]);
    assert_eq!(project.exit(&["run", "hello", "--input", "name=\"<b>\"", "--max-cost", "2.5"]), 0);
    let run = project.json(&["ps", "--json"])[0]["id"].as_str().unwrap().to_owned();
    let server = Served::start(&project, &["--role", "read", "--role", "admin"]);
    let again = format!("/runs/{run}/again");
    check(&server, &format!("/runs/{run}"), &[&format!("href=\"{again}\"")], &[]);
    let (_, text) = page(&server, Some(&server.tokens[0]), &format!("/runs/{run}"));
    assert!(!text.contains("/again\""), "{text}");
    let form =
        ["name=\"workflow\" value=\"hello\"", "value=\"&#60;b&#62;\"", "value=\"2.5\"", &run];
    // The goal is that of the workflow with these inputs: it stays a placeholder.
    check(&server, &again, &form, &["<b>\"", ">Greet"]);
    let (status, _) = page(&server, Some(&server.tokens[0]), &again);
    assert_eq!(status, 403);
    assert_eq!(project.exit(&["run", "hello", "--goal", "Else", "--dry-run"]), 0);
    check(
        &server,
        "/runs/latest/again",
        &[">Else</textarea>", "name=\"dry_run\" checked", "value=\"you\""],
        &[],
    );
    assert_eq!(project.exit(&["run", "sub/other.fabro", "--input", "name=x"]), 0);
    let (status, text) = page(&server, Some(&server.tokens[1]), "/runs/latest/again");
    assert_eq!(status, 404, "{text}");
    assert!(text.contains("is none of the project"), "{text}");
}

#[test]
fn a_report_is_a_download() {
    let project = project();
    let server = Served::start(&project, &["--role", "read"]);
    let run = run_of(&project, "gate");
    let response = server.send("GET", &format!("/runs/{run}/report"), "");
    assert_eq!(response.status, 200);
    assert_eq!(
        response.header("content-disposition"),
        format!("attachment; filename=\"{run}.html\"")
    );
    let printed = project.output(&["report", &run, "-o", "-"]);
    assert!(printed.status.success() && printed.stdout.starts_with(b"<!doctype html>"));
    assert_eq!(response.body.len(), printed.stdout.len());
    assert_eq!(server.send("GET", "/runs/none/report", "").status, 404);
    check_links(&server, &run);
}

#[track_caller]
fn check_links(server: &Served, run: &str) {
    let link = format!("href=\"/api/v1/runs/{run}/report\" download");
    let (_, text) = page(server, Some(&server.tokens[0]), &format!("/runs/{run}"));
    assert!(text.contains(&link), "{text}");
    let lines = format!("href=\"/api/v1/runs/{run}/logs?stage=make\" download=\"{run}.jsonl\"");
    let (_, text) = page(server, Some(&server.tokens[0]), &format!("/runs/{run}/logs?stage=make"));
    assert!(text.contains(&lines), "{text}");
}

#[test]
fn a_run_that_has_succeeded_shows_its_last_answer() {
    let source = "digraph { start -> plan -> test -> exit; plan [prompt=\"Plan\"]; test [shape=parallelogram, script=\"echo tested\"] }";
    let project = Project::with(&[
        (".fabro/workflows/plan.fabro", source),
        (".fabro/config.toml", "_version = 1\n[run.model]\nscript = \"../model.json\"\n"),
        ("model.json", "{\"plan\": [{\"text\": \"First <b>this</b>.\"}]}"),
    ]);
    assert_eq!(project.exit(&["run", "plan"]), 0);
    let server = Served::start(&project, &[]);
    let run = run_of(&project, "plan");
    let answer =
        ["<h2>Answer</h2>", "stages/plan@1\"", "First &#60;b&#62;this", "<title>✓ plan · Fabro"];
    check(&server, &format!("/runs/{run}"), &answer, &["tested"]);
    project.write("model.json", b"{\"plan\": [{\"text\": \"It failed.\"}]}");
    project.write(
        ".fabro/workflows/plan.fabro",
        source.replace("script=\"echo tested\"", "script=\"exit 1\", on_failure=stop").as_bytes(),
    );
    assert_eq!(project.exit(&["run", "plan"]), 1);
    check(&server, "/runs/latest", &["<title>✗ plan · Fabro"], &["<h2>Answer</h2>"]);
}
