//! Few descriptors, full disks, files without an end.

use std::fmt::Write as _;
use std::process::{Command, Output, Stdio};

use crate::project::Project;

/// A fan-out of so many scripts, all of which may run at once.
fn many_branches(count: usize) -> String {
    let mut source = format!(
        "digraph {{ start -> fork; fork [shape=component, max_parallel={count}]; merge [shape=tripleoctagon]; merge -> exit\n"
    );
    for at in 0..count {
        let _ = writeln!(
            source,
            "s{at} [shape=parallelogram, script=\"echo {at} | cat\"]; fork -> s{at} -> merge"
        );
    }
    source + "}"
}

/// Runs the command in a shell that prepares something first.
fn in_shell(project: &Project, before: &str, args: &[&str]) -> Output {
    let command = project.command(args);
    let mut shell = Command::new("bash");
    shell.args(["-c", &format!("{before}; exec \"$0\" \"$@\"")]);
    shell.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.current_dir(project.path()).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn many_branches_share_few_descriptors() {
    let project = Project::with(&[("flow.fabro", &many_branches(200))]);
    for before in ["ulimit -n 64", "ulimit -Sn 32"] {
        let output = in_shell(&project, before, &["run", "flow.fabro", "--json"]);
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{before}: {}", String::from_utf8_lossy(&output.stderr));
        let ends = shown.lines().filter(|line| line.contains("\"stage.completed\""));
        assert_eq!(ends.filter(|line| line.contains("\"branch\":\"fork@1/")).count(), 200);
    }
}

#[test]
fn a_stdout_that_takes_nothing_is_an_error() {
    let project = Project::hello();
    for args in [
        &["run", "hello", "--json"][..],
        &["events", "latest", "--json"],
        &["ps", "--json"],
        &["inspect", "latest", "--json"],
        &["context", "latest", "--json"],
        &["explain", "latest", "write", "--json"],
        &["validate", "hello", "--format", "json"],
        &["cost", "latest", "--json"],
        &["model", "list", "--json"],
        &["replay", "latest", "--json"],
        &["logs", "latest"],
        &["--help"],
        &["run", "--help"],
    ] {
        let full = std::fs::File::create("/dev/full").unwrap();
        let mut command = project.command(args);
        let output = command.stdout(full).stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(4), "{args:?}: {said}");
        assert!(said.contains("stdout cannot be written"), "{args:?}: {said}");
        // One that is closed is no error: its reader has seen enough.
        let closed = std::io::pipe().unwrap().1;
        let output = project.command(args).stdout(closed).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{args:?}");
    }
}

#[test]
fn files_without_an_end_are_refused_at_once() {
    let flow = "digraph { start -> a -> exit; a [shape=parallelogram, script=true] }";
    let named = r#"digraph { start -> a -> exit; a [prompt="@huge"] }"#;
    let project = Project::with(&[("flow.fabro", flow), ("named.fabro", named)]);
    let huge = std::fs::File::create(project.path().join("huge")).unwrap();
    huge.set_len(1 << 40).unwrap();
    std::fs::hard_link(project.path().join("huge"), project.path().join("huge.fabro")).unwrap();
    std::fs::hard_link(project.path().join("huge"), project.path().join("huge.toml")).unwrap();
    let fifo = project.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for args in [
        &["validate", "huge.fabro"][..],
        &["validate", "named.fabro"],
        &["fmt", "huge.fabro"],
        &["run", "huge.fabro"],
        &["run", "huge.toml"],
        &["run", "named.fabro"],
        &["run", "flow.fabro", "--answers", "huge"],
        &["run", "flow.fabro", "--answers", "pipe"],
        &["run", "flow.fabro", "--answers", "/dev/zero"],
        &["run", "flow.fabro", "--model-script", "huge"],
        &["run", "flow.fabro", "--model-script", "pipe"],
        &["run", "flow.fabro", "--model-script", "/dev/zero"],
        &["run", "pipe"],
        &["run", "/dev/zero"],
    ] {
        let code = project.exit(args);
        assert!([1, 2].contains(&code), "{args:?}: {code}");
    }
}

#[test]
fn a_working_directory_that_is_gone_is_named() {
    let flow = r#"digraph { start -> ask -> a -> exit; ask [shape=hexagon]; ask -> a [label="[Y] yes"]
        a [shape=parallelogram, script="echo ran"] }"#;
    let project = Project::with(&[("work/flow.fabro", flow)]);
    let work = project.path().join("work");
    let store = project.path().join("store").display().to_string();
    let mut command = project.command(&["run", "flow.fabro", "--store", &store]);
    assert_eq!(command.current_dir(&work).output().unwrap().status.code(), Some(3));
    std::fs::rename(&work, project.path().join("moved")).unwrap();
    assert_eq!(project.exit(&["answer", "--no-resume", "latest", "y", "--store", &store]), 0);
    let shown = project.run(&["resume", "latest", "--store", &store]);
    assert!(shown.contains("the run's working directory DIR/work is gone"), "{shown}");
    assert!(!shown.starts_with("exit 0"));
    std::fs::rename(project.path().join("moved"), &work).unwrap();
    assert_eq!(project.exit(&["resume", "latest", "--store", &store]), 0);
}
