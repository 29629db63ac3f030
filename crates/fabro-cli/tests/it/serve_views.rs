//! Views of `fabro serve` that lead from one thing to another: lines of logs, lines of the workflow, filtered lists of
//! runs, what a running stage writes; and runs that are removed.

use serde_json::json;

use crate::project::Project;
use crate::serve_mcp::client as stdio_client;
use crate::serve_pages::{check, page};
use crate::served::Served;

const LOUD: &str = "digraph { start -> one -> two -> exit
    one [shape=parallelogram, script=\"seq -f 'No. %g' 1 900; echo '<b>Error</b>' >&2\"]
    two [shape=parallelogram, script=\"echo error again\"] }";

#[test]
fn a_line_of_a_log_is_found_by_its_text_and_has_an_address() {
    let project = Project::with(&[(".fabro/workflows/loud.fabro", LOUD)]);
    assert_eq!(project.exit(&["run", "loud"]), 0);
    let server = Served::start(&project, &[]);
    let run = project.json(&["ps", "--json"])[0]["id"].as_str().unwrap().to_owned();
    let of = |query: &str| format!("/runs/{run}/logs{query}");
    let address = |line: &str, stream: &str| {
        format!("href=\"/runs/{run}/logs?at=one%401&#38;stream={stream}&#38;line={line}#line\"")
    };
    // The last 500 lines: the first of them has those before it.
    check(&server, &of(""), &["No. 900</span>", &address("900", "stdout")], &["No. 400</span>"]);
    check(&server, &of(""), &["rel=\"prev\""], &["rel=\"next\"", "id=\"line\""]);
    // The search is of all lines, and marks what is searched for.
    let found =
        ["2 lines with this text", "&#60;b&#62;<mark>Error</mark>", "<mark>error</mark> again"];
    check(&server, &of("?search=ERROR"), &found, &["No. 1", "<b>E"]);
    check(
        &server,
        &of("?search=No.+7&stage=one"),
        &["111 lines with", "<mark>No. 7</mark>7</span>"],
        &[],
    );
    check(&server, &of("?search=nothing"), &["No line has this text", ">Last lines</a>"], &[]);
    // A line with those around it.
    let around =
        ["<div class=\"line stdout again\" id=\"line\">", ">No. 300</span>", ">No. 550</span>"];
    check(
        &server,
        &of("?at=one%401&stream=stdout&line=300"),
        &around,
        &[">No. 551</span>", "id=\"line\"><a class=\"at\" href=\"#"],
    );
    let beside = ["rel=\"prev\"", "rel=\"next\"", ">No. 50</span>"];
    check(&server, &of("?at=one%401&stream=stdout&line=300"), &beside, &[">No. 49</span>"]);
    // A stage that does not come is not waited for.
    let followed = server.send("GET", &format!("/runs/{run}/logs?stage=none&follow=true"), "");
    assert_eq!(followed.problem(), "404 stage_not_found");
    for missing in
        ["?at=one%401&stream=stdout&line=901", "?at=none&stream=stdout&line=1", "?line=1"]
    {
        let (status, text) = page(&server, Some(&server.tokens[0]), &of(missing));
        assert_eq!(status, 404, "{missing}: {text}");
    }
}

#[test]
fn a_stage_leads_to_its_line_of_the_workflow() {
    let main = "digraph {\n  start -> make -> check -> exit\n  make [\n    shape=parallelogram, script=\"echo '</code><script>alert(1)</script>'\"]\n  check [import=\"part.fabro\", class=x]\n}\n";
    let part =
        "digraph {\n  start -> look -> exit\n\n  look [shape=parallelogram, script=true]\n}\n";
    let project = Project::with(&[("w.fabro", main), ("part.fabro", part)]);
    assert_eq!(project.exit(&["run", "w.fabro"]), 0);
    let server = Served::start(&project, &[]);
    let run = project.json(&["ps", "--json"])[0]["id"].as_str().unwrap().to_owned();
    let link = |place: &str| format!("href=\"/runs/{run}/workflow#{place}\"");
    check(
        &server,
        &format!("/runs/{run}/stages/make"),
        &[&link("L3"), ">Line 3 of the workflow<"],
        &[],
    );
    check(&server, &format!("/runs/{run}/stages/start"), &[&link("L2")], &[]);
    check(
        &server,
        &format!("/runs/{run}/stages/check.look"),
        &[&link("F1L4"), ">Line 4 of part.fabro<"],
        &[],
    );
    let shown = [
        "id=\"L4\"",
        "id=\"F1L4\"",
        "<h2>part.fabro</h2>",
        "&#60;script&#62;alert",
        "<svg",
        &format!("href=\"/runs/{run}/stages/check.look@1\" title=\"check.look@1\""),
    ];
    check(&server, &format!("/runs/{run}/workflow"), &shown, &["<script>alert", "id=\"L7\""]);
}

#[test]
fn runs_are_filtered_by_workflow_and_goal() {
    let flow = |name: &str| format!("digraph {name} {{ goal=\"Make {name}\"; start -> exit }}");
    let project = Project::with(&[("a.fabro", &flow("Apple")), ("b.fabro", &flow("Berry"))]);
    for file in ["a.fabro", "b.fabro"] {
        assert_eq!(project.exit(&["run", file]), 0);
    }
    let server = Served::start(&project, &["--role", "read", "--role", "admin"]);
    let [apple, berry] = ["<b>Apple</b>", "<b>Berry</b>"];
    let chosen = "<option value=\"Apple\" selected>Apple</option>";
    check(
        &server,
        "/",
        &[apple, berry, "<option value=\"Berry\">"],
        &["selected", ">All runs</a>"],
    );
    check(&server, "/?workflow=Apple&status=&search=", &[apple, chosen, ">All runs</a>"], &[berry]);
    check(&server, "/?search=make+berry", &[berry], &[apple]);
    check(&server, "/?workflow=Apple&search=berry", &["No run is like this"], &[apple, berry]);
    check(&server, "/?workflow=%3Cb%3E", &["<option value=\"&#60;b&#62;\" selected>"], &[apple]);
    // Several are picked by who may cancel and remove them.
    check(&server, "/", &["class=\"pick\" value=\"01", "id=\"bulk\""], &[]);
    let (_, text) = page(&server, Some(&server.tokens[0]), "/");
    assert!(
        text.contains(apple) && !text.contains("class=\"pick\"") && !text.contains("bulk"),
        "{text}"
    );
}

#[test]
fn a_running_stage_shows_what_it_writes_and_when_it_times_out() {
    let source = "digraph { start -> slow -> exit
        slow [shape=parallelogram, script=\"echo begun; until [ -e go ]; do sleep 0.05; done\", timeout=\"9m\"] }";
    let project = Project::with(&[(".fabro/workflows/w.fabro", source)]);
    let server = Served::start(&project, &[]);
    let run = server.post("/runs", &json!({"workflow": "w"}))["id"].as_str().unwrap().to_owned();
    let started = server
        .follow(&run, 0)
        .any(|(_, it)| it["event"] == "stage.started" && it["node_id"] == "slow");
    assert!(started);
    let stream = format!(
        "data-logs=\"/api/v1/runs/{run}/logs?follow=true&#38;tail=200&#38;stage=slow%401\""
    );
    let shown = [&*stream, "runs its script", "times out in <span data-until=\"", "8m "];
    check(&server, &format!("/runs/{run}/stages/slow"), &shown, &[]);
    check(&server, &format!("/runs/{run}"), &["times out in <span data-until=\""], &["new limit"]);
    check(&server, &format!("/runs/{run}/stages/start"), &[], &["data-logs", "data-until"]);
    // A run that is driven is not removed.
    assert_eq!(server.send("DELETE", &format!("/runs/{run}"), "").problem(), "409 run_driven");
    project.write("go", b"");
    let ended = server.follow(&run, 0).any(|(_, it)| it["event"] == "run.completed");
    assert!(ended);
    check(&server, &format!("/runs/{run}/stages/slow"), &[">begun"], &["data-logs", "data-until"]);
}

#[test]
fn a_run_is_removed_each_way() {
    let child = "digraph { start -> exit }";
    let source = "digraph { start -> sub -> exit; sub [shape=house, \"stack.child_workflow\"=\"child.fabro\"] }";
    let project = Project::with(&[("w.fabro", source), ("child.fabro", child)]);
    for _ in 0..3 {
        assert_eq!(project.exit(&["run", "w.fabro"]), 0);
    }
    let all = || {
        let rows = project.json(&["ps", "--all", "--json"]);
        let rows = rows.as_array().unwrap().iter();
        rows.map(|row| row["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let roots = || {
        let rows = project.json(&["ps", "--json"]);
        let rows = rows.as_array().unwrap().iter();
        rows.map(|row| row["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let runs = roots();
    assert_eq!((all().len(), runs.len()), (6, 3));
    let server = Served::start(&project, &["--role", "answer", "--role", "admin"]);
    let child = all().into_iter().find(|run| !runs.contains(run)).unwrap();
    assert_eq!(server.send("DELETE", &format!("/runs/{child}"), "").problem(), "409 sub_workflow");
    let host = format!("Host: 127.0.0.1:{}", server.port);
    let token = format!("Authorization: Bearer {}", server.tokens[0]);
    let head = format!("DELETE /api/v1/runs/{} HTTP/1.1", runs[0]);
    assert_eq!(server.raw(&head, &[&host, &token], "").problem(), "403 role_insufficient");
    assert_eq!(all().len(), 6);
    // Its page was read before: it is not kept.
    check(&server, &format!("/runs/{}", runs[0]), &["sub@1"], &[]);
    let removed = server.send("DELETE", &format!("/runs/{}", runs[0]), "");
    assert_eq!(removed.json(), json!({"id": runs[0], "warnings": []}));
    assert_eq!(
        server.send("GET", &format!("/runs/{}", runs[0]), "").problem(),
        "404 run_not_found"
    );
    assert_eq!(
        server.send("DELETE", &format!("/runs/{}", runs[0]), "").problem(),
        "404 run_not_found"
    );
    assert_eq!((all().len(), roots()), (4, runs[1..].to_vec()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = stdio_client(&project, &[]).await;
        let arguments = json!({"run": runs[1]}).as_object().unwrap().clone();
        let request =
            rmcp::model::CallToolRequestParams::new("remove_run").with_arguments(arguments);
        let result = client.call_tool(request).await.unwrap();
        assert_eq!(result.is_error, Some(false));
    });
    assert_eq!((all().len(), roots()), (2, runs[2..].to_vec()));
    assert_eq!(project.exit(&["rm", &runs[2]]), 0);
    assert!(all().is_empty());
}
