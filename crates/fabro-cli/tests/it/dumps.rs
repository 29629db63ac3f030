//! Everything a run recorded, as files.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use walkdir::WalkDir;

use crate::project::Project;

/// The files below a directory, with their contents.
fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = WalkDir::new(dir).sort_by_file_name().into_iter().map(Result::unwrap);
    let files = entries.filter(|entry| entry.file_type().is_file());
    let read = files.map(|entry| {
        let path = entry.path().strip_prefix(dir).unwrap().to_string_lossy().into_owned();
        (path, fs::read(entry.path()).unwrap())
    });
    read.collect()
}

fn dumped() -> Project {
    let project = Project::new();
    project.write(
        "child.fabro",
        b"digraph C { start -> x -> exit x [shape=parallelogram, script=\"echo child\"] }",
    );
    project.write(
        "w.fabro",
        b"digraph W { start -> plan -> test -> sub -> exit
        plan [shape=tab, prompt=\"Plan it\"]
        test [shape=parallelogram, retry_policy=standard, script=\"echo out; echo err >&2; test -e again || { touch again; exit 1; }\"]
        sub [shape=house, stack.child_workflow=\"child.fabro\", manager.poll_interval=1s] }",
    );
    project.write("model.json", br#"{"plan": [{"text": "The plan"}]}"#);
    assert_eq!(project.exit(&["run", "w.fabro", "--model-script", "model.json"]), 0);
    project
}

#[test]
fn a_dump_has_what_the_run_recorded() {
    let project = dumped();
    assert_eq!(project.exit(&["dump", "latest", "-o", "out"]), 0);
    let dir = project.path().join("out");
    assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    let names: Vec<String> = files(&dir).into_iter().map(|(name, _)| name).collect();
    insta::assert_snapshot!(names.join("\n"));
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
    let place = project.path().to_string_lossy().into_owned();
    let printed = |name: &str| format!("exit 0\n── stdout\n{}", read(name).replace(&place, "DIR"));
    assert_eq!(printed("events.jsonl"), project.run(&["events", "latest", "--json"]));
    let report: serde_json::Value = serde_json::from_str(&read("run.json")).unwrap();
    assert_eq!(report["status"], "succeeded");
    assert_eq!(read("stages/002-plan@1/prompt.md"), "Plan it");
    assert_eq!(read("stages/002-plan@1/response.md"), "The plan");
    assert_eq!(
        read("stages/002-plan@1/conversation.md"),
        "# plan@1\n\n## 1. user\n\n> Plan it\n\n## 2. assistant\n\n> The plan\n"
    );
    assert_eq!(read("stages/003-test@1/attempt-1/stdout.log"), "out\n");
    assert_eq!(read("stages/003-test@1/stderr.log"), "err");
    assert_eq!(read("children/004-sub@1/stages/002-x@1/stdout.log"), "child");
}

#[test]
fn dumps_of_one_log_are_the_same() {
    let project = dumped();
    for target in ["one", "two", "one.zip", "two.zip"] {
        assert_eq!(project.exit(&["dump", "-o", target]), 0);
    }
    assert_eq!(files(&project.path().join("one")), files(&project.path().join("two")));
    let zip = |name: &str| fs::read(project.path().join(name)).unwrap();
    assert_eq!(zip("one.zip"), zip("two.zip"));
    let mut archive = zip::ZipArchive::new(std::io::Cursor::new(zip("one.zip"))).unwrap();
    for (name, bytes) in files(&project.path().join("one")) {
        let mut file = archive.by_name(&name).unwrap();
        let mut found = Vec::new();
        std::io::copy(&mut file, &mut found).unwrap();
        assert_eq!(found, bytes, "{name}");
    }
    assert_eq!(archive.len(), files(&project.path().join("one")).len());
}

#[test]
fn large_values_are_filled_in_unless_references_are_wanted() {
    let project = dumped();
    assert_eq!(project.exit(&["dump", "-o", "values"]), 0);
    assert_eq!(project.exit(&["dump", "-o", "references", "--no-blobs"]), 0);
    let status = |dir: &str| project.read(&format!("{dir}/stages/003-test@1/status.json"));
    assert!(status("values").contains(r#""command.output": "out""#), "{}", status("values"));
    assert!(status("references").contains(r#""command.output": "blob://sha256/"#));
}

#[test]
fn a_directory_with_files_is_refused() {
    let project = dumped();
    fs::create_dir(project.path().join("empty")).unwrap();
    assert_eq!(project.exit(&["dump", "-o", "empty"]), 0);
    insta::assert_snapshot!(project.run(&["dump", "-o", "empty"]), @r"
    exit 2
    ── stderr
    error: the directory empty is not empty
      help: name a new or an empty one with -o
    ");
    insta::assert_snapshot!(project.run(&["dump", "-o", "w.fabro"]), @r"
    exit 2
    ── stderr
    error: write w.fabro: Not a directory (os error 20)
      help: name a directory or a `.zip` file with -o
    ");
    assert!(files(project.path()).iter().all(|(name, _)| !name.contains(".fabro-dump-")));
}

#[test]
fn each_sub_workflow_of_a_list_and_of_a_retry_has_a_folder() {
    let source = r#"digraph {
        start -> list -> each -> s -> join -> again -> exit
        list [shape=parallelogram, script="printf 'a\nb\n'"]
        each [shape=component, for_each="command.output"]; join [shape=tripleoctagon]
        s [shape=house, stack.child_workflow="child.fabro"]
        again [shape=house, stack.child_workflow="child.fabro", inputs.fails=yes, retry_policy=standard, max_retries=1, on_failure=continue]
    }"#;
    let child = r#"digraph {
        start -> w; w -> exit [condition="outcome=success"]
        w [shape=parallelogram, env.FAILS="{{ inputs.fails | default('') }}",
           script="mkdir -p test-results && echo $$ > test-results/r.txt; test -z \"$FAILS\""]
    }"#;
    let project = Project::with(&[("flow.fabro", source), ("child.fabro", child)]);
    let shown = project.run(&["run", "flow.fabro"]);
    assert!(shown.starts_with("exit 0\n"), "{shown}");
    let shown = project.run(&["dump", "latest", "-o", "out"]);
    assert!(shown.starts_with("exit 0\n"), "{shown}");
    let children = std::fs::read_dir(project.path().join("out/children")).unwrap();
    let mut names: Vec<_> =
        children.map(|dir| dir.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    insta::assert_snapshot!(names.join(" "), @"004-s@1 005-s@1 007-again@1 007-again@1.2");
    let listed = project.json(&["artifact", "list", "latest", "--json"]);
    assert_eq!(listed.as_array().unwrap().len(), 4, "{listed}");
    assert_eq!(project.exit(&["artifact", "cp", "latest", "files"]), 0);
}
