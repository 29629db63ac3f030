//! `fabro du` and `fabro prune`.

use std::process::Stdio;

use insta::assert_snapshot;
use serde_json::Value;

use super::project::{Project, filters};
use super::worktrees::repository;

/// Prints more than a record may hold: a blob in a file, the same for every run.
const LARGE: &str = "digraph Large {
    start -> print -> exit
    print [shape=parallelogram, script=\"head -c 300000 /dev/zero | tr '\\\\0' x\"]
}";
const FAILS: &str =
    "digraph Fails { start -> f -> exit; f [shape=parallelogram, script=\"exit 3\"] }";
const GATE: &str =
    "digraph Gate { start -> ask -> exit; ask [shape=hexagon] ask -> exit [label=\"[N] No\"] }";

fn project() -> Project {
    let project =
        Project::with(&[("large.fabro", LARGE), ("fails.fabro", FAILS), ("gate.fabro", GATE)]);
    for (file, exit) in [("large", 0), ("large", 0), ("fails", 1), ("gate", 3)] {
        assert_eq!(project.exit(&["run", &format!("{file}.fabro")]), exit, "{file}");
    }
    project
}

/// The workflow of each run, with what it takes beside its records.
fn taken(report: &Value) -> String {
    let runs = report["runs"].as_array().unwrap().iter();
    let line = |run: &Value| {
        assert!(run["records_bytes"].as_u64().unwrap() > 500, "{run}");
        let sum = ["records_bytes", "blobs_bytes", "artifacts_bytes", "files_bytes"];
        let sum: u64 = sum.iter().map(|name| run[*name].as_u64().unwrap()).sum();
        assert_eq!(run["total_bytes"], sum, "{run}");
        let of = |name: &str| run[name].as_u64().unwrap() / 1_000;
        format!(
            "{} {}: {} kB of its own, {} kB shared, {} kB of files",
            run["workflow"].as_str().unwrap(),
            run["status"].as_str().unwrap(),
            of("blobs_bytes"),
            of("shared_blobs_bytes"),
            of("files_bytes"),
        )
    };
    let mut lines: Vec<String> = runs.map(line).collect();
    lines.sort();
    lines.join("\n")
}

#[test]
fn what_runs_take_is_shown() {
    let project = project();
    let report = project.json(&["du", "--json"]);
    assert_snapshot!(taken(&report), @r"
    Fails partially_succeeded: 0 kB of its own, 0 kB shared, 0 kB of files
    Gate paused: 0 kB of its own, 0 kB shared, 0 kB of files
    Large succeeded: 0 kB of its own, 300 kB shared, 300 kB of files
    Large succeeded: 0 kB of its own, 300 kB shared, 300 kB of files
    ");
    assert_eq!(report["blob_files_bytes"], 300_002);
    assert_eq!(report["unnamed_blobs_bytes"], 0);
    let first = project.json(&["du", "latest", "--json"]);
    assert_eq!(first["runs"].as_array().unwrap().len(), 1);
    let mut filters = filters();
    filters.add_filter(r"\d+(\.\d+)? (k|M)?B", "[SIZE]");
    filters.add_filter(r" +", " ");
    let _filters = filters.bind_to_scope();
    assert_snapshot!(project.run(&["du", "latest"]), @r"
    exit 0
    ── stdout
    run status age total records blobs artifacts shared files workflow
    [ID] paused [T] [SIZE] [SIZE] [SIZE] [SIZE] [SIZE] [SIZE] Gate

    [SIZE] in 1 run; the database has [SIZE], of which [SIZE] is free; blobs in files [SIZE]; artifacts [SIZE]
    ");
    assert_snapshot!(Project::new().run(&["du"]), @r"
    exit 0
    ── stderr
    there are no runs yet; start one with `fabro run`
    ");
}

#[test]
fn runs_are_removed_by_conditions() {
    let project = project();
    let selected = |args: &[&str]| {
        let args = [&["prune", "--json"], args].concat();
        let report = project.json(&args);
        let runs = report["runs"].as_array().unwrap().iter();
        let names: Vec<&str> = runs.map(|run| run["workflow"].as_str().unwrap()).collect();
        names.join(" ")
    };
    assert_eq!(selected(&[]), "");
    assert_eq!(selected(&["--older-than", "0s"]), "Fails Large Large");
    assert_eq!(selected(&["--older-than", "1h"]), "");
    assert_eq!(selected(&["--keep", "3"]), "Large");
    assert_eq!(selected(&["--status", "failed,partially_succeeded,paused"]), "Gate Fails");
    assert_eq!(selected(&["--workflow", "Large", "--keep", "3"]), "Large");
    assert_eq!(selected(&["--larger-than", "300kB"]), "Large Large");
    assert_eq!(selected(&["--larger-than", "1GB"]), "");
    assert_eq!(project.json(&["ps", "--json"]).as_array().unwrap().len(), 4, "nothing is removed");

    assert_eq!(selected(&["--workflow", "Large", "--keep", "3", "--force"]), "Large");
    let blob_files = || project.json(&["du", "--json"])["blob_files_bytes"].clone();
    assert_eq!(blob_files(), 300_002, "another run names it");
    assert_eq!(selected(&["--workflow", "Large", "--force"]), "Large");
    assert_eq!(blob_files(), 0);
    assert_eq!(selected(&["--older-than", "0s", "--force"]), "Fails");
    assert_eq!(project.json(&["ps", "--json"])[0]["status"], "paused", "it can be resumed");
    assert_eq!(project.exit(&["verify", "latest"]), 0);
}

#[test]
fn prune_says_what_it_would_do() {
    let project = project();
    let mut filters = filters();
    filters.add_filter(r"\d+(\.\d+)? (k|M)?B", "[SIZE]");
    filters.add_filter(r" +", " ");
    let _filters = filters.bind_to_scope();
    assert_snapshot!(project.run(&["prune"]), @r"
    exit 0
    ── stdout
    No run is selected: name a condition, such as --older-than [T]. --force alone would free about [SIZE].
    ");
    assert_snapshot!(project.run(&["prune", "--older-than", "1d"]), @r"
    exit 0
    ── stdout
    No runs match. --force would free about [SIZE].
    ");
    assert_snapshot!(project.run(&["prune", "--status", "failed,partially_succeeded"]), @r"
    exit 0
    ── stdout
    run status age total records blobs artifacts shared files workflow
    [ID] partially_succeeded [T] [SIZE] [SIZE] [SIZE] [SIZE] [SIZE] [SIZE] Fails

    --force would remove this run and free about [SIZE] of the disk and [SIZE] in the database for later runs.
    ");
    assert_snapshot!(project.run(&["prune", "--workflow", "Large", "--force"]), @r"
    exit 0
    ── stdout
    removed 2 runs, and freed [SIZE] of the disk and [SIZE] in the database for later runs
    ");
    assert_snapshot!(project.run(&["prune", "--status", "running"]), @r"
    exit 2
    ── stderr
    error: invalid value 'running' for '--status <STATUS>': write one or several of succeeded, partially_succeeded, failed, canceled, paused, interrupted

    For more information, try '--help'.
    ");
    assert_snapshot!(project.run(&["prune", "--larger-than", "much"]), @r#"
    exit 2
    ── stderr
    error: invalid value 'much' for '--larger-than <SIZE>': write a size such as 500MB or 2GiB

    For more information, try '--help'.
    "#);
}

#[test]
fn files_that_a_fork_took_over_are_shared() {
    let project = repository(
        "digraph w { start -> one -> exit; one [shape=parallelogram, script=\"echo 1 > one.txt\"] }",
    );
    assert_eq!(project.exit(&["run", "w.fabro", "-q"]), 0);
    assert_eq!(project.exit(&["fork", "latest", "one"]), 0);
    let runs = project.json(&["du", "--json"])["runs"].clone();
    let all = |name: &str| runs.as_array().unwrap().iter().map(|run| run[name].clone()).collect();
    let artifacts: Vec<Value> = all("artifacts_bytes");
    assert_eq!(artifacts, [0, 0]);
    let shared: Vec<Value> = all("shared_files_bytes");
    assert!(shared[0].as_u64() > Some(0) && shared[0] == shared[1], "{runs}");
    let first = runs.as_array().unwrap().iter().find(|run| run["status"] == "succeeded").unwrap();
    let pruned = project.json(&["prune", "--status", "succeeded", "--json", "--force"]);
    // The database may shrink too.
    let freed = pruned["freed_bytes"].as_u64();
    assert!(freed >= first["files_bytes"].as_u64() && freed > Some(0), "{pruned}: {first}");
    let forked = &project.json(&["du", "--json"])["runs"][0];
    assert_eq!(forked["shared_files_bytes"], 0, "the fork keeps what it shared, and has it alone");
}

#[test]
fn runs_may_be_pruned_by_several_at_once() {
    let project = Project::with(&[("fails.fabro", FAILS)]);
    for _ in 0..12 {
        assert_eq!(project.exit(&["run", "fails.fabro"]), 1);
    }
    let args = ["prune", "--force", "--status", "partially_succeeded"];
    let prune = |_| project.command(&args).stderr(Stdio::piped()).spawn().unwrap();
    let begun: Vec<_> = (0..4).map(prune).collect();
    for child in begun {
        let shown = project.shown(&child.wait_with_output().unwrap());
        assert!(shown.starts_with("exit 0\n") && !shown.contains("there is no run"), "{shown}");
    }
    assert_eq!(project.json(&["ps", "--json"]).as_array().unwrap().len(), 0);
}
