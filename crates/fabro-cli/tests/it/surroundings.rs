//! The environment of a run: inherited signals, a repository that git refuses, owners of files.

use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::Path;

use super::project::Project;

const WORKFLOW: &str =
    r#"digraph W { start -> a -> exit; a [script="echo more >> f; true", on_failure=stop] }"#;

/// A project with the workflow in a git repository.
fn repository() -> Project {
    let project = Project::with(&[("w.fabro", WORKFLOW), ("f", "one\n")]);
    let script = "git init -q && git add f && git -c user.name=n -c user.email=e commit -qm x";
    assert!(project.program("sh").args(["-c", script]).status().unwrap().success());
    project
}

#[test]
fn ignored_and_blocked_signals_of_the_parent_are_reset() {
    let project = repository();
    let fabro = env!("CARGO_BIN_EXE_fabro");
    let blocked = "import os, signal, sys\nsignal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nos.execv(sys.argv[1], sys.argv[1:])";
    let script = "grep -E 'SigBlk|SigIgn' /proc/self/status > signals.txt; git --version > git.txt";
    let workflow =
        format!(r#"digraph W {{ start -> a -> exit; a [script="{script}", on_failure=stop] }}"#);
    project.write("w.fabro", workflow.as_bytes());
    let mut command = project.program("python3");
    let output =
        command.args(["-c", blocked, fabro, "run", "w.fabro", "--quiet"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(project.read("git.txt").starts_with("git version"), "{text}");
    let signals = project.read_or_default("signals.txt");
    let masks = signals.lines().filter_map(|line| line.split_once(':'));
    for (name, mask) in masks {
        let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
        let child = 1 << (17 - 1);
        assert_eq!(if name == "SigBlk" { mask } else { mask & child }, 0, "{signals}");
    }
}

/// What `verify` and `doctor` say after a run in this project.
fn checked(project: &Project) -> String {
    assert_eq!(project.exit(&["run", "w.fabro", "--quiet"]), 0);
    let doctor = project.run(&["doctor"]);
    assert!(!doctor.contains("damaged"), "{doctor}");
    let verified = project.run(&["verify"]);
    assert!(verified.starts_with("exit 0"), "{verified}");
    verified
}

#[test]
fn a_repository_that_git_refuses_is_not_damage() {
    let project = repository();
    project.write(".git/index", b"x");
    let verified = checked(&project);
    let said = "not damaged, but changes of stages were not recorded: the files that stages touch are not known: \
                git status failed: fatal: .git/index: index file smaller than expected";
    assert!(verified.contains(said), "{verified}");
    let whole = repository();
    assert!(!checked(&whole).contains("not recorded"));
}

#[test]
fn a_repository_of_another_owner_is_not_damage() {
    let project = repository();
    // Only root can change owners.
    if chown(project.path().join(".git"), Some(4321), Some(4321)).is_err() {
        return;
    }
    let verified = checked(&project);
    assert!(verified.contains("detected dubious ownership"), "{verified}");
}

#[test]
fn files_of_a_root_run_belong_to_the_owner_of_the_store() {
    let project = repository();
    assert_eq!(project.exit(&["run", "w.fabro", "--quiet"]), 0);
    let store = project.path().join(".fabro/state");
    let give = |path: &Path| chown(path, Some(4321), Some(4322));
    if give(&store).is_err() {
        return;
    }
    each_below(&store, &mut |path| give(path).unwrap());
    let large = r#"digraph W { start -> a -> b -> exit; a [script="yes | head -c 300000", on_failure=stop]; b [shape=hexagon] }"#;
    project.write("w.fabro", large.as_bytes());
    assert_eq!(project.exit(&["run", "w.fabro", "--quiet"]), 2);
    // The directory is not that user's: the store has to be named.
    let named = ["run", "w.fabro", "--quiet", "--store", ".fabro/state", "--auto-approve"];
    assert_eq!(project.exit(&named[..5]), 3);
    assert_eq!(project.exit(&named), 0);
    each_below(&store, &mut |path| {
        let about = std::fs::symlink_metadata(path).unwrap();
        assert_eq!((about.uid(), about.gid()), (4321, 4322), "{}", path.display());
    });
}

fn each_below(dir: &Path, act: &mut dyn FnMut(&Path)) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        act(&path);
        if std::fs::symlink_metadata(&path).unwrap().is_dir() {
            each_below(&path, act);
        }
    }
}
