//! Commands in a directory that was removed.

use super::project::Project;

#[test]
fn a_removed_current_directory_is_an_error_of_its_own() {
    let project = Project::hello();
    let in_removed = |args: &str| {
        let mut shell = project.program("sh");
        let fabro = env!("CARGO_BIN_EXE_fabro");
        let script = format!("mkdir -p gone && cd gone && rmdir ../gone && exec {fabro} {args}");
        let output = shell.args(["-c", &script]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), stderr)
    };
    let commands = [
        "run hello",
        "resume latest",
        "validate",
        "validate --json",
        "graph hello",
        "ps",
        "ps --json",
        "inspect",
        "inspect latest hello",
        "cost latest",
        "trace",
        "report latest",
        "dump latest -o x",
        "diff latest",
        "sandbox shell latest",
        "artifact list latest",
        "artifact cp latest x",
        "wait latest",
        "events",
        "logs",
        "context",
        "explain latest",
        "compact latest",
        "replay latest",
        "answer latest y",
        "steer latest x",
        "cancel latest",
        "fork latest",
        "rewind latest",
        "rm latest",
        "prune",
        "du",
        "verify",
        "backup x.db",
        "model list",
        "model test",
        "mcp serve",
        "mcp login x",
        "serve",
        "init",
        "init x",
        "fmt x.fabro",
        "doctor",
        "doctor --json",
        "doctor --from-upstream x",
    ];
    for command in commands {
        let (code, stderr) = in_removed(command);
        assert_eq!(code, Some(2), "{command}: {stderr}");
        let error = "error: the current directory cannot be used: ";
        assert!(stderr.starts_with(error), "{command}: {stderr}");
        assert!(
            stderr.contains("help: it may have been removed: change to"),
            "{command}: {stderr}"
        );
    }
    // What needs no directory works.
    let store = project.path().join(".fabro/state");
    for command in ["ps", "inspect", "events", "verify", "logs"] {
        let (code, stderr) = in_removed(&format!("{command} --store {}", store.display()));
        assert_eq!(code, Some(0), "{command}: {stderr}");
    }
    for command in ["init --list", "explain-attribute prompt", "--version", "completion bash"] {
        let (code, stderr) = in_removed(command);
        assert_eq!(code, Some(0), "{command}: {stderr}");
    }
}
