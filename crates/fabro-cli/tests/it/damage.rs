use std::fs;
use std::path::PathBuf;

use super::project::Project;

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
    assert_eq!(project.exit(&["answer", "latest", "go"]), 0);
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
    assert_eq!(project.read("ran"), "one\ntwo\n");
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
