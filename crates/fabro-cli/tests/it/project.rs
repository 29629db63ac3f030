//! A project in a temporary directory, and the command run in it.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Variables that change what the command does.
const SETTINGS: [&str; 4] = ["FABRO_STORE", "FABRO_LOG", "XDG_CONFIG_HOME", "NO_COLOR"];

/// A directory to work in.
pub(crate) struct Project {
    dir: tempfile::TempDir,
}

impl Project {
    /// An empty one.
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    /// One with these files.
    pub(crate) fn with(files: &[(&str, &str)]) -> Self {
        let project = Self::new();
        for (name, text) in files {
            project.write(name, text.as_bytes());
        }
        project
    }

    /// One as `fabro init` makes it, with its workflow run once.
    pub(crate) fn hello() -> Self {
        let project = Self::new();
        assert_eq!(project.exit(&["init"]), 0);
        assert_eq!(project.exit(&["run", "hello"]), 0);
        project
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).unwrap()
    }

    /// The file's text; empty while it is not there.
    pub(crate) fn read_or_default(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).unwrap_or_default()
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.program(env!("CARGO_BIN_EXE_fabro"));
        command.args(args);
        command
    }

    /// A program in the project's directory, without the settings of the developer.
    pub(crate) fn program(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.current_dir(self.path()).stdin(Stdio::null());
        // The settings of the developer must not reach the tests.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            let of_provider = text.ends_with("_API_KEY") || text.ends_with("_BASE_URL");
            if of_provider || SETTINGS.contains(&&*text) {
                command.env_remove(name);
            }
        }
        command.env("HOME", self.path());
        command
    }

    pub(crate) fn output(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    pub(crate) fn exit(&self, args: &[&str]) -> i32 {
        self.output(args).status.code().unwrap()
    }

    /// Exit code, stdout and stderr, with the directory's name taken out.
    pub(crate) fn run(&self, args: &[&str]) -> String {
        self.shown(&self.output(args))
    }

    /// The same with this text on stdin.
    pub(crate) fn run_with(&self, args: &[&str], input: &str) -> String {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        self.shown(&child.wait_with_output().unwrap())
    }

    /// What a command that must succeed prints as JSON.
    #[track_caller]
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let output = self.output(args);
        assert!(output.status.success(), "{}", self.shown(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    pub(crate) fn shown(&self, output: &Output) -> String {
        let mut text = format!("exit {}\n", output.status.code().unwrap());
        for (name, bytes) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
            if !bytes.is_empty() {
                let _ = write!(text, "── {name}\n{}", String::from_utf8_lossy(bytes));
            }
        }
        text.replace(&self.path().display().to_string(), "DIR")
    }
}

/// Waits for a call of a store.
pub(crate) fn wait<T>(call: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(call)
}

/// What makes ids, times and durations the same in every run.
pub(crate) const FILTERS: [(&str, &str); 10] = [
    (r"\bby \S+ \((cli|terminal|http|page|mcp)\)", "by [USER] ($1)"),
    (r"was answered by [^:\n]+:", "was answered by [USER]:"),
    (r"\b[0-9A-HJKMNP-TV-Z]{26}\b", "[ID]"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "[TS]"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "[UTC]"),
    (r"\b\d\d:\d\d:\d\d\b", "[TIME]"),
    (r" *\b(\d+ms|\d+\.\ds)\b", " [T]"),
    (r" +\d+[smhd]\b", " [T]"),
    (r#""duration_ms":( ?)\d+"#, r#""duration_ms":$1[MS]"#),
    (r" +(time|age|took)\b", " $1"),
];

/// Settings that apply them to snapshots.
pub(crate) fn filters() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    for (pattern, replacement) in FILTERS {
        settings.add_filter(pattern, replacement);
    }
    settings
}
