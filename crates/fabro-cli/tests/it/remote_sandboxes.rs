//! `fabro run --sandbox docker` and `--sandbox ssh`. Skipped aloud where there is no engine.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use insta::{allow_duplicates, assert_snapshot};
use serde_json::{Value, json};

use super::project::{Project, filters};
use super::sandboxes::running;

#[cfg(test)]
#[path = "../../../fabro-sandbox/tests/it/server.rs"]
#[allow(dead_code, reason = "the tests of fabro-sandbox use the rest of it")]
mod server;

use server::{Server, image};

/// Where the runs of a project are to run.
pub(super) enum Place {
    Mount(&'static str),
    Copy(&'static str),
    Ssh(Server),
}

impl Place {
    /// All that there are here.
    pub(super) fn all() -> Vec<Self> {
        let image = image();
        let containers =
            image.into_iter().flat_map(|image| [Self::Mount(image), Self::Copy(image)]);
        containers.chain(Server::start().map(Self::Ssh)).collect()
    }

    /// The lines of a run.toml that name the place.
    pub(super) fn settings(&self) -> String {
        let mut toml = "[run.sandbox]\n".to_owned();
        let _ = match self {
            Self::Mount(image) => write!(toml, "provider = 'docker'\nimage = '{image}'\n"),
            Self::Copy(image) => {
                write!(toml, "provider = 'docker'\nimage = '{image}'\nworkspace = 'copy'\n")
            }
            Self::Ssh(server) => {
                let dir = server.path("far");
                write!(toml, "provider = 'ssh'\nhost = 'far'\ndirectory = '{}'\n", dir.display())
            }
        };
        toml
    }

    /// A project whose run.toml names the place.
    fn project(&self, files: &[(&str, &str)]) -> Project {
        let project = Project::with(files);
        let toml = format!(
            "_version = 1\n[workflow]\ngraph = 'w.fabro'\n{}env = {{ OWN = 'own' }}\n",
            self.settings()
        );
        project.write("run.toml", toml.as_bytes());
        project
    }

    pub(super) fn command(&self, project: &Project, args: &[&str]) -> Command {
        let mut command = project.command(args);
        command.env("SECRET_OF_USER", "the-variable");
        if let Self::Ssh(server) = self {
            // The settings of the user are found by the user's id, not by a variable.
            let bin = server.path("bin");
            std::fs::create_dir_all(&bin).unwrap();
            let path = std::env::var("PATH").unwrap();
            let real =
                std::env::split_paths(&path).map(|dir| dir.join("ssh")).find(|it| it.exists());
            let config = server.path("ssh");
            let text = format!(
                "#!/bin/sh\nexec {} -F {} \"$@\"\n",
                real.unwrap().display(),
                config.display()
            );
            std::fs::write(bin.join("ssh"), text).unwrap();
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(bin.join("ssh"), mode).unwrap();
            command.env("PATH", format!("{}:{path}", bin.display()));
        }
        command
    }

    fn run(&self, project: &Project, args: &[&str]) -> String {
        let output = self.command(project, args).output().unwrap();
        let text = [&output.stdout[..], &output.stderr].concat();
        let text =
            format!("exit {}\n{}", output.status.code().unwrap(), String::from_utf8_lossy(&text));
        let text = self.without_paths(project, &text);
        text.trim_end().to_owned()
    }

    fn without_paths(&self, project: &Project, text: &str) -> String {
        let mut text = text.to_owned();
        if let Self::Ssh(server) = self {
            let far = server.path("far");
            for run in std::fs::read_dir(&far).into_iter().flatten().flatten() {
                text = text.replace(&run.path().join("work").display().to_string(), "DIR");
            }
            let id = Self::last_run(project);
            text = text.replace(&far.join(id).join("work").display().to_string(), "DIR");
        }
        text.replace(&project.path().display().to_string(), "DIR")
    }

    fn last_run(project: &Project) -> String {
        let output = project.command(&["ps", "--json"]).output().unwrap();
        let runs: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        runs[0]["id"].as_str().unwrap_or_default().to_owned()
    }

    /// Whether the container of the last run, or its directory, is there.
    fn is_left(&self, project: &Project) -> bool {
        self.has(&Self::last_run(project))
    }

    /// Whether the container of a run, or its directory, is there.
    fn has(&self, run: &str) -> bool {
        match self {
            Self::Ssh(server) => server.path("far").join(run).exists(),
            Self::Mount(_) | Self::Copy(_) => has_container(run),
        }
    }
}

/// Whether a run has a container.
fn has_container(run: &str) -> bool {
    let label = format!("label=fabro.run={run}");
    let output = Command::new("docker").args(["ps", "-aq", "--filter", &label]).output();
    !output.unwrap().stdout.is_empty()
}

#[test]
fn scripts_and_agents_work_there_and_their_files_come_back() {
    let workflow = r#"digraph W { start -> a -> b -> ag -> exit
        a [shape=parallelogram, script="pwd; echo 1 > made; mkdir -p test-results; echo '<t/>' > test-results/junit.xml;
            echo \"var $SECRET_OF_USER$OWN\"; cat .fabro/state/fabro.db; head -c 300000 /dev/zero | tr '\\0' x >&2"]
        b [shape=parallelogram, script="cat made; echo 2 > /tmp/kept-$FABRO_RUN_ID"]
        ag [prompt="look", permissions=full] }"#;
    let call = |name: &str, arguments: Value| json!({ "name": name, "arguments": arguments });
    let script = json!({ "ag": [
        { "tool_calls": [
            call("shell", json!({ "command": "pwd; cat made .fabro/artifacts/junit.xml /tmp/kept-$FABRO_RUN_ID; rm /tmp/kept-$FABRO_RUN_ID; echo 3 > by_shell; echo \"var $SECRET_OF_USER$OWN\"" })),
        ] },
        { "tool_calls": [
            call("read_file", json!({ "file_path": "by_shell" })),
            call("read_file", json!({ "file_path": ".fabro/artifacts/junit.xml" })),
            call("read_file", json!({ "file_path": ".fabro/state/fabro.db" })),
            call("write_file", json!({ "file_path": "by_tool", "content": "4" })),
        ] },
        { "tool_calls": [call("shell", json!({ "command": "cat by_tool" }))] },
        { "text": "done" },
    ] })
    .to_string();
    for place in Place::all() {
        let project = place.project(&[("w.fabro", workflow), ("m.json", &script)]);
        let ran = place.run(&project, &["run", "run.toml", "--model-script", "m.json", "-q"]);
        assert!(ran.starts_with("exit 0"), "{ran}");
        let log = place.run(&project, &["logs", "latest", "a"]);
        assert!(log.contains("DIR\n") && log.contains("\nvar own\n"), "{log}");
        assert_eq!((project.read("made"), project.read("by_shell")), ("1\n".into(), "3\n".into()));
        let events = project.command(&["events", "latest", "--json"]).output().unwrap().stdout;
        let events = String::from_utf8(events).unwrap();
        let events: Vec<Value> =
            events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let tools = events.iter().filter(|event| event["event"] == "agent.tool.completed");
        let mut tools: Vec<&Value> = tools.collect();
        // Calls of one turn that only read end in any order.
        tools.sort_by_key(|event| event["properties"]["call_id"].as_str());
        let tools: Vec<String> = tools
            .into_iter()
            .map(|event| {
                let text =
                    |name: &str| event["properties"][name].as_str().unwrap_or_default().to_owned();
                format!("{}: {}", text("tool"), text("output"))
            })
            .collect();
        allow_duplicates! { assert_snapshot!(place.without_paths(&project, &tools.join("\n")), @r"
        shell: DIR
        1
        <t/>
        2
        var own
        read_file:      1	3

        read_file:      1	<t/>

        read_file: .fabro/state/fabro.db is outside of the working directory: use a path inside of it
        write_file: made by_tool: 1 bytes, 1 lines
        shell: 4
        "); }
        let end = |node: &str| {
            let is_end =
                |event: &&Value| event["event"] == "stage.completed" && event["node_id"] == node;
            events.iter().find(is_end).unwrap()["properties"].clone()
        };
        assert_eq!(
            end("a")["artifacts"],
            json!(["cache/artifacts/files/a/retry_1/test-results/junit.xml"])
        );
        let prompt = place.run(&project, &["inspect", "latest", "ag"]);
        assert!(prompt.contains("Stderr: See: DIR/.fabro/blobs/"), "{prompt}");
        assert!(prompt.contains("Artifacts: DIR/.fabro/artifacts/junit.xml"), "{prompt}");
        assert!(!project.path().join(".fabro/blobs").exists());
        assert!(!place.is_left(&project), "it ends with the run");
    }
}

#[test]
fn a_killed_run_finds_its_sandbox_again_or_ends_it() {
    for (index, place) in Place::all().iter().enumerate() {
        for end in ["resume", "cancel"] {
            let seconds = format!("600.{}{index}{}", std::process::id(), end.len());
            let workflow = format!(
                r#"digraph W {{ start -> a -> b -> exit
                a [shape=parallelogram, script="mkdir -p node_modules; echo 1 > node_modules/kept"]
                b [shape=parallelogram, script="cat node_modules/kept; test -e resumed && exit 0; setsid sleep {seconds} & echo up; sleep {seconds}"] }}"#
            );
            let project = place.project(&[("w.fabro", &workflow)]);
            let mut run = place.command(&project, &["run", "run.toml", "-q"]);
            let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let deadline = Instant::now() + Duration::from_mins(1);
            while running(&seconds) < 2 {
                assert!(Instant::now() < deadline, "the stage has not started");
                std::thread::sleep(Duration::from_millis(10));
            }
            let refused = place.run(&project, &["rm", "latest"]);
            assert!(
                refused.starts_with("exit 2") && refused.contains("is being driven"),
                "{refused}"
            );
            assert!(running(&seconds) > 1, "its scripts keep running");
            run.kill().unwrap();
            run.wait().unwrap();
            assert!(running(&seconds) > 0 && place.is_left(&project));
            project.write("resumed", b"");
            let ended = place.run(&project, &[end, "latest"]);
            assert!(ended.starts_with("exit 0"), "{ended}");
            assert_eq!(running(&seconds), 0);
            assert!(!place.is_left(&project));
            if end == "resume" {
                let log = place.run(&project, &["logs", "latest", "b"]);
                assert_eq!(log.lines().last(), Some("1"), "{log}");
            }
        }
    }
}

/// A client that ends with 255 has lost its connection, and the exit code of the script with it.
#[test]
fn a_script_that_succeeds_while_its_connection_breaks_has_succeeded() {
    let Some(server) = Server::start() else { return };
    let flag = server.path("breaks");
    let place = Place::Ssh(server);
    let workflow = format!(
        r#"digraph W {{ start -> a -> exit  a [shape=parallelogram, script="echo done > made; touch {}"] }}"#,
        flag.display()
    );
    let project = place.project(&[("w.fabro", &workflow)]);
    let mut run = place.command(&project, &["run", "run.toml", "-q"]);
    let Place::Ssh(server) = &place else { return };
    let program = server.path("bin/ssh");
    let text = std::fs::read_to_string(&program).unwrap().replace("exec ", "");
    let text = format!(
        "{text}code=$?\nif rm {} 2>/dev/null; then exit 255; fi\nexit $code\n",
        flag.display()
    );
    std::fs::write(&program, text).unwrap();
    let ended = run.output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(!flag.exists(), "the connection has broken");
    assert_eq!(project.read("made"), "done\n");
}

/// It makes no `.fabro` that would be taken for another project, not even where the engine cannot be reached.
#[test]
fn a_run_in_a_subdirectory_does_not_hide_earlier_runs() {
    let Some(image) = image() else { return };
    let place = Place::Mount(image);
    let workflow = r#"digraph W { start -> a -> exit  a [shape=parallelogram, script="true"] }"#;
    let project = place.project(&[]);
    std::fs::create_dir(project.path().join(".git")).unwrap();
    let sub = project.path().join("sub");
    std::fs::create_dir(&sub).unwrap();
    std::fs::rename(project.path().join("run.toml"), sub.join("run.toml")).unwrap();
    std::fs::write(sub.join("w.fabro"), workflow).unwrap();
    let run = |args: &[&str], host: Option<&str>| {
        let mut command = place.command(&project, args);
        command.current_dir(&sub);
        if let Some(host) = host {
            command.env("DOCKER_HOST", host);
        }
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(run(&["run", "w.fabro", "-q"], None).0, Some(0));
    assert_eq!(run(&["run", "run.toml", "-q"], Some("unix:///nowhere.sock")).0, Some(2));
    assert!(!sub.join(".fabro").exists());
    assert_eq!(run(&["run", "run.toml", "-q"], None).0, Some(0));
    let runs: Value = serde_json::from_str(&run(&["ps", "--json"], None).1).unwrap();
    assert_eq!(runs.as_array().unwrap().len(), 2);
}

/// What cannot be removed now is removed with the run.
#[test]
fn a_run_is_canceled_although_its_engine_cannot_be_reached() {
    let workflow = r#"digraph W { start -> a -> ask -> exit  a [shape=parallelogram, script="true"]  ask [shape=hexagon, label="On?"] }"#;
    for place in Place::all() {
        let project = place.project(&[("w.fabro", workflow)]);
        let ran = place.run(&project, &["run", "run.toml", "-q"]);
        assert!(ran.starts_with("exit 3"), "{ran}");
        let mut cancel = place.command(&project, &["cancel", "latest"]);
        if let Place::Ssh(server) = &place {
            let unreachable = "#!/bin/sh\necho 'ssh: connect to host far: refused' >&2; exit 255\n";
            std::fs::write(server.path("bin/ssh"), unreachable).unwrap();
        }
        let canceled = cancel.env("DOCKER_HOST", "unix:///nowhere.sock").output().unwrap();
        let warning = String::from_utf8(canceled.stderr).unwrap();
        assert_eq!(canceled.status.code(), Some(0), "{warning}");
        assert!(warning.contains("could not be removed"), "{warning}");
        assert_eq!(project.json(&["ps", "--json"])[0]["status"], "canceled");
        let id = Place::last_run(&project);
        assert!(place.has(&id));
        assert!(place.run(&project, &["rm", "latest"]).starts_with("exit 0"));
        assert!(!place.has(&id));
    }
}

#[test]
fn a_preserved_sandbox_has_a_shell_until_its_run_is_removed() {
    let workflow = r#"digraph W { start -> a -> exit  a [shape=parallelogram, script="mkdir -p target; echo of the run > target/report"] }"#;
    allow_duplicates! { for place in Place::all() {
        let project = place.project(&[("w.fabro", workflow)]);
        let ran = place.run(&project, &["run", "run.toml", "--preserve-sandbox", "-q"]);
        assert!(ran.starts_with("exit 0"), "{ran}");
        let is_mounted = matches!(place, Place::Mount(_));
        assert_eq!(project.path().join("target").exists(), is_mounted, "tools make it");
        let shell =
            ["sandbox", "shell", "latest", "--", "sh", "-c", "cat target/report; pwd; exit 7"];
        assert_snapshot!(place.run(&project, &shell), @r"
        exit 7
        of the run
        DIR
        ");
        assert_snapshot!(place.run(&project, &["sandbox", "cp", "latest:target/report", "."]), @"exit 0");
        assert_eq!(project.read("report"), "of the run\n");
        assert_snapshot!(place.run(&project, &["sandbox", "cp", "report", "latest:target/copy"]), @"exit 0");
        assert_snapshot!(place.run(&project, &["sandbox", "cp", "latest:target/copy", "copied"]), @"exit 0");
        assert_eq!(project.read("copied"), "of the run\n");
        assert!(place.is_left(&project));
        let left = Place::last_run(&project);
        assert!(place.run(&project, &["rm", "latest"]).starts_with("exit 0"));
        match &place {
            Place::Ssh(server) => assert!(!server.path("far").join(left).exists()),
            Place::Mount(_) | Place::Copy(_) => assert!(!has_container(&left)),
        }
    }}
}

#[test]
fn what_a_sandbox_lacks_is_said_before_the_first_stage() {
    let workflow =
        r#"digraph W { start -> a -> exit  a [shape=parallelogram, script="touch ran"] }"#;
    let check = |settings: &str| {
        let toml =
            format!("_version = 1\n[workflow]\ngraph = 'w.fabro'\n[run.sandbox]\n{settings}\n");
        let project = Project::with(&[("w.fabro", workflow), ("run.toml", &toml)]);
        let mut command = project.command(&["run", "run.toml"]);
        let output = command.env("PATH", project.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(!project.path().join("ran").exists());
        let refused = String::from_utf8(output.stderr).unwrap();
        // What does not depend on the machine is found without a run too.
        let message = refused.lines().find_map(|line| line.strip_prefix("error: ")).unwrap();
        let checked = project.run(&["validate", "run.toml"]);
        let is_of_machine = message.contains("which cannot be used: the program");
        let finding = format!("warning[setting-value]: {message}; `run` refuses it\n");
        assert_eq!(checked.contains(&finding), !is_of_machine, "{checked}");
        assert!(checked.starts_with("exit 0\n"), "{checked}");
        refused
    };
    filters().bind(|| {
        assert_snapshot!(check("provider = 'docker'"), @r#"
        error: the sandbox `docker` has no image
          help: set `run.sandbox.image`, for example to "debian:12"
        "#);
        assert_snapshot!(check("provider = 'docker'\nimage = 'x'"), @r#"
        error: the run asks for the sandbox `docker`, which cannot be used: the program `docker` is not installed
          help: install Docker (`apt-get install docker.io`, or see https://docs.docker.com/engine/install); or run without a sandbox
        "#);
        assert_snapshot!(check("provider = 'docker'\nimage = 'x'\nworkspace = 'copy'\nread = ['.']"), @r#"
        error: `run.sandbox.read` and `run.sandbox.write` share files of this machine, and the sandbox has only a copy of the working directory
          help: remove them, or use a container with `workspace = "mount"`
        "#);
        assert_snapshot!(check("provider = 'ssh'"), @r#"
        error: the sandbox `ssh` has no host
          help: set `run.sandbox.host` to "user@host", or to a name of ~/.ssh/config
        "#);
        assert_snapshot!(check("provider = 'ssh'\nhost = 'x'"), @r#"
        error: the run asks for the sandbox `ssh`, which cannot be used: the program `ssh` is not installed
          help: install OpenSSH (`apt-get install openssh-client`); or run without a sandbox
        "#);
        assert_snapshot!(check("provider = 'ssh'\nhost = 'x'\nnetwork = false"), @r#"
        error: `run.sandbox.network` restricts a sandbox, and `ssh` cannot do that
          help: use another provider, or remove the setting
        "#);
        assert_snapshot!(check("provider = 'bwrap'\nmemory = '1GB'"), @r#"
        error: `run.sandbox.memory` restricts a sandbox, and `bwrap` cannot do that
          help: use another provider, or remove the setting
        "#);
    });
}

#[test]
fn validate_says_what_a_sandbox_cannot_have() {
    let run = |sandbox: &str| {
        format!("_version = 1\n[workflow]\ngraph = 'w.fabro'\n[run.sandbox]\n{sandbox}\n")
    };
    let workflow = r#"digraph W { graph [goal="g"]; start -> a -> b -> exit
        a [prompt="p", backend=acp, acp.command="sh"]; b [prompt="p", backend=cli] }"#;
    let project = Project::with(&[
        ("w.fabro", workflow),
        ("run.toml", &run("provider = 'ssh'")),
        (".fabro/config.toml", "_version = 1\n[run.sandbox]\nprovider = 'docker'\n"),
    ]);
    filters().bind(|| {
        assert_snapshot!(project.run(&["validate", "run.toml"]), @r#"
        exit 0
        ── stdout
        warning[unavailable]: `a`: `backend=acp` is a program on this machine, which does not run in the sandbox `ssh`; `run` refuses it
         --> w.fabro:2:32
          |
        2 |         a [prompt="p", backend=acp, acp.command="sh"]; b [prompt="p", backend=cli] }
          |                                ^^^
          |
          = help: use a model of a provider, or the sandbox `bwrap`

        warning[unavailable]: `b`: `backend=cli` is a program on this machine, which does not run in the sandbox `ssh`; `run` refuses it
         --> w.fabro:2:79
          |
        2 |         a [prompt="p", backend=acp, acp.command="sh"]; b [prompt="p", backend=cli] }
          |                                                                               ^^^
          |
          = help: use a model of a provider, or the sandbox `bwrap`

        warning[setting-value]: the sandbox `ssh` has no host; `run` refuses it
         --> run.toml:4:1
          |
        4 | [run.sandbox]
          | ^^^^^^^^^^^^^
          |
          = help: set `run.sandbox.host` to "user@host", or to a name of ~/.ssh/config

        2 files checked: 3 warnings
        "#);
        // The settings of the project, whose image a run.toml may name.
        let checked = project.run(&["validate", "w.fabro"]);
        assert!(checked.starts_with("exit 0") && checked.contains("1 file checked: 3 warnings"));
        let message = checked.lines().find(|line| line.starts_with("warning[setting-value]"));
        assert_snapshot!(message.unwrap(), @"warning[setting-value]: the sandbox `docker` has no image (in the settings of the project or of the user); `run` refuses it");
        project.write("run.toml", run("image = 'debian:12'").as_bytes());
        let checked = project.run(&["validate", "run.toml"]);
        assert!(checked.contains("sandbox `docker`") && !checked.contains("no image"), "{checked}");
        project.write("run.toml", run("provider = 'bwrap'").as_bytes());
        let checked = project.run(&["validate", "run.toml"]);
        assert!(checked.starts_with("exit 0"), "{checked}");
    });
}

#[test]
fn an_agent_that_is_a_program_does_not_run_there() {
    let Some(image) = image() else { return };
    let workflow =
        r#"digraph W { start -> a -> exit  a [prompt="p", backend=acp, acp.command="sh"] }"#;
    let place = Place::Mount(image);
    let project = place.project(&[("w.fabro", workflow)]);
    assert_snapshot!(place.run(&project, &["run", "run.toml"]), @r#"
    exit 2
    error[unavailable]: `a`: `backend=acp` is a program on this machine, which does not run in the sandbox `docker`
     --> w.fabro:1:56
      |
    1 | digraph W { start -> a -> exit  a [prompt="p", backend=acp, acp.command="sh"] }
      |                                                        ^^^
      |
      = help: use a model of a provider, or the sandbox `bwrap`

    error: w.fabro cannot run: its stages need what is missing
      help: fix the errors shown above
    "#);
}
