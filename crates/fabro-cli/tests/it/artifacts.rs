//! What stages leave is kept, listed, copied, dumped and removed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use insta::assert_snapshot;
use serde_json::Value;

use super::project::{Project, filters};

const WORKFLOW: &str = r#"digraph W { start -> test -> again -> sub -> exit
    test [shape=parallelogram, script="mkdir -p test-results/a playwright-report coverage; echo page > playwright-report/index.html; echo one > test-results/a/shot.png; echo cover > coverage/all.txt"]
    again [shape=parallelogram, script="echo longer > test-results/a/shot.png; ln -s /etc/passwd test-results/link"]
    sub [shape=house, stack.child_workflow="child.fabro", manager.poll_interval=1s] }"#;
const CHILD: &str =
    r#"digraph C { start -> x -> exit x [shape=parallelogram, script="echo child > junit.xml"] }"#;

fn project() -> Project {
    let project = Project::with(&[
        ("w.fabro", WORKFLOW),
        ("child.fabro", CHILD),
        (
            "run.toml",
            "_version = 1\nworkflow.graph = \"w.fabro\"\n[run.artifacts]\ninclude = [\"coverage\"]\n",
        ),
    ]);
    assert_eq!(project.exit(&["run", "run.toml"]), 0);
    project
}

#[test]
fn artifacts_are_listed() {
    let project = project();
    let mut filters = filters();
    filters.add_filter(r" +", " ");
    let _filters = filters.bind_to_scope();
    assert_snapshot!(project.run(&["artifact", "list", "latest"]), @r"
    exit 0
    ── stdout
    stage attempt size type path
    test@1 1 6 B text/plain coverage/all.txt
    test@1 1 5 B text/html playwright-report/index.html
    test@1 1 4 B image/png test-results/a/shot.png
    again@1 1 7 B image/png test-results/a/shot.png
    sub@1 › x@1 1 6 B application/xml junit.xml
    ");
    let paths = |args: &[&str]| {
        let rows = project.json(&[&["artifact", "list", "latest", "--json"], args].concat());
        let rows = rows.as_array().unwrap().iter();
        let path = |row: &Value| {
            assert!(fs::metadata(row["file"].as_str().unwrap()).unwrap().is_file());
            row["path"].as_str().unwrap().to_owned()
        };
        rows.map(path).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(project.exit(&["artifact", "ls"]), 0, "of the latest run");
    assert_snapshot!(paths(&["*.png"]), @"test-results/a/shot.png test-results/a/shot.png");
    assert_snapshot!(paths(&["test-results", "--stage", "again"]), @"test-results/a/shot.png");
    assert_snapshot!(paths(&["--stage", "x@1"]), @"junit.xml");
    assert_snapshot!(paths(&["coverage/*.txt"]), @"coverage/all.txt");
    assert_snapshot!(project.run(&["artifact", "list", "latest", "*.mp4"]), @r"
    exit 0
    ── stdout
    no artifacts with such a path
    ");
    assert_snapshot!(project.run(&["artifact", "list", "latest", "a["]), @r"
    exit 2
    ── stderr
    error: `a[` is not a glob pattern: unclosed character class; missing ']'
     help: quote its special characters with `\`
    ");
}

#[test]
fn artifacts_are_copied() {
    let project = project();
    let _filters = filters().bind_to_scope();
    let copy = |args: &[&str]| project.run(&[&["artifact", "cp", "latest"], args].concat());
    assert_snapshot!(copy(&["all"]), @r"
    exit 0
    ── stdout
    copied 5 artifacts to all
    ");
    let tree =
        ["test/retry_1", "again/retry_1"].map(|dir| format!("all/{dir}/test-results/a/shot.png"));
    assert_eq!(tree.map(|path| project.read(&path)).concat(), "one\nlonger\n");
    assert_eq!(project.read("all/sub@1/x/retry_1/junit.xml"), "child\n");
    assert_snapshot!(copy(&["last", "--last"]), @r"
    exit 0
    ── stdout
    copied 4 artifacts to last
    ");
    assert_eq!(project.read("last/test-results/a/shot.png"), "longer\n");
    assert_snapshot!(copy(&["all"]), @r"
    exit 2
    ── stderr
    error: all/test/retry_1/coverage/all.txt is there already
      help: name another place, or replace it with --force
    ");
    assert_eq!(project.exit(&["artifact", "cp", "latest", "all", "--force"]), 0);
    assert_eq!(project.exit(&["artifact", "cp", "latest", "index.html", "page.html"]), 0);
    assert_eq!(project.read("page.html"), "page\n");
    let mode = fs::metadata(project.path().join("page.html")).unwrap().permissions().mode();
    assert_eq!(mode & 0o600, 0o600, "a copy can be changed");
    assert_eq!(project.exit(&["artifact", "cp", "latest", "index.html", "all"]), 0);
    assert_eq!(project.read("all/index.html"), "page\n");
    assert_snapshot!(copy(&["*.mp4", "video"]), @r"
    exit 2
    ── stderr
    error: no artifact has such a path
      help: see them with `fabro artifact list [ID]`
    ");
    assert_snapshot!(project.run(&["artifact", "cp", "latest"]), @r"
    exit 2
    ── stderr
    error: the following required arguments were not provided:
      <DEST>

    Usage: fabro artifact cp <RUN> [PATTERN]... <DEST>

    For more information, try '--help'.
    ");
}

#[test]
fn damage_is_noticed() {
    let project = project();
    let rows = project.json(&["artifact", "list", "latest", "index.html", "--json"]);
    let file = rows[0]["file"].as_str().unwrap();
    fs::remove_file(file).unwrap();
    assert_eq!(
        project.exit(&["artifact", "cp", "latest", "index.html", "a"]),
        0,
        "the pool has it"
    );
    let sha256 = rows[0]["sha256"].as_str().unwrap();
    let pool = project.path().join(".fabro/state/artifacts");
    fs::remove_file(pool.join(&sha256[..2]).join(&sha256[2..])).unwrap();
    assert_snapshot!(project.run(&["artifact", "cp", "latest", "index.html", "b"]), @r"
    exit 4
    ── stderr
    error: the artifact cache/artifacts/files/test/retry_1/playwright-report/index.html is missing from the store
      help: restore the directory of the run, or run the stage again
    ");
    let verified = project.run(&["verify", "latest"]);
    assert!(verified.starts_with("exit 4") && verified.contains("is missing from"), "{verified}");
    assert_eq!(project.exit(&["doctor"]), 1);
    fs::write(file, "other").unwrap();
    assert_snapshot!(project.run(&["artifact", "cp", "latest", "index.html", "b"]), @r"
    exit 4
    ── stderr
    error: the artifact cache/artifacts/files/test/retry_1/playwright-report/index.html has been changed in the store
      help: restore the directory of the run, or run the stage again
    ");
    assert_snapshot!(project.run(&["dump", "latest", "-o", "out"]), @r"
    exit 0
    ── stdout
    out
    ── stderr
    warning: the artifact cache/artifacts/files/test/retry_1/playwright-report/index.html has been changed in the store
    ");
}

#[test]
fn damaged_bytes_in_the_pool_do_not_spoil_later_artifacts() {
    let project = project();
    assert_eq!(project.exit(&["verify"]), 0);
    let rows = project.json(&["artifact", "list", "latest", "index.html", "--json"]);
    let sha256 = rows[0]["sha256"].as_str().unwrap();
    let pool = project.path().join(".fabro/state/artifacts");
    let object = pool.join(&sha256[..2]).join(&sha256[2..]);
    fs::set_permissions(&object, fs::Permissions::from_mode(0o600)).unwrap();
    // Of the same length, and by all of its names: they are one file.
    fs::write(&object, "eviL\n").unwrap();
    assert_eq!(project.exit(&["verify"]), 4);
    for dir in ["playwright-report", "test-results"] {
        fs::remove_dir_all(project.path().join(dir)).unwrap();
    }
    assert_eq!(project.exit(&["run", "run.toml"]), 0);
    assert_eq!(project.exit(&["artifact", "cp", "latest", "index.html", "copy"]), 0);
    assert_eq!(project.read("copy"), "page\n");
    assert_eq!(project.exit(&["verify"]), 0, "the first run has its bytes back");
}

#[test]
fn an_artifact_is_opened_by_the_systems_program() {
    let project = project();
    let opener = if cfg!(target_os = "macos") { "bin/open" } else { "bin/xdg-open" };
    project.write(opener, b"#!/bin/sh\necho \"$1\" > opened.tmp && mv opened.tmp opened\n");
    let path = project.path().join(opener);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let open = |args: &[&str], path: &str| {
        let mut command = project.command(&[&["artifact", "open", "latest"], args].concat());
        let output = command.env("PATH", path).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8(text).unwrap();
        text.replace(&project.path().display().to_string(), "DIR")
    };
    let path = format!("{}:/bin:/usr/bin", project.path().join("bin").display());
    let mut filters = filters();
    filters.add_filter("xdg-open|open cannot", "[OPENER]");
    let _filters = filters.bind_to_scope();
    assert_snapshot!(open(&["index.html"], &path), @"DIR/.fabro/state/runs/[ID]/cache/artifacts/files/test/retry_1/playwright-report/index.html");
    assert_snapshot!(open(&["shot.png"], &path), @"DIR/.fabro/state/runs/[ID]/cache/artifacts/files/again/retry_1/test-results/a/shot.png");
    assert_snapshot!(open(&[], &path), @"DIR/.fabro/state/runs/[ID]/cache/artifacts/files");
    assert_snapshot!(open(&["*"], &path), @r"
    error: several artifacts are meant: coverage/all.txt, playwright-report/index.html, test-results/a/shot.png, junit.xml
      help: name one of them
    ");
    assert_snapshot!(open(&["index.html"], "/nowhere"), @r"
    DIR/.fabro/state/runs/[ID]/cache/artifacts/files/test/retry_1/playwright-report/index.html
    error: [OPENER] cannot be started: No such file or directory (os error 2)
      help: open the file that is printed above with a program of your choice
    ");
}

#[test]
fn artifacts_go_with_their_last_run() {
    let project = project();
    let bytes = |name: &str| project.json(&["du", "--json"])[name].as_u64().unwrap();
    let first = project.json(&["ps", "--json"])[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(bytes("artifact_files_bytes"), 28);
    let forked =
        project.json(&["fork", "latest", "again", "--json"])["id"].as_str().unwrap().to_owned();
    let report = project.json(&["du", "--json"]);
    let runs = report["runs"].as_array().unwrap().iter();
    let sizes =
        runs.map(|run| format!("{} {}", run["artifacts_bytes"], run["shared_artifacts_bytes"]));
    let mut sizes: Vec<String> = sizes.collect();
    sizes.sort();
    assert_eq!(sizes, ["0 22", "6 22"], "what the sub-workflow left is the first run's alone");
    assert_eq!(project.exit(&["rm", &first]), 0);
    assert_eq!(bytes("artifact_files_bytes"), 22);
    assert_eq!(project.exit(&["artifact", "cp", &forked, "copy"]), 0, "the fork has its own");
    assert_eq!(project.exit(&["prune", "--status", "interrupted", "--force"]), 0);
    assert_eq!(bytes("artifact_files_bytes"), 0);
}

#[test]
fn a_dump_has_the_artifacts() {
    let project = project();
    assert_eq!(project.exit(&["dump", "latest", "-o", "out"]), 0);
    assert_eq!(project.read("out/artifacts/again/retry_1/test-results/a/shot.png"), "longer\n");
    let children = fs::read_dir(project.path().join("out/children")).unwrap();
    let names = children.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let child = names.collect::<String>();
    assert_eq!(
        project.read(&format!("out/children/{child}/artifacts/x/retry_1/junit.xml")),
        "child\n"
    );
}

#[test]
fn an_agent_that_was_killed_keeps_what_it_left_before() {
    let script = r#"{"t": [
        {"text": "one", "tool_calls": [{"name": "shell", "arguments": {"command": "echo report > junit.xml"}}]},
        {"text": "two", "tool_calls": [{"name": "shell", "arguments": {"command": "kill -9 $PPID"}}]},
        {"text": "done"}]}"#;
    let workflow = r#"digraph { start -> t -> exit; t [prompt="Test it", permissions="full"] }"#;
    let project = Project::with(&[("w.fabro", workflow), ("model.json", script)]);
    let killed = project.output(&["run", "w.fabro", "--model-script", "model.json"]);
    assert_eq!(killed.status.code(), None);
    let resume = ["resume", "latest", "--model-script", "model.json"];
    assert_eq!(project.exit(&resume), 0);
    let rows = project.json(&["artifact", "list", "latest", "--json"]);
    assert_eq!(rows[0]["path"], "junit.xml");
    assert_eq!(project.exit(&["replay", "latest"]), 0);
}

#[test]
fn a_command_that_was_killed_runs_again_and_keeps_what_it_leaves() {
    let workflow = r#"digraph { start -> c -> exit; c [shape=parallelogram,
        script="echo report > junit.xml; test -e again || { touch again; kill -9 $PPID; }"] }"#;
    let project = Project::with(&[("w.fabro", workflow)]);
    assert_eq!(project.output(&["run", "w.fabro"]).status.code(), None);
    assert_eq!(project.json(&["artifact", "list", "latest", "--json"]), serde_json::json!([]));
    assert_eq!(project.exit(&["resume", "latest"]), 0);
    assert_eq!(project.json(&["artifact", "list", "--json"])[0]["path"], "junit.xml");
}

#[test]
fn what_a_program_leaves_is_kept_too() {
    let workflow =
        r#"digraph { start -> t -> exit; t [prompt="Test it", backend=cli, provider=anthropic] }"#;
    let project = Project::with(&[("w.fabro", workflow)]);
    let program = r#"#!/bin/sh
cat > /dev/null
echo report > junit.xml
echo '{"type":"result","subtype":"success","is_error":false,"result":"done","session_id":"s","num_turns":1}'
"#;
    project.write("bin/claude", program.as_bytes());
    let path = project.path().join("bin/claude");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/bin:/usr/bin", project.path().join("bin").display());
    let run = project.command(&["run", "w.fabro"]).env("PATH", path).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    assert_eq!(project.json(&["artifact", "list", "--json"])[0]["path"], "junit.xml");
}

/// The figures of the documentation, at the byte, and files as test tools, archives and copies leave them.
#[test]
fn what_test_tools_leave_is_kept_up_to_the_limits() {
    const MIB: u64 = 1 << 20;
    let workflow = r#"digraph W { graph [on_failure=stop]; start -> full -> over -> tools -> copies -> exit
        full [shape=parallelogram, script="mkdir test-results; for n in 1 2 3 4 5; do truncate -s 10485760 test-results/$n; done"]
        over [shape=parallelogram, script="rm test-results/*; for n in 1 2 3 4; do truncate -s 10485760 test-results/$n; done
            truncate -s 10485759 test-results/5; printf xx > test-results/6; printf x > test-results/7; truncate -s 10485761 test-results/8"]
        tools [shape=parallelogram, script="cd deep; mkdir -p playwright-report/data cypress/videos cypress/screenshots videos node_modules/test-results .cache/ms-playwright/test-results
            for f in playwright-report/index.html playwright-report/data/1.webm cypress/videos/v.mp4 cypress/screenshots/s.png junit-unit.xml t.trace.zip; do printf x > $f; done
            for f in videos/v.mp4 node_modules/test-results/x node_modules/junit.xml .cache/ms-playwright/test-results/x unit-junit.xml trace.zip; do printf x > $f; done"]
        copies [shape=parallelogram, script="cd deep; cp -p junit-unit.xml junit-copy.xml; tar -cf old.tar junit-unit.xml; mkdir new; tar -xf old.tar -C new
            printf y > t.trace.zip; touch -r junit-unit.xml t.trace.zip; touch -r t.trace.zip stamp
            printf y > cypress/videos/v.mp4; printf z > cypress/screenshots/s.png; touch -d @1 cypress/screenshots/s.png"] }"#;
    let project = Project::with(&[("w.fabro", workflow), ("deep/kept.txt", "")]);
    let ran = project.output(&["run", "w.fabro"]);
    let text = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(0), "{text}");
    let left: Vec<&str> =
        text.lines().filter_map(|line| line.split_once("not kept: ")).map(|it| it.1).collect();
    assert_snapshot!(left.join("\n"), @"
    test-results/6: it has 2 bytes, and with those before it one collection at most 52428800
    test-results/8: it has 10485761 bytes, and an artifact at most 10485760
    ");
    let rows = project.json(&["artifact", "list", "latest", "--json"]);
    let of = |stage: &str| {
        let rows = rows.as_array().unwrap().iter();
        let rows =
            rows.filter(|row| row["file"].as_str().unwrap().contains(&format!("/files/{stage}/")));
        let rows = rows.map(|row| (row["path"].as_str().unwrap(), row["size"].as_u64().unwrap()));
        rows.collect::<Vec<_>>()
    };
    let size = |stage: &str| of(stage).iter().map(|(_, size)| size).sum::<u64>();
    assert_eq!((of("full").len(), size("full")), (5, 50 * MIB));
    assert_eq!((of("over").len(), size("over")), (6, 50 * MIB));
    let paths =
        |stage: &str| of(stage).iter().map(|(path, _)| *path).collect::<Vec<_>>().join("\n");
    assert_snapshot!(paths("tools"), @"
    deep/cypress/screenshots/s.png
    deep/cypress/videos/v.mp4
    deep/junit-unit.xml
    deep/playwright-report/data/1.webm
    deep/playwright-report/index.html
    deep/t.trace.zip
    ");
    assert_snapshot!(paths("copies"), @"
    deep/cypress/screenshots/s.png
    deep/cypress/videos/v.mp4
    deep/junit-copy.xml
    deep/new/junit-unit.xml
    deep/t.trace.zip
    ");
}
