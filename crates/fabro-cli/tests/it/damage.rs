use std::fs;

use super::project::Project;

#[test]
fn a_value_that_was_tampered_with_is_the_fault_of_the_store() {
    let flow = r#"digraph { start -> big -> exit; big [shape=parallelogram, script="yes | head -c 200000"] }"#;
    let project = Project::with(&[("flow.fabro", flow)]);
    assert_eq!(project.exit(&["run", "flow.fabro"]), 0);
    assert_eq!(project.exit(&["context", "latest", "--resolve"]), 0);
    let mut spoiled = 0;
    let mut open = vec![project.path().join(".fabro/state/blobs")];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                fs::remove_file(&path).unwrap();
                fs::write(path, "\"something else\"").unwrap();
                spoiled += 1;
            }
        }
    }
    assert!(spoiled > 0);
    let shown = project.run(&["context", "latest", "--resolve"]);
    assert!(shown.starts_with("exit 4\n") && shown.contains("blob://sha256/"), "{shown}");
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
    // An older state of the database: without the end of the run.
    sql(
        &project,
        "DELETE FROM events WHERE id & 0xffffffff > 5; UPDATE runs SET status = 'running', ended = NULL",
    );
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
    let events =
        |store: &str| project.output(&["events", "latest", "--json", "--store", store]).stdout;
    assert_eq!(events("copy"), events(".fabro/state"));
}
