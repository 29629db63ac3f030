use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fabro_llm::ToolSpec;
use fabro_redact::Redactor;
use fabro_sandbox::{Captured, Environment, Exec, Exit, FileKind, Files, Keep, Language, Request};
use serde::Deserialize;
use serde_json::json;

use crate::call::{arguments, canceled, spec};
use crate::limit::Limits;
use crate::tool::{Call, Output, Tool};

/// The default timeout of a command, in seconds.
const TIMEOUT: u64 = 120;

/// The most characters of the note about the end of a command.
const NOTE: usize = 200;

/// Where the commands of an agent run.
#[derive(Clone)]
pub struct Shell {
    /// What runs them.
    pub exec: Arc<dyn Exec>,
    /// The files of the working directory, to check `cwd` by.
    pub files: Arc<dyn Files>,
    /// The working directory itself.
    pub root: PathBuf,
    /// All variables that a command sees; [`fabro_sandbox::agent_env`] makes them.
    pub env: Vec<(String, String)>,
    /// Directories outside of the working directory that a command in a sandbox may read.
    pub reads: Vec<PathBuf>,
    /// Redacts the output of a command before it is cut.
    pub redactor: Redactor,
}

impl Shell {
    /// The tool `shell`: commands in a process group of their own.
    pub fn into_tool(self) -> Arc<dyn Tool> {
        let description = "Runs a command with bash (sh where there is no bash) and gives what it \
            prints, standard output and standard error together, and its exit code. There is no \
            terminal and no input. Of long output the start and the end are kept. What the command \
            leaves running is ended with it. For files prefer read_file, edit_file, grep and glob.";
        let properties = json!({
            "command": { "type": "string", "minLength": 1, "description": "The command, or a whole script." },
            "timeout": {
                "type": "integer", "minimum": 1, "maximum": 600,
                "description": "After how many seconds it is ended. Default 120."
            },
            "cwd": {
                "type": "string",
                "description": "The directory to run it in. Default: the working directory."
            }
        });
        let spec = spec("shell", description, &properties, &["command"]);
        Arc::new(ShellTool { spec, shell: self })
    }
}

struct ShellTool {
    spec: ToolSpec,
    shell: Shell,
}

#[derive(Deserialize)]
struct Arguments {
    command: String,
    timeout: Option<u64>,
    cwd: Option<String>,
}

#[async_trait]
impl Tool for ShellTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, call: Call<'_>) -> Output {
        self.shell.run(&call).await.unwrap_or_else(Output::error)
    }
}

impl Shell {
    async fn run(&self, call: &Call<'_>) -> Result<Output, String> {
        let arguments: Arguments = arguments(call)?;
        let timeout = arguments.timeout.unwrap_or(TIMEOUT);
        let cwd = self.directory(arguments.cwd.as_deref())?;
        let limits = Limits::default();
        let stop = call.cancel.child_token();
        let request = Request {
            script: &arguments.command,
            language: Language::Shell,
            cwd: &cwd,
            env: Environment::Only(&self.env),
            reads: &self.reads,
            script_reads: &[],
            source: "",
            stdin: None,
            keep_unredacted: false,
            keep: Keep::Ends { head: limits.head - NOTE, tail: limits.tail - NOTE },
            redactor: Some(&self.redactor),
            cancel: stop.clone(),
        };
        let mut running = self.exec.run(request);
        let mut is_timeout = false;
        let finished = tokio::select! {
            finished = &mut running => finished,
            () = tokio::time::sleep(Duration::from_secs(timeout)) => {
                is_timeout = true;
                stop.cancel();
                running.await
            }
        };
        let finished = finished.map_err(|error| error.to_string())?;
        let note = match finished.exit {
            Exit::Code(0) => None,
            Exit::Code(code) => Some(format!("[exit code {code}]")),
            Exit::Signal(signal) => Some(format!("[killed by signal {signal}]")),
            Exit::Canceled if is_timeout => Some(format!(
                "[ended after {timeout} seconds: raise timeout (up to 600), or do less at once]"
            )),
            Exit::Canceled => return Ok(canceled()),
        };
        let text = match finished.stdout {
            Captured::Text(text) => text,
            Captured::Large { bytes, .. } => format!("[{bytes} bytes of output]"),
        };
        Ok(match note {
            None if text.is_empty() => Output::ok("[no output]"),
            None => Output::ok(text),
            Some(note) if text.is_empty() => Output::error(note),
            Some(note) => Output::error(format!("{text}\n{note}")),
        })
    }

    fn directory(&self, cwd: Option<&str>) -> Result<PathBuf, String> {
        let Some(cwd) = cwd else { return Ok(self.root.clone()) };
        let info = self.files.info(cwd).map_err(|error| error.to_string())?;
        if info.kind != FileKind::Directory {
            return Err(format!("{cwd} is not a directory: choose another cwd"));
        }
        Ok(self.root.join(info.path))
    }
}
