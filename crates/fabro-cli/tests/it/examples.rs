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
        let project = Project::new();
        copy(&examples().join(&name), &project.path().join("examples").join(&name));
        succeeds(&project, &format!("examples/{name}/run.toml"), &format!("examples/{name}"));
    }
}

#[test]
fn every_template_makes_a_workflow_that_succeeds() {
    let project = Project::new();
    let list = project.run(&["init", "--list"]);
    let rows = list.lines().skip(3).take_while(|line| !line.is_empty());
    let templates: Vec<_> = rows.map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    assert!(list.ends_with("\n\ncreate one here with: fabro init --template NAME\n"), "{list}");
    let hello = "hello".to_owned();
    let mut expected = names();
    expected.push(hello);
    expected.sort();
    let mut found = templates.clone();
    found.sort();
    assert_eq!(found, expected, "{list}");
    for name in templates {
        let project = Project::new();
        let made = project.run(&["init", "--template", &name]);
        assert!(made.ends_with(&format!("run it with: fabro run {name}\n")), "{made}");
        let dir = format!(".fabro/workflows/{name}");
        succeeds(&project, &format!("{dir}/workflow.toml"), &dir);
        if name != "hello" {
            let page = project.read(&format!("{dir}/README.md"));
            assert!(page.contains(&format!("fabro run {name}")), "{page}");
            assert!(!page.contains("examples/"), "{page}");
            let script = format!("{dir}/model.json");
            let has_script = project.path().join(&script).is_file();
            assert_eq!(page.contains(&format!("--model-script {script}")), has_script, "{page}");
        }
        assert_eq!(project.exit(&["init", "--template", &name]), 2);
    }
}

/// The workflow of this run.toml has no finding and ends well, with recorded answers and in a dry run.
#[track_caller]
fn succeeds(project: &Project, file: &str, dir: &str) {
    let answers = format!("{dir}/answers.json");
    let checked = project.json(&["validate", file, "--format", "json"]);
    assert!(checked["files"][0]["findings"].as_array().unwrap().is_empty(), "{checked}");
    let mut args = vec!["run", file];
    if project.path().join(&answers).is_file() {
        args.extend(["--answers", &*answers]);
    }
    for args in [&*args, &["run", file, "--dry-run"]] {
        let shown = project.run(args);
        assert!(shown.starts_with("exit 0\n"), "{file}: {shown}");
    }
}

#[test]
fn the_list_names_every_example() {
    let list = fs::read_to_string(examples().join("README.md")).unwrap();
    let names = names();
    assert!(names.len() >= 10, "{names:?}");
    for name in names {
        assert!(list.contains(&format!("({name}/README.md)")), "{name}");
        let page = fs::read_to_string(examples().join(&name).join("README.md")).unwrap();
        assert!(page.contains(&format!("fabro run examples/{name}/run.toml")), "{name}");
    }
}
