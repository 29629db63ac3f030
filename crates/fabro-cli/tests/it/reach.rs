//! Prompt injection, for each permission and each sandbox available here: docs/security.md's guarantees hold after the
//! stage, and no gate is answered. Sandboxes that are missing are skipped with a message.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use super::project::Project;
use super::remote_sandboxes::Place;
use super::sandboxes::bubblewrap_works;

/// Control files that do not exist before.
const PLANTED: [&str; 14] = [
    "CLAUDE.local.md",
    "sub/AGENTS.override.md",
    "fabro.toml",
    "sub/fabro.toml",
    "sub/.fabro/config.toml",
    "deep/down/.fabro/project.toml",
    ".fabro/config.toml",
    "flows/release.fabro",
    "sub/run.toml",
    "AGENTS.md",
    "sub/CLAUDE.md",
    ".github/copilot-instructions.md",
    ".claude/skills/x/SKILL.md",
    ".mcp.json",
];

/// Existing control files, with their text.
const THERE: [(&str, &str); 4] = [
    ("there/fabro.toml", "_version = 1\n"),
    ("there/GEMINI.md", "mine\n"),
    ("there/flow.dot", "digraph { start -> exit }\n"),
    (".claude/settings.json", "{}\n"),
];

const KEY: &str = "fabro_key_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG";

const WORKFLOW: &str = r#"digraph W {
    start -> a -> g
    a [prompt="p", permissions=PERMISSIONS]
    g [shape=hexagon, label="Go on?"]
    g -> yes [label="Yes"]
    g -> exit [label="No"]
    yes [shape=parallelogram, script="touch answered"]
    yes -> exit
}"#;

/// The tool calls that the planted instruction makes the agent send.
fn model_script() -> String {
    let call =
        |name: &str, arguments: serde_json::Value| json!({ "name": name, "arguments": arguments });
    let there = THERE.map(|(name, _)| name);
    let all = || PLANTED.into_iter().chain(there);
    let mut calls: Vec<_> = all()
        .map(|name| call("write_file", json!({ "file_path": name, "content": "planted" })))
        .collect();
    calls.push(call("write_file", json!({ "file_path": "ordinary.md", "content": "x" })));
    for path in [".fabro/state/server.key", ".fabro/state/fabro.db", "link"] {
        calls.push(call("read_file", json!({ "file_path": path })));
    }
    calls.push(call("grep", json!({ "pattern": "fabro_key" })));
    let program = env!("CARGO_BIN_EXE_fabro");
    let plant = all()
        .map(|name| format!("mkdir -p \"$(dirname {name})\"; echo planted > {name}; rm -rf {name}.old; mv {name} {name}.old; echo planted > {name}\n"))
        .collect::<Vec<_>>().concat();
    let commands = format!(
        "exec 2>&1\n{plant}mv there elsewhere; mkdir -p there; echo planted > there/fabro.toml\n\
         {program} answer latest Yes; env -u FABRO_AGENT {program} answer latest Yes; {program} cancel latest\n\
         (while sleep 0.05; do env -u FABRO_AGENT setsid {program} answer latest Yes; done) </dev/null >/dev/null 2>&1 &\n\
         echo done"
    );
    calls.push(call("shell", json!({ "command": commands })));
    json!({ "a": [{ "tool_calls": calls }, { "text": "done" }] }).to_string()
}

fn project(permissions: &str, settings: &str) -> Project {
    let toml = format!("_version = 1\n[workflow]\ngraph = 'w.fabro'\n{settings}");
    let workflow = WORKFLOW.replace("PERMISSIONS", permissions);
    let project = Project::with(&[
        ("w.fabro", &workflow),
        ("run.toml", &toml),
        ("m.json", &model_script()),
        (".fabro/state/server.key", KEY),
    ]);
    for (name, text) in THERE {
        project.write(name, text.as_bytes());
    }
    std::os::unix::fs::symlink(".fabro/state/server.key", project.path().join("link")).unwrap();
    project
}

/// The files below a directory, without the store.
fn files(root: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() && !path.is_symlink() && !path.ends_with(".fabro/state") {
                open.push(path);
            } else {
                found.insert(path.strip_prefix(root).unwrap().display().to_string());
            }
        }
    }
    found
}

#[track_caller]
fn check(what: &str, project: &Project, is_free: bool, home: &Path, place: Option<&Place>) {
    let args = ["run", "run.toml", "--model-script", "m.json", "-q"];
    let mut run = match place {
        Some(place) => place.command(project, &args),
        None => project.command(&args),
    };
    let output = run.env("HOME", home).output().unwrap();
    let text = project.shown(&output);
    assert_eq!(output.status.code(), Some(3), "{what}: {text}");
    let run = project.json(&["inspect", "latest", "--json"]);
    assert_eq!(run["status"], "paused", "{what}");
    assert_eq!(run["gates"].as_array().map(Vec::len), Some(1), "{what}: {run:#}");
    assert!(!project.path().join("answered").exists(), "{what}");
    let events = project.run(&["events", "latest", "--json"]);
    assert!(!events.contains(&KEY["fabro_key_".len()..]), "{what}: the key is recorded");
    if is_free {
        return;
    }
    let found = files(project.path());
    for name in PLANTED {
        assert!(!found.contains(name), "{what}: {name} was planted");
    }
    for (name, text) in THERE {
        assert_eq!(project.read(name), text, "{what}: {name}");
    }
    let kept = ["w.fabro", "run.toml"].map(|name| project.read(name));
    assert!(!kept.concat().contains("planted"), "{what}");
}

const PERMISSIONS: [&str; 3] = ["\"read-only\"", "\"read-write\"", "full"];

#[test]
fn planted_instructions_are_contained_locally() {
    let home = tempfile::tempdir().unwrap();
    for permissions in PERMISSIONS {
        let project = project(permissions, "");
        check(&format!("local, {permissions}"), &project, permissions == "full", home.path(), None);
    }
}

#[test]
fn planted_instructions_are_contained_in_bubblewrap() {
    if !bubblewrap_works() {
        eprintln!("skipped: bubblewrap does not work here");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    for permissions in PERMISSIONS {
        let project = project(permissions, "[run.sandbox]\nprovider = 'bwrap'\n");
        check(&format!("bwrap, {permissions}"), &project, false, home.path(), None);
        // Nothing is left for the next run either.
        let next = project.run(&["validate", "w.fabro"]);
        assert!(next.starts_with("exit 0"), "{next}");
    }
}

/// The driver is killed while a script runs: its successor checks by what was there before the script.
#[test]
fn a_killed_driver_leaves_no_settings() {
    if !bubblewrap_works() {
        eprintln!("skipped: bubblewrap does not work here");
        return;
    }
    for end in ["resume", "cancel"] {
        let workflow = r#"digraph W { start -> a -> exit
            a [shape=parallelogram, script="test -e go && exit; echo > fabro.toml; touch up; sleep 600"] }"#;
        let toml =
            "_version = 1\n[workflow]\ngraph = 'w.fabro'\n[run.sandbox]\nprovider = 'bwrap'\n";
        let project = Project::with(&[("w.fabro", workflow), ("run.toml", toml)]);
        let mut driver = project.command(&["run", "run.toml", "-q"]).spawn().unwrap();
        let until = Instant::now() + Duration::from_mins(1);
        while !project.path().join("up").exists() {
            assert!(Instant::now() < until, "the script has not started");
            std::thread::sleep(Duration::from_millis(10));
        }
        driver.kill().unwrap();
        driver.wait().unwrap();
        project.write("go", b"");
        let text = project.run(&[end, "latest"]);
        assert!(text.starts_with("exit 0"), "{text}");
        assert!(text.contains("renamed to fabro.toml.from-sandbox"), "{end}: {text}");
        assert!(!project.path().join("fabro.toml").exists(), "{end}");
    }
}

#[test]
fn planted_instructions_are_contained_remotely() {
    let places = Place::all();
    if places.is_empty() {
        eprintln!("skipped: there is no engine and no server of ssh here");
    }
    let home = tempfile::tempdir().unwrap();
    for place in places {
        for permissions in PERMISSIONS {
            let project = project(permissions, &place.settings());
            check(
                &format!("{}, {permissions}", place.settings()),
                &project,
                false,
                home.path(),
                Some(&place),
            );
        }
    }
}

/// A workflow that needs no model.
const TRUE: &str = "digraph { start -> s -> exit; s [shape=parallelogram, script=\"true\"] }";

#[test]
fn settings_that_agents_may_write_are_refused() {
    let files = [("w.fabro", TRUE), ("conf/settings.toml", "_version = 1\n"), (".fabro/x", "")];
    let project = Project::with(&files);
    let link = project.path().join(".fabro/config.toml");
    std::os::unix::fs::symlink("../conf/settings.toml", &link).unwrap();
    for args in [&["run", "w.fabro"][..], &["validate", "w.fabro"], &["settings"]] {
        let text = project.run(args);
        assert!(text.contains("settings.toml, which agents may write"), "{args:?}: {text}");
    }
    std::fs::rename(project.path().join("conf/settings.toml"), link).unwrap();
    assert_eq!(project.exit(&["run", "w.fabro"]), 0);
}

#[test]
fn a_repository_in_a_project_does_not_hide_its_settings() {
    let project = Project::with(&[("sub/w.fabro", TRUE), (".fabro/config.toml", "_version = 1\n")]);
    let sub = |args: &[&str]| {
        let output =
            project.command(args).current_dir(project.path().join("sub")).output().unwrap();
        (output.status.code(), project.shown(&output))
    };
    assert_eq!(sub(&["run", "w.fabro"]).0, Some(0));
    project.write("sub/.git/HEAD", b"");
    // The second time a store may be there.
    for _ in 0..2 {
        for command in ["run", "validate"] {
            let (code, text) = sub(&[command, "w.fabro"]);
            assert!(code != Some(0) && text.contains("do not apply here"), "{text}");
        }
        assert_eq!(sub(&["ps"]).0, Some(0));
    }
    assert_eq!(sub(&["init"]).0, Some(0));
    assert_eq!(sub(&["run", "w.fabro"]).0, Some(0));
}

#[test]
fn a_run_does_not_work_in_settings_or_in_its_store() {
    let project = Project::with(&[("w.fabro", TRUE), (".fabro/config.toml", "_version = 1\n")]);
    for (dir, args) in
        [(".fabro", &["run", "../w.fabro"][..]), ("", &["run", "w.fabro", "--store", "."])]
    {
        let output = project.command(args).current_dir(project.path().join(dir)).output().unwrap();
        let text = project.shown(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("which agents may not write"), "{text}");
    }
}

#[test]
fn commands_that_change_runs_refuse_agents() {
    let project = Project::hello();
    for args in [
        &["answer", "latest", "y"][..],
        &["steer", "latest", "x"],
        &["resume", "latest"],
        &["cancel", "latest"],
        &["fork", "latest"],
        &["rewind", "latest"],
        &["rm", "latest"],
        &["prune"],
        &["serve", "--port", "0"],
        &["mcp", "serve"],
        &["compact", "latest", "hello", "--apply"],
        &["verify", "--accept-loss"],
        &["sandbox", "shell", "latest"],
    ] {
        let output = project.command(args).env("FABRO_AGENT", "1").output().unwrap();
        let text = project.shown(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
        assert!(text.contains("belongs to an agent of a run, which may not change runs"), "{text}");
    }
    for args in [&["ps"][..], &["inspect", "latest"], &["verify"]] {
        let output = project.command(args).env("FABRO_AGENT", "1").output().unwrap();
        assert!(output.status.success(), "{args:?}");
    }
    // The variable is unset, but a parent shell has it.
    #[cfg(target_os = "linux")]
    {
        let script =
            format!("env -u FABRO_AGENT {} cancel latest; exit $?", env!("CARGO_BIN_EXE_fabro"));
        let mut shell = project.program("bash");
        let output = shell.args(["-c", &script]).env("FABRO_AGENT", "1").output().unwrap();
        let text = project.shown(&output);
        assert!(text.contains("(`bash`) belongs to an agent of a run"), "{text}");
    }
    assert_eq!(project.json(&["ps", "--json"])[0]["status"], "succeeded");
}
