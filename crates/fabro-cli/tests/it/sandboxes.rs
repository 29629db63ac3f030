//! `fabro run --sandbox bwrap` and `fabro sandbox`. Skipped aloud where bubblewrap is not installed.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use serde_json::json;

use super::project::{Project, filters};

/// A project with a home directory of its own.
struct Confined {
    project: Project,
    home: tempfile::TempDir,
}

impl Confined {
    #[expect(clippy::print_stderr, reason = "a skipped test says so")]
    fn new(files: &[(&str, &str)]) -> Option<Self> {
        if !bubblewrap_works() {
            eprintln!("skipped: bubblewrap does not work here");
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".ssh")).unwrap();
        std::fs::write(home.path().join(".ssh/id"), "the-key").unwrap();
        Some(Self { project: Project::with(files), home })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.project.command(args);
        command.env("HOME", self.home.path()).env("SECRET_OF_USER", "the-variable");
        command
    }

    fn run(&self, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        let text = [&output.stdout[..], &output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        let text = format!("exit {}\n{text}", output.status.code().unwrap());
        let text = text.replace(&self.project.path().display().to_string(), "DIR");
        text.replace(&self.home.path().display().to_string(), "HOME")
    }
}

/// Whether sandboxes can be made on this machine.
pub(super) fn bubblewrap_works() -> bool {
    let probe = ["--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "true"];
    Command::new("bwrap").args(probe).status().is_ok_and(|status| status.success())
}

#[test]
fn scripts_see_their_directory_and_not_the_machine() {
    let workflow = r#"digraph W { start -> a -> b -> exit
        a [shape=parallelogram, script="cat ~/.ssh/id .fabro/state/fabro.db; echo x > ../y; echo 1 > made; echo 2 > /tmp/kept;
            echo \"var $SECRET_OF_USER$OWN\";
            until test -e \"$FABRO_STAGE_DIR/stdout.log\" -a -e \"$FABRO_STAGE_DIR/stderr.log\"; do sleep 0.02; done;
            ls \"$FABRO_STAGE_DIR\"; (: > /dev/tcp/127.0.0.1/22) 2>&1 | tail -c 24; true"]
        b [shape=parallelogram, script="cat made /tmp/kept"] }"#;
    let toml = "_version = 1\n[workflow]\ngraph = 'w.fabro'\n[run.sandbox]\nprovider = 'bwrap'\nenv = { OWN = 'own' }\n";
    let Some(confined) = Confined::new(&[("w.fabro", workflow), ("run.toml", toml)]) else {
        return;
    };
    assert!(confined.run(&["run", "run.toml"]).starts_with("exit 0"));
    let logs = |stage: &str| confined.run(&["logs", "latest", stage]);
    assert_snapshot!(logs("a"), @r"
    exit 0
    ── a@1
    var own
    stderr.log
    stdout.log
    /22: Connection refused
    stderr | cat: HOME/.ssh/id: No such file or directory
    stderr | cat: .fabro/state/fabro.db: No such file or directory
    ");
    assert_snapshot!(logs("b"), @r"
    exit 0
    ── b@1
    1
    2
    ");
    assert_eq!(confined.project.read("made"), "1\n");
    let runs = confined.project.path().join(".fabro/state/runs");
    let run = std::fs::read_dir(runs).unwrap().next().unwrap().unwrap();
    assert!(!run.path().join("sandbox").exists(), "it ends with the run");
}

#[test]
fn agents_are_held_to_the_same_view() {
    let call =
        |name: &str, arguments: serde_json::Value| json!({ "name": name, "arguments": arguments });
    let script = json!({ "a": [
        { "tool_calls": [
            call("shell", json!({ "command": "exec 2>&1; cat ~/.ssh/id; echo $SECRET_OF_USER; cat .fabro/state/fabro.db | head -c 15" })),
            call("read_file", json!({ "file_path": ".fabro/state/fabro.db" })),
            call("read_file", json!({ "file_path": "link" })),
            call("list_dir", json!({ "path": ".fabro/state" })),
            call("write_file", json!({ "file_path": ".git/hooks/pre-commit", "content": "x" })),
            call("write_file", json!({ "file_path": "made", "content": "x" })),
            call("web_fetch", json!({ "url": "https://example.org" })),
        ] },
        { "text": "done" },
    ] });
    let workflow = r#"digraph W { start -> a -> exit  a [prompt="p", permissions=full] }"#;
    let files = [("w.fabro", workflow), ("m.json", &script.to_string())];
    let Some(confined) = Confined::new(&files) else { return };
    let link = confined.project.path().join("link");
    std::os::unix::fs::symlink(confined.project.path().join(".fabro/state/fabro.db"), link)
        .unwrap();
    confined.run(&["run", "w.fabro", "--sandbox", "bwrap", "--model-script", "m.json", "-q"]);
    let events = confined.run(&["events", "latest", "--json"]);
    let results: Vec<String> = events
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|event| event["event"] == "agent.tool.completed")
        .map(|event| {
            let text =
                |name: &str| event["properties"][name].as_str().unwrap_or_default().to_owned();
            format!("{}: {}", text("tool"), text("output"))
        })
        .collect();
    assert_snapshot!(results.join("\n"), @r"
    shell: cat: HOME/.ssh/id: No such file or directory

    cat: .fabro/state/fabro.db: No such file or directory
    read_file: .fabro/state/fabro.db is outside of the working directory: use a path inside of it
    read_file: link is outside of the working directory: use a path inside of it
    list_dir: .fabro/state is outside of the working directory: use a path inside of it
    write_file: .git/hooks/pre-commit controls git, fabro or later agents: it can be read, but not changed here
    write_file: made made: 1 bytes, 1 lines
    web_fetch: there is no tool `web_fetch`: choose from apply_patch, close_agent, edit_file, get_workflow_context, glob, grep, list_dir, read_file, send_input, shell, spawn_agent, wait, write_file
    ");
}

#[test]
fn a_sandbox_that_cannot_be_given_is_refused_before_the_first_stage() {
    let workflow =
        r#"digraph W { start -> a -> exit  a [shape=parallelogram, script="touch ran"] }"#;
    let toml = "_version = 1\n[workflow]\ngraph = 'w.fabro'\n[run.sandbox]\nnetwork = false\n";
    let project = Project::with(&[("w.fabro", workflow), ("run.toml", toml)]);
    let mut command = project.command(&["run", "w.fabro", "--sandbox", "bwrap"]);
    let output = command.env("PATH", project.path()).output().unwrap();
    filters().bind(|| {
        assert_eq!(output.status.code(), Some(2));
        assert_snapshot!(String::from_utf8_lossy(&output.stderr), @r"
        error: the run asks for the sandbox `bwrap`, which this machine does not have: the program `bwrap` is not installed
          help: install bubblewrap (`apt-get install bubblewrap`, `dnf install bubblewrap`); or run without a sandbox
        ");
        assert_snapshot!(project.run(&["run", "w.fabro", "--sandbox", "daytona"]), @r"
        exit 2
        ── stderr
        error: invalid value 'daytona' for '--sandbox <PROVIDER>'
          [possible values: local, bwrap, docker, ssh]

        For more information, try '--help'.
        ");
        assert_snapshot!(project.run(&["run", "run.toml"]), @r"
        exit 2
        ── stderr
        error: `run.sandbox.network` restricts a sandbox, and the run has none
          help: set `run.sandbox.provider`, or remove the setting
        ");
        assert_snapshot!(project.run(&["run", "run.toml", "--sandbox", "local", "-q"]), @"exit 0");
    });
    assert!(project.path().join("ran").exists());
}

#[test]
fn an_external_agent_needs_the_network() {
    let workflow =
        r#"digraph W { start -> a -> exit  a [prompt="p", backend=acp, acp.command="sh"] }"#;
    let Some(confined) = Confined::new(&[("w.fabro", workflow)]) else { return };
    assert_snapshot!(confined.run(&["run", "w.fabro", "--sandbox", "bwrap"]), @r#"
    exit 2
    error[unavailable]: `a`: another program asks the model, and the sandbox has no network
     --> w.fabro:1:56
      |
    1 | digraph W { start -> a -> exit  a [prompt="p", backend=acp, acp.command="sh"] }
      |                                                        ^^^
      |
      = help: set `run.sandbox.network = true`, or use a model of a provider

    error: w.fabro cannot run: its stages need what is missing
      help: fix the errors shown above
    "#);
}

/// A run that is killed while its script runs: the first time, the script plants `fabro.toml` and leaves a process.
fn killed_run() -> Option<(Confined, String)> {
    let seconds = format!("600.{}", std::process::id());
    let workflow = format!(
        r#"digraph W {{ start -> a -> exit
        a [shape=parallelogram, script="cat /tmp/kept; echo 1 > /tmp/kept; test -e up && exit 0; echo > fabro.toml; setsid sleep {seconds} & touch up; sleep {seconds}"] }}"#
    );
    let confined = Confined::new(&[("w.fabro", &workflow)])?;
    let mut run = confined.command(&["run", "w.fabro", "--sandbox", "bwrap", "-q"]);
    let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !confined.project.path().join("up").exists() || running(&seconds) == 0 {
        assert!(Instant::now() < deadline, "the stage has not started");
        std::thread::sleep(Duration::from_millis(10));
    }
    run.kill().unwrap();
    run.wait().unwrap();
    Some((confined, seconds))
}

#[test]
fn a_killed_run_is_removed_with_what_its_scripts_left() {
    let Some((confined, seconds)) = killed_run() else { return };
    let removed = confined.run(&["rm", "latest"]);
    assert!(
        removed.starts_with("exit 0") && removed.contains("renamed to fabro.toml.from-sandbox"),
        "{removed}"
    );
    assert_eq!(running(&seconds), 0);
    assert!(!confined.project.path().join("fabro.toml").exists());
}

#[test]
fn a_killed_run_is_resumed_and_leaves_no_process() {
    let Some((confined, seconds)) = killed_run() else { return };
    assert!(confined.run(&["resume", "latest", "-q"]).starts_with("exit 0"));
    assert_eq!(running(&seconds), 0);
    assert_eq!(confined.run(&["logs", "latest", "a"]).lines().last(), Some("1"));
}

/// The processes of this machine that sleep this long.
pub(super) fn running(seconds: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let asked = format!("sleep\0{seconds}\0");
    lines.filter(|line| line == asked.as_bytes()).count()
}

#[test]
fn a_preserved_sandbox_has_a_shell_and_its_files_are_copied() {
    let workflow = r#"digraph W { start -> a -> exit  a [shape=parallelogram, script="echo of the run > /tmp/report"] }"#;
    let Some(confined) = Confined::new(&[("w.fabro", workflow)]) else { return };
    assert!(
        confined
            .run(&["run", "w.fabro", "--sandbox", "bwrap", "--preserve-sandbox", "-q"])
            .starts_with("exit 0")
    );
    let script = [
        "sandbox",
        "shell",
        "latest",
        "--",
        "sh",
        "-c",
        "cat /tmp/report; pwd; cat ~/.ssh/id; exit 7",
    ];
    assert_snapshot!(confined.run(&script), @r"
    exit 7
    of the run
    DIR
    cat: HOME/.ssh/id: No such file or directory
    ");
    assert_snapshot!(confined.run(&["sandbox", "cp", "latest:/tmp/report", "."]), @"exit 0");
    assert_eq!(confined.project.read("report"), "of the run\n");
    assert_snapshot!(confined.run(&["sandbox", "cp", "report", "latest:/tmp/copy"]), @"exit 0");
    assert_snapshot!(confined.run(&["sandbox", "cp", "latest:/tmp/copy", "copied"]), @"exit 0");
    // Into a directory, under its own name.
    assert_eq!(confined.project.read("copied"), "of the run\n");
    assert_snapshot!(confined.run(&["sandbox", "cp", "copied", "latest:/tmp/"]), @"exit 0");
    assert_snapshot!(confined.run(&["sandbox", "cp", "latest:/tmp/copied", "again"]), @"exit 0");
    assert_eq!(confined.project.read("again"), "of the run\n");
    assert_snapshot!(confined.run(&["sandbox", "cp", "latest:/tmp", "x"]), @r"
    exit 1
    cat: /tmp: Is a directory
    error: /tmp was not copied
      help: the reason stands above; a directory can be packed first, with `tar`
    ");
    assert_snapshot!(confined.run(&["sandbox", "cp", "x", "y"]), @r"
    exit 2
    error: one of FROM and TO has to be in a sandbox, and the other one here
      help: write RUN:PATH for the file in the sandbox, such as `latest:/tmp/report.txt`
    ");
}

#[test]
fn a_run_without_a_sandbox_has_no_shell() {
    let project = Project::hello();
    filters().bind(|| {
        assert_snapshot!(project.run(&["sandbox", "shell"]), @r"
    exit 2
    ── stderr
    error: run [ID] has no sandbox: its files are in DIR
      help: start runs with a sandbox to have one
    ");
    });
}
