//! `fabro report`.

use super::project::Project;
use super::worktrees::repository;

const WORKFLOW: &str = r#"digraph W {
    graph [on_failure=stop, goal="<script>alert(1)</script>"]
    start -> one -> test
    one [shape=parallelogram, label="</a><img src=x>", script="echo 1 > one.txt; printf 'out\033[31m<b>'"]
    test [shape=parallelogram, script="test $(cat tries 2>/dev/null) && exit 0; echo 1 > tries; echo broken >&2; exit 3"]
    test -> exit [condition="outcome=success"]
    test -> test [condition="outcome=fail"]
}"#;

/// The report of the newest run.
fn report(project: &Project, more: &[&str]) -> String {
    let args: Vec<_> = ["report", "latest", "-o", "run.html"].iter().chain(more).copied().collect();
    let output = project.output(&args);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "run.html\n", "{output:?}");
    project.read("run.html")
}

#[test]
fn a_report_has_all_of_a_run_in_one_file() {
    let project = repository(WORKFLOW);
    project.run(&["run", "w.fabro", "--worktree"]);
    let html = report(&project, &[]);
    for text in [
        "<!doctype html>",
        "id=\"test@2\"",
        "href=\"#one@1\"",
        "data-node=\"one\"",
        "exit code 3: broken",
        "by rule condition",
        "<code>outcome=fail</code>",
        "<code>one.txt</code>",
        "Standard error",
        "<code>command.stderr</code></th><td>broken</td>",
    ] {
        assert!(html.contains(text), "{text}: {html}");
    }
    // Nothing is loaded, and nothing that the run recorded is more than text.
    for text in [
        "src=\"",
        "url(h",
        "url(/",
        "<link",
        "@import",
        "<script>alert",
        "<img",
        "out\u{1b}",
        "<b>out",
        "blob://",
    ] {
        assert!(!html.contains(text), "{text}");
    }
    let scripts: Vec<&str> = html.split("<script").skip(1).map(|it| &it[..12]).collect();
    let code = |it: &&&str| !it.starts_with(" type=\"appli");
    assert!(scripts.iter().filter(code).count() == 1, "{scripts:?}");
    assert!(html.contains("script-src &#39;sha256-") || html.contains("script-src 'sha256-"));
}

#[test]
fn a_report_is_named_after_its_run_and_replaces_an_older_one() {
    let project = Project::with(&[("w.fabro", "digraph { start -> exit }")]);
    assert_eq!(project.exit(&["run", "w.fabro"]), 0);
    let id = project.json(&["ps", "--json"])[0]["id"].as_str().unwrap().to_owned();
    for _ in 0..2 {
        let output = project.output(&["report"]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{id}.html\n"), "{output:?}");
    }
    assert!(project.read(&format!("{id}.html")).ends_with("</html>"));
    assert_eq!(project.exit(&["report", "-o", "a/b/x.html"]), 0);
    // A pipe or a device stays what it is.
    let pipe = project.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read(pipe).unwrap()
    });
    assert_eq!(project.exit(&["report", "-o", "pipe"]), 0);
    assert!(!std::fs::metadata(&pipe).unwrap().is_file());
    assert_eq!(reader.join().unwrap(), project.read("a/b/x.html").into_bytes());
    insta::assert_snapshot!(project.run(&["report", "-o", "w.fabro/x.html"]), @"
    exit 2
    ── stderr
    error: write w.fabro/x.html: File exists (os error 17)
      help: name another file with -o
    ");
}

#[test]
fn two_runs_are_compared() {
    let project = Project::with(&[(
        "w.fabro",
        r#"digraph { start -> a -> exit; a [shape=parallelogram, script="cat x.txt"] }"#,
    )]);
    project.write("x.txt", b"old\n");
    assert_eq!(project.exit(&["run", "w.fabro"]), 0);
    let first = project.json(&["ps", "--json"])[0]["id"].as_str().unwrap().to_owned();
    let same = report(&project, &["--compare", &first]);
    assert!(same.contains("No stage differs"), "{same}");
    project.write("x.txt", b"new\n");
    assert_eq!(project.exit(&["run", "w.fabro"]), 0);
    let html = report(&project, &["--compare", &first]);
    assert!(html.contains("id=\"differences\"") && html.contains(&first), "{html}");
    assert!(!html.contains("No stage differs"), "{html}");
    for line in [
        "bad\">-  &#34;command.output&#34;: &#34;old&#34;",
        "good\">+  &#34;command.output&#34;: &#34;new&#34;",
    ] {
        assert!(html.contains(line), "{line} in {html}");
    }
}
