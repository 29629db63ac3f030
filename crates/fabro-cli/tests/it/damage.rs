use std::fs;
use std::path::PathBuf;

use super::project::Project;
use super::served::Served;

#[test]
fn a_value_that_was_tampered_with_is_the_fault_of_the_store() {
    let flow = r#"digraph { start -> big -> exit; big [shape=parallelogram, script="yes | head -c 200000"] }"#;
    let project = Project::with(&[("flow.fabro", flow)]);
    assert_eq!(project.exit(&["run", "flow.fabro"]), 0);
    assert_eq!(project.exit(&["context", "latest", "--resolve"]), 0);
    for blob in blobs(&project) {
        fs::remove_file(&blob).unwrap();
        fs::write(blob, "\"something else\"").unwrap();
    }
    let shown = project.run(&["context", "latest", "--resolve"]);
    assert!(shown.starts_with("exit 4\n") && shown.contains("blob://sha256/"), "{shown}");
}

/// The files of the blobs, at least one.
fn blobs(project: &Project) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut open = vec![project.path().join(".fabro/state/blobs")];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { open.push(path) } else { files.push(path) }
        }
    }
    assert!(!files.is_empty());
    files
}

/// Runs a workflow whose stage `big` has a large output, up to a gate; removes the output; answers,
/// and resumes. Nothing after the gate takes the loss for a result, and once the output is back the
/// run succeeds.
#[track_caller]
fn check_lost_output(rest: &str, at: &str) {
    let flow = format!(
        r#"digraph {{
    start -> big -> gate
    big [shape=parallelogram, script="seq 40000"]
    gate [shape=hexagon]
    {rest}
    bad [shape=parallelogram, script="echo bad >> ran"]
    bad -> exit
}}"#
    );
    let script = r#"{"*": [{"text": "done"}]}"#;
    let project = Project::with(&[("flow.fabro", &flow), ("m.json", script)]);
    assert_eq!(project.exit(&["run", "flow.fabro", "--model-script", "m.json"]), 3);
    assert_eq!(project.exit(&["answer", "--no-resume", "latest", "go"]), 0);
    let kept: Vec<_> = blobs(&project).into_iter().map(|it| (fs::read(&it).unwrap(), it)).collect();
    for (_, path) in &kept {
        fs::remove_file(path).unwrap();
    }
    // Copies of blobs for stages to read are no part of the log either.
    let _ = fs::remove_dir_all(project.path().join(".fabro/state/runs"));
    for _ in 0..2 {
        let shown = project.run(&["resume", "latest"]);
        assert!(shown.starts_with("exit 4\n"), "{shown}");
        assert!(shown.contains(at) && shown.contains("restore"), "{shown}");
        assert!(
            shown.contains("the run's events are intact: fix it, then run `fabro resume"),
            "{shown}"
        );
    }
    assert!(!project.path().join("ran").exists());
    for (bytes, path) in kept {
        fs::write(path, bytes).unwrap();
    }
    let shown = project.run(&["resume", "latest"]);
    assert!(shown.starts_with("exit 0\n"), "{shown}");
    assert!(!project.path().join("ran").exists(), "{shown}");
}

#[test]
fn a_lost_value_is_no_result_of_the_stage_that_reads_it() {
    check_lost_output(
        r#"gate -> use [label="go"]
    use [shape=parallelogram, script="echo {{ context.command.output | length }}"]
    use -> bad [condition="outcome=fail"]; use -> exit [condition="outcome=success"]"#,
        "stage `use` cannot continue",
    );
    check_lost_output(
        r#"gate -> use [label="go"]
    use [prompt="work"]
    use -> bad [condition="outcome=fail"]; use -> exit [condition="outcome=success"]"#,
        "stage `use` cannot continue",
    );
    check_lost_output(
        r#"gate -> bad [label="no", condition="context.command.output contains zzz"]
    gate -> exit [label="go"]"#,
        "blob://",
    );
}

#[test]
fn text_that_looks_like_the_name_of_a_value_is_text() {
    let name = format!("blob://sha256/{}", "0".repeat(64));
    let directive = format!(r#"{{\"context_updates\": {{\"x\": \"{name}\"}}}}"#);
    let script = format!(
        r#"{{"prose": [{{"text": "it is in {name}, \"{name}\" {directive}"}}], "exact": [{{"text": "{name}"}}]}}"#
    );
    let flow = r#"digraph { start -> prose -> exact -> use -> exit
        prose [prompt="a"]; exact [prompt="b"]
        use [shape=parallelogram, script="echo {{ context.x }}"] }"#;
    let project = Project::with(&[("flow.fabro", flow), ("m.json", &script)]);
    let shown = project.run(&["run", "flow.fabro", "--model-script", "m.json"]);
    assert!(shown.starts_with("exit 0\n"), "{shown}");
    let used = project.run(&["logs", "latest", "use"]);
    assert!(used.contains(&name), "{used}");
    assert_eq!(project.exit(&["context", "latest", "--resolve"]), 0);
    assert_eq!(project.exit(&["dump", "latest", "-o", "out"]), 0);
    assert_eq!(project.exit(&["replay", "latest"]), 0);
    let verified = project.run(&["verify"]);
    assert!(verified.starts_with("exit 0\n"), "{verified}");
    assert_eq!(project.exit(&["backup", "copy.db"]), 0);
}

const LINE: &str = r#"digraph {
    start -> one -> two -> exit
    one [shape=parallelogram, script="echo one >> ran"]
    two [shape=parallelogram, script="echo two >> ran"]
}"#;

const GATED: &str = r#"digraph {
    start -> gate -> exit
    gate [shape=hexagon, label="Go?"]
}"#;

/// Changes the database behind the program's back.
fn sql(project: &Project, sql: &str) {
    let db = project.path().join(".fabro/state/fabro.db");
    rusqlite::Connection::open(db).unwrap().execute_batch(sql).unwrap();
}

#[test]
fn a_changed_record_is_never_run_past() {
    let project = Project::with(&[("flow.fabro", LINE)]);
    assert_eq!(project.exit(&["run", "flow.fabro"]), 0);
    assert_eq!(project.exit(&["verify"]), 0);
    assert_eq!(project.exit(&["verify", "latest"]), 0);
    sql(&project, "UPDATE events SET entry = replace(entry, 'succeeded', 'failed')");
    for args in
        [&["verify"][..], &["inspect", "latest"], &["resume", "latest"], &["events", "latest"]]
    {
        assert_eq!(project.exit(args), 4, "{args:?}");
    }
    assert_eq!(project.exit(&["doctor"]), 1);
    let listed = project.run(&["ps"]);
    assert!(listed.contains("is damaged"), "{listed}");
    assert_eq!(project.read("ran"), "one\ntwo\n");
}

/// A damaged workflow of a run is the fault of the store for every command that needs it.
#[test]
fn a_workflow_that_is_damaged_or_gone_is_named() {
    for (change, says) in [
        ("UPDATE blobs SET bytes = x'7b7d'", "is damaged: its bytes do not match its name"),
        ("UPDATE blobs SET bytes = NULL", "was stored and is gone"),
        ("DELETE FROM blobs", "is not in the store"),
    ] {
        let project = Project::with(&[("flow.fabro", GATED)]);
        assert_eq!(project.exit(&["run", "flow.fabro"]), 3);
        sql(&project, change);
        for args in
            [&["resume", "latest"][..], &["replay", "latest"], &["dump", "latest", "-o", "out"]]
        {
            let shown = project.run(args);
            assert!(shown.starts_with("exit 4\n"), "{args:?}: {shown}");
            assert!(shown.contains(says) && shown.contains("blob://sha256/"), "{args:?}: {shown}");
        }
        let verified = project.run(&["verify", "latest"]);
        assert!(verified.starts_with("exit 4\n"), "{change}: {verified}");
    }
}

#[test]
fn committed_stages_that_were_lost_never_run_again_in_silence() {
    let project = Project::with(&[("flow.fabro", LINE)]);
    assert_eq!(project.exit(&["run", "flow.fabro"]), 0);
    // Its end is lost; the list still has the result.
    sql(&project, "DELETE FROM events WHERE id & 0xffffffff > 5");
    let list = project.run(&["ps"]);
    assert!(list.contains("events 6 to ") && list.contains("were committed"), "{list}");
    // An older state of the database.
    sql(&project, "UPDATE runs SET status = 'running', ended = NULL");
    let list = project.run(&["ps"]);
    assert!(list.starts_with("exit 4"), "{list}");
    sql(&project, "DELETE FROM runs; DELETE FROM events");
    let list = project.run(&["ps"]);
    assert!(list.contains("the database has nothing of it"), "{list}");
    let run = list.split("verify ").nth(1).unwrap().split('`').next().unwrap();
    assert_eq!(project.exit(&["inspect", run]), 4);
    assert_eq!(project.exit(&["verify", run]), 4);
    assert_eq!(project.exit(&["verify", run, "--accept-loss"]), 0);
    assert_eq!(project.exit(&["verify", run]), 2);
    let verified = project.run(&["verify"]);
    assert!(verified.starts_with("exit 4") && verified.contains("nothing of run"), "{verified}");
    fs::remove_dir_all(project.path().join(".fabro/state/runs").join(run)).unwrap();
    assert_eq!(project.exit(&["verify"]), 0);
    assert_eq!(project.read("ran"), "one\ntwo\n");
}

#[test]
fn nothing_is_written_over_a_last_commit_that_cannot_be_read() {
    let flow = "digraph { start -> one -> ask -> exit
        one [shape=parallelogram, script=\"echo one >> ran\"]
        ask [shape=hexagon, label=\"Go on?\"] }";
    let project = Project::with(&[("flow.fabro", flow), ("other.fabro", LINE)]);
    assert_eq!(project.exit(&["run", "flow.fabro"]), 3);
    // A driver that is killed may not have written there yet.
    let state = project.path().join(".fabro/state");
    fs::remove_dir_all(state.join("heads")).unwrap();
    let log = state.join("fabro.db-wal");
    let mut bytes = fs::read(&log).unwrap();
    let at = bytes.len() - 100;
    bytes[at] ^= 4;
    fs::write(&log, bytes).unwrap();
    for args in [
        &["resume", "latest"][..],
        &["run", "other.fabro"],
        &["answer", "--no-resume", "latest", "yes"],
        &["events", "latest"],
        &["inspect", "latest"],
        &["verify", "latest"],
        &["verify"],
        &["backup", "copy.db"],
    ] {
        let shown = project.run(args);
        assert!(
            shown.starts_with("exit 4\n") && shown.contains("the commit at byte"),
            "{args:?}: {shown}"
        );
    }
    for args in [&["ps"][..], &["doctor", "--store", ".fabro/state"]] {
        let shown = project.run(args);
        assert!(shown.contains("the commit at byte"), "{args:?}: {shown}");
    }
    for (args, exit) in [
        (&["verify", "no-such-run", "--accept-loss"][..], 4),
        (&["verify", "latest", "--accept-loss"], 4),
        (&["rm", "latest"], 4),
        (&["prune", "--keep", "0", "--force"], 4),
        (&["verify", "--accept-loss"], 0),
        (&["verify", "--accept-loss"], 2),
    ] {
        assert_eq!(project.exit(args), exit, "{args:?}");
    }
    assert_eq!(project.exit(&["verify"]), 0);
    assert_eq!(project.exit(&["run", "other.fabro"]), 0);
    assert_eq!(project.read("ran"), "one\none\ntwo\n");
}

#[test]
fn a_database_that_is_older_than_the_files_of_stages_is_refused() {
    let flow = "digraph { start -> one -> ask -> two -> again -> exit
        one [shape=parallelogram, script=\"echo one | tee -a ran\"]
        two [shape=parallelogram, script=\"echo two | tee -a ran\"]
        ask [shape=hexagon, label=\"Go on?\"]
        again [shape=hexagon, label=\"Go on?\"] }";
    let project = Project::with(&[("flow.fabro", flow)]);
    assert_eq!(project.exit(&["run", "flow.fabro"]), 3);
    let state = project.path().join(".fabro/state");
    let older = ["fabro.db", "fabro.db-wal"].map(|name| fs::read(state.join(name)).unwrap());
    assert_eq!(project.exit(&["answer", "--no-resume", "latest", "T"]), 0);
    assert_eq!(project.exit(&["resume", "latest"]), 3);
    for (name, bytes) in ["fabro.db", "fabro.db-wal"].into_iter().zip(older) {
        fs::write(state.join(name), bytes).unwrap();
    }
    // Nor is it known any more how far the log went.
    fs::remove_dir_all(state.join("heads")).unwrap();
    fs::remove_file(state.join("fabro.db-shm")).unwrap();
    assert_eq!(project.exit(&["answer", "--no-resume", "latest", "T"]), 0);
    for args in [&["resume", "latest"], &["verify", "latest"]] {
        let shown = project.run(args);
        assert!(
            shown.starts_with("exit 4\n") && shown.contains("003-ask@1 is newer than the database"),
            "{args:?}: {shown}"
        );
    }
    assert_eq!(project.exit(&["verify", "latest", "--accept-loss"]), 0);
    assert_eq!(project.exit(&["resume", "latest"]), 3);
    assert_eq!(project.read("ran"), "one\ntwo\ntwo\n");
}

#[test]
fn a_backup_can_be_used_as_a_store() {
    let project = Project::with(&[("flow.fabro", LINE)]);
    assert_eq!(project.exit(&["run", "flow.fabro"]), 0);
    fs::create_dir(project.path().join("copy")).unwrap();
    assert_eq!(project.exit(&["backup", "copy/fabro.db"]), 0);
    assert_eq!(project.exit(&["backup", "copy/fabro.db"]), 2);
    assert_eq!(project.exit(&["verify", "--store", "copy"]), 0);
    let verified = project.run(&["verify", "--store", "copy"]);
    assert!(verified.contains("not known whether events are missing at the end"), "{verified}");
    let events =
        |store: &str| project.output(&["events", "latest", "--json", "--store", store]).stdout;
    assert_eq!(events("copy"), events(".fabro/state"));
}

#[test]
fn a_log_file_that_cannot_be_read_is_named() {
    let flow = r#"digraph { start -> slow -> exit
        slow [shape=parallelogram, script="echo out; until grep -qs out .fabro/state/runs/*/stages/*/stdout.log; do sleep 0.02; done; kill -9 $PPID; sleep 1"] }"#;
    let project = Project::with(&[("flow.fabro", flow)]);
    assert_eq!(project.output(&["run", "flow.fabro"]).status.code(), None);
    let whole = project.run(&["logs", "latest"]);
    assert!(whole.starts_with("exit 0\n") && whole.contains("out"), "{whole}");
    let runs = project.path().join(".fabro/state/runs");
    let run = fs::read_dir(runs).unwrap().next().unwrap().unwrap().path();
    let log = run.join("stages/002-slow@1/stdout.log");
    fs::remove_file(&log).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&log).status().unwrap().success());
    let refused = |reason: &str| {
        let logs = project.run(&["logs", "latest"]);
        let is_named = logs.contains("stages/002-slow@1/stdout.log") && logs.contains(reason);
        assert!(logs.starts_with("exit 4\n") && is_named, "{logs}");
        project.run(&["inspect", "latest", "slow"])
    };
    let stage = refused("it is not a regular file");
    assert!(stage.contains("it is not a regular file"), "{stage}");
    fs::remove_file(&log).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &log).unwrap();
    refused("it is not a regular file");
    fs::remove_file(&log).unwrap();
    std::os::unix::fs::symlink("stdout.log", &log).unwrap();
    refused("symbolic links");
}

#[test]
fn a_changed_file_of_a_failed_attempt_is_noticed() {
    let flow = r#"digraph { start -> flaky -> exit
        flaky [shape=parallelogram, script="echo out $FABRO_ATTEMPT; echo err >&2; test $FABRO_ATTEMPT -gt 1",
            retry_policy=standard] }"#;
    let project = Project::with(&[("flow.fabro", flow)]);
    assert_eq!(project.exit(&["run", "flow.fabro"]), 0);
    let whole = project.run(&["logs", "latest"]);
    assert!(whole.starts_with("exit 0\n") && whole.contains("out 1"), "{whole}");
    let runs = project.path().join(".fabro/state/runs");
    let run = fs::read_dir(runs).unwrap().next().unwrap().unwrap().path();
    let attempt = run.join("stages/002-flaky@1/attempt-1");
    for name in ["stdout.log", "stderr.log", "SHA256SUMS"] {
        let file = attempt.join(name);
        let kept = fs::read(&file).unwrap();
        let mut flipped = kept.clone();
        // In a list of sums the last one.
        let at = kept.len().saturating_sub(40).max(1);
        flipped[at] ^= 1;
        fs::write(&file, flipped).unwrap();
        let logs = project.run(&["logs", "latest"]);
        assert!(logs.starts_with("exit 4\n") && logs.contains("is damaged"), "{name}: {logs}");
        let dump = project.run(&["dump", "latest", "-o", name]);
        assert!(dump.starts_with("exit 0\n") && dump.contains("is damaged"), "{name}: {dump}");
        let dumped = project.path().join(name).join("stages/002-flaky@1/attempt-1");
        assert!(dumped.join("status.json").exists());
        assert_eq!(dumped.join("stdout.log").exists(), name != "stdout.log", "{name}");
        assert_eq!(dumped.join("stderr.log").exists(), name == "stdout.log", "{name}");
        fs::write(&file, kept).unwrap();
    }
    assert_eq!(project.run(&["logs", "latest"]), whole);
    fs::remove_file(attempt.join("stdout.log")).unwrap();
    let logs = project.run(&["logs", "latest"]);
    assert!(logs.starts_with("exit 0\n") && !logs.contains("out 1"), "{logs}");
}

#[test]
fn a_report_says_that_the_workflow_cannot_be_read() {
    let project = Project::with(&[("flow.fabro", LINE)]);
    assert_eq!(project.exit(&["run", "flow.fabro"]), 0);
    let whole = project.run(&["report", "latest", "-o", "whole.html"]);
    assert!(whole.starts_with("exit 0\n") && !whole.contains("warning"), "{whole}");
    sql(&project, "UPDATE blobs SET bytes = zeroblob(length(bytes)) WHERE length(bytes) > 200");
    let report = project.run(&["report", "latest", "-o", "report.html"]);
    assert!(report.starts_with("exit 0\n"), "{report}");
    assert!(
        report.contains("warning: there is no graph of run") && report.contains("is damaged"),
        "{report}"
    );
    assert!(!project.read("report.html").contains("id=\"graph\""));
}

#[test]
fn a_server_says_what_is_damaged_or_lost() {
    let flow = r#"digraph { start -> one -> exit; one [shape=parallelogram, script="seq 2000"] }"#;
    let project = Project::with(&[("flow.fabro", flow)]);
    assert_eq!(project.exit(&["run", "flow.fabro"]), 0);
    sql(&project, "UPDATE blobs SET bytes = zeroblob(length(bytes)) WHERE length(bytes) > 200");
    let run = project.json(&["ps", "--json"])[0]["id"].as_str().unwrap().to_owned();
    let server = Served::start(&project, &[]);
    let logs = server.send("GET", "/runs/latest/logs", "");
    assert_eq!(logs.problem(), "500 logs_failed");
    assert!(logs.json()["detail"].as_str().unwrap().contains("is damaged"), "{logs:?}");
    let head = format!("GET /runs/{run} HTTP/1.1");
    let host = format!("Host: 127.0.0.1:{}", server.port);
    let token = format!("Authorization: Bearer {}", server.tokens[0]);
    let page = server.raw(&head, &[&host, &token], "");
    let page = String::from_utf8(page.body).unwrap();
    assert!(page.contains("The workflow of this run cannot be read"), "{page}");
    sql(&project, "DELETE FROM runs; DELETE FROM events");
    let list = server.get("/runs");
    assert!(
        list["warnings"][0].as_str().unwrap().contains(&format!("run {run} is incomplete")),
        "{list}"
    );
    let gates = server.get("/gates");
    assert_eq!(gates["unreadable"][0]["run"], run, "{gates}");
}

/// The limit of the size of files stands for a full disk.
#[test]
fn a_file_that_cannot_be_written_whole_is_not_there() {
    let flow = r#"digraph { start -> big -> exit
        big [shape=parallelogram, script="head -c 300000 /dev/urandom | base64"] }"#;
    let nodes: Vec<_> = (0..600).map(|at| format!("n{at}")).collect();
    let graph = format!("digraph {{ start -> {} -> exit }}", nodes.join(" -> "));
    let project =
        Project::with(&[("flow.fabro", flow), ("graph.fabro", &graph), ("old.svg", "old")]);
    assert_eq!(project.exit(&["run", "flow.fabro"]), 0);
    let limited = |args: &str| {
        let fabro = env!("CARGO_BIN_EXE_fabro");
        let script = format!("trap '' XFSZ; ulimit -f 100; exec {fabro} {args}");
        let output = project.program("bash").args(["-c", &script]).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let before = files(project.path());
    for args in [
        "dump latest -o made.zip",
        "dump latest -o made",
        "graph graph.fabro -o made.svg",
        "graph graph.fabro -o old.svg",
        "report latest --full -o made.html",
    ] {
        let (code, stderr) = limited(args);
        assert_eq!(code, Some(4), "{args}: {stderr}");
        assert!(stderr.starts_with("error: ") && !stderr.contains("ZipWriter"), "{args}: {stderr}");
        assert_eq!(files(project.path()), before, "{args}");
    }
    assert_eq!(project.read("old.svg"), "old");
}

/// The names in a directory.
fn files(dir: &std::path::Path) -> Vec<std::ffi::OsString> {
    let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|it| it.unwrap().file_name()).collect();
    names.sort();
    names
}
