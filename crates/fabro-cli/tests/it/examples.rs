//! Every folder below `examples/` is a workflow that runs to its end with its recorded answers, and that changes no file
//! of the folder in which it is started.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

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

/// Files that a user may have in the directory where a workflow starts.
const USER_FILES: [&str; 20] = [
    "Cargo.toml",
    "NOTES.md",
    "README.md",
    "fix.patch",
    "log",
    "model.json",
    "notes/backup.md",
    "notes/mine.md",
    "plan.md",
    "project/roman.py",
    "public/report.csv",
    "release/1.4.0/NOTES.md",
    "report.csv",
    "report.md",
    "review.md",
    "src/main.rs",
    "tests/test_roman.py",
    "triage.csv",
    "work/project/stats.py",
    "work/roman.py",
];

/// Writes the user's files: those above, and one for each name of a file in the scripts, prompts and pages of a workflow.
fn write_user_files(project: &Project, workflow: &Path) {
    let names =
        Regex::new(r"[\w-]+(/[\w-]+)*\.(csv|json|log|md|patch|py|sh|toml|txt|yml)\b").unwrap();
    let mut all: Vec<_> = USER_FILES.map(str::to_owned).to_vec();
    for path in files(workflow).into_keys() {
        let text = fs::read_to_string(workflow.join(&path)).unwrap();
        all.extend(names.find_iter(&text).map(|name| name.as_str().to_owned()));
    }
    for name in all.iter().filter(|name| !name.contains("-demo/")) {
        if !project.path().join(name).exists() {
            project.write(name, format!("{name} of the user\n").as_bytes());
        }
    }
}

/// The files below a directory with their contents, without the store.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let walk = walkdir::WalkDir::new(dir).into_iter();
    let walk = walk.filter_entry(|entry| !entry.path().ends_with(".fabro/state"));
    let paths = walk.map(|entry| entry.unwrap().into_path()).filter(|path| !path.is_dir());
    let read = |path: PathBuf| {
        let bytes = fs::read(&path).unwrap();
        (path.strip_prefix(dir).unwrap().to_owned(), bytes)
    };
    paths.map(read).collect()
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
    assert!(list.lines().all(|line| line.chars().count() <= 80), "{list}");
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

#[test]
fn the_demo_changes_no_file() {
    let project = Project::new();
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/demo");
    copy(&demo, &project.path().join("fixtures/demo"));
    succeeds(&project, "fixtures/demo/run.toml", "fixtures/demo");
}

#[test]
fn a_folder_with_the_name_of_a_demo_is_left_alone() {
    for (name, file) in [("fix-until-green", "roman.py"), ("red-ci", "stats.py")] {
        let project = Project::new();
        project.run(&["init", "--template", name]);
        let mine = format!("{name}-demo/{file}");
        project.write(&mine, b"print('mine')\n");
        let before = files(project.path());
        let shown = project.run(&["run", name]);
        assert!(shown.starts_with("exit 1\n"), "{shown}");
        assert!(
            shown.contains(&format!("{name}-demo")) && shown.contains("File exists"),
            "{shown}"
        );
        assert_eq!(files(project.path()), before, "{name}");
    }
}

/// The workflow of this run.toml has no finding and ends well, with recorded answers, twice, and in a dry run. No file
/// of the user is changed, and none is added.
#[track_caller]
fn succeeds(project: &Project, file: &str, dir: &str) {
    write_user_files(project, &project.path().join(dir));
    let before = files(project.path());
    let answers = format!("{dir}/answers.json");
    let checked = project.json(&["validate", file, "--format", "json"]);
    assert!(checked["files"][0]["findings"].as_array().unwrap().is_empty(), "{checked}");
    let mut args = vec!["run", file];
    if project.path().join(&answers).is_file() {
        args.extend(["--answers", &*answers]);
    }
    for args in [&*args, &*args, &["run", file, "--dry-run"]] {
        let shown = project.run(args);
        assert!(shown.starts_with("exit 0\n"), "{file}: {shown}");
    }
    let after = files(project.path());
    let changed = after.keys().chain(before.keys()).filter(|it| after.get(*it) != before.get(*it));
    assert_eq!(changed.collect::<Vec<_>>(), Vec::<&PathBuf>::new(), "{file} changed files");
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
