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
