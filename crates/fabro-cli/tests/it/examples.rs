//! Every folder below `examples/` is a workflow that runs to its end with its recorded answers.

use std::fs;
use std::path::{Path, PathBuf};

use crate::project::Project;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The folders with a run.toml.
fn names() -> Vec<String> {
    let entries = fs::read_dir(examples()).unwrap().map(Result::unwrap);
    let workflows = entries.filter(|entry| entry.path().join("run.toml").is_file());
    let mut names: Vec<_> =
        workflows.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn every_example_succeeds_with_its_recorded_answers() {
    for name in names() {
        let project = Project::with(&[]);
        copy(&examples().join(&name), &project.path().join("examples").join(&name));
        let file = format!("examples/{name}/run.toml");
        let answers = format!("examples/{name}/answers.json");
        let checked = project.json(&["validate", &file, "--format", "json"]);
        assert!(checked["files"][0]["findings"].as_array().unwrap().is_empty(), "{checked}");
        let mut args = vec!["run", &*file];
        if project.path().join(&answers).is_file() {
            args.extend(["--answers", &*answers]);
        }
        let shown = project.run(&args);
        assert!(shown.starts_with("exit 0\n"), "{name}: {shown}");
        let walked = project.run(&["run", &file, "--dry-run"]);
        assert!(walked.starts_with("exit 0\n"), "{name}: {walked}");
    }
}

#[test]
fn the_list_names_every_example() {
    let list = fs::read_to_string(examples().join("README.md")).unwrap();
    let names = names();
    assert!(names.len() >= 8, "{names:?}");
    for name in names {
        assert!(list.contains(&format!("({name}/README.md)")), "{name}");
        let page = fs::read_to_string(examples().join(&name).join("README.md")).unwrap();
        assert!(page.contains(&format!("fabro run examples/{name}/run.toml")), "{name}");
    }
}
