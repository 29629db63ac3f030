//! Commands: a script in the run's working directory.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use fabro_engine::{
    BlobError, BlobStore, Finished, Handler, Mode, OutputSpec, ReadError, Stage, StageEnd, Store,
    find_value, keys,
};
use fabro_redact::Redactor;
use fabro_sandbox::artifacts::FILES;
use fabro_sandbox::{
    Captured, Environment, Exec, ExecError, Exit, Keep, Language, Request, is_exhausted,
};
use fabro_types::{Failure, FailureClass, Outcome, Status};
use serde_json::Value;

use crate::WorkTree;
use crate::blobs::{local_dir, read_all_inner};
use crate::common::{failed, known, tail, value_of};
use crate::files::{STDIN, StageFiles};
use crate::render::render;
use crate::steering::{json_of, steered};

/// How many bytes of a large output are looked through for its last line.
const TAIL: u64 = 4_096;

/// How many characters of a failed command's last line its failure quotes.
const QUOTED: usize = 200;

/// The maximum size of the value for the standard input of a script, in bytes.
const MAX_STDIN: u64 = 30 << 20;

/// Runs `script` of a command node.
pub struct CommandHandler {
    exec: Arc<dyn Exec>,
    env: Vec<(String, String)>,
    redactor: Redactor,
    tree: Arc<WorkTree>,
}

impl CommandHandler {
    /// Scripts run by `exec`, with these variables added to their environment; what they
    /// print is redacted.
    pub fn new(
        exec: Arc<dyn Exec>,
        env: Vec<(String, String)>,
        redactor: Redactor,
        tree: Arc<WorkTree>,
    ) -> Self {
        Self { exec, env, redactor, tree }
    }
}

impl CommandHandler {
    /// The variables that templates filled in, without secrets.
    fn recorded(&self, stage: &Stage, own: Vec<(String, String)>) -> BTreeMap<String, String> {
        let written = stage.spec().command().map_or(&[][..], |spec| &spec.env);
        let is_written = |name: &str, value: &str| {
            written.iter().any(|(known, text)| **known == *name && *text.text == *value)
        };
        own.into_iter()
            .filter(|(name, value)| !is_written(name, value))
            .map(|(name, value)| (name, self.redactor.redact(&value).into_owned()))
            .collect()
    }
}

#[async_trait]
impl Handler for CommandHandler {
    async fn execute(&self, stage: Stage) -> StageEnd {
        let spec = stage.spec().command();
        let Some((source, language)) =
            spec.and_then(|command| Some((command.script.as_ref()?, command.language)))
        else {
            return Failure::new(FailureClass::Structural, "the node has no `script`: add one")
                .into();
        };
        let is_merged = spec.is_some_and(|spec| spec.merge_stderr);
        let (mode, language, file) = match language {
            fabro_engine::Language::Shell => (Mode::Shell, Language::Shell, "script.sh"),
            fabro_engine::Language::Python => (Mode::Python, Language::Python, "script.py"),
        };
        let script = match render(&stage, source, mode) {
            Ok(script) => script,
            Err(failure) => return failure.into(),
        };
        let own = match variables_of_node(&stage) {
            Ok(own) => own,
            Err(failure) => return failure.into(),
        };
        let files = match StageFiles::open(&stage).await {
            Ok(files) => files,
            Err(error) => return error.into(),
        };
        let stdin = match stdin(&stage, &files) {
            Ok(stdin) => stdin,
            Err(end) => return end,
        };
        let mut env = self.env.clone();
        env.extend(own.iter().cloned());
        env.extend(variables(&stage));
        let reads = [stage.dir(), local_dir(&stage.run_dir), stage.run_dir.join(FILES)];
        // A folder that contains the working directory has the files of other projects, too.
        let workflow_dir = Path::new(stage.context.text(crate::WORKFLOW_DIR));
        let is_apart = !Path::new(&stage.run.work_dir).starts_with(workflow_dir);
        let script_reads = Vec::from_iter(is_apart.then(|| workflow_dir.to_owned()));
        let request = Request {
            script: &script,
            language,
            cwd: Path::new(&stage.run.work_dir),
            env: Environment::Inherit(&env),
            reads: &reads,
            script_reads: &script_reads,
            source: &source.text,
            stdin: stdin.as_deref(),
            keep: if is_merged {
                Keep::Log(files.path("stdout.log"))
            } else {
                Keep::Logs { stdout: files.path("stdout.log"), stderr: files.path("stderr.log") }
            },
            redactor: Some(&self.redactor),
            keep_unredacted: spec.is_some_and(|spec| !matches!(spec.output, OutputSpec::Free)),
            cancel: stage.cancel.clone(),
        };
        let work_dir = Path::new(&stage.run.work_dir);
        let before = known(&stage, self.tree.before(work_dir).await).await;
        let ended = match self.exec.run(request).await {
            Ok(ended) => ended,
            Err(error @ ExecError::Log { .. }) if !is_exhausted(&error) => {
                return StageEnd::CannotRecord { message: error.to_string() };
            }
            Err(error) => return failed(&error).into(),
        };
        let json = match ended.exit {
            Exit::Code(0) => json_of(&stage, &ended, &self.redactor),
            _ => None,
        };
        match kept(&stage.store, ended).await {
            Ok(mut outcome) => {
                outcome = route(&stage, outcome, json).await;
                let touched = self.tree.touched(work_dir, before.as_deref()).await;
                outcome.files_touched = known(&stage, touched).await;
                let is_plain =
                    outcome.status == Status::Succeeded && outcome.files_touched.is_empty();
                if !(is_plain && files.remove_if_empty())
                    && let Err(error) = files.write(file, &script)
                {
                    return error.into();
                }
                let script = (*script != *source.text).then(|| Arc::from(script));
                let env = self.recorded(&stage, own);
                Finished { script, env, ..Finished::from(outcome) }.into()
            }
            Err(error) => StageEnd::CannotRecord { message: error.to_string() },
        }
    }
}

/// Writes the value for the script's standard input to a file. It is redacted, like the whole
/// context.
fn stdin(stage: &Stage, files: &StageFiles) -> Result<Option<PathBuf>, StageEnd> {
    let Some(key) = stage.spec().command().and_then(|spec| spec.stdin.as_ref()) else {
        return Ok(None);
    };
    let failed = |message: String| Failure::new(FailureClass::Deterministic, message);
    let get = |key: &str| stage.context.get(key).map(|it| value_of(stage, it)).transpose();
    let mut found = find_value(key, get)
        .and_then(|found| found.map(|it| value_of(stage, &it).map(Cow::into_owned)).transpose())?;
    let too_large = |bytes: u64| {
        let message = format!("stdin_source: the value of `{key}` is too large");
        failed(format!("{message}: {bytes} bytes (limit {MAX_STDIN})"))
    };
    if let Some(value) = &mut found {
        read_all_inner(value, &*stage.store, MAX_STDIN).map_err(|error| match error {
            ReadError::TooLarge { bytes } if bytes > MAX_STDIN => too_large(bytes),
            error => crate::common::failed(&error),
        })?;
    }
    let text = match found {
        Some(Value::String(text)) => text,
        Some(value) => value.to_string(),
        None if stage.run.dry_run => String::new(),
        None => {
            let message = format!("stdin_source: the context has no key `{key}`");
            return Err(failed(format!("{message}; write it in an earlier stage")).into());
        }
    };
    if text.len() as u64 > MAX_STDIN {
        return Err(too_large(text.len() as u64).into());
    }
    files.write(STDIN, &text)?;
    Ok(Some(files.path(STDIN)))
}

/// The outcome of a command with the JSON in its output, if the node asks for it.
async fn route(stage: &Stage, outcome: Outcome, json: Option<Result<Value, Failure>>) -> Outcome {
    match json {
        None => outcome,
        Some(Ok(json)) => {
            let (outcome, notices) = steered(stage, outcome, json);
            for notice in notices {
                // An error means that the driver is shutting down: the stage runs again.
                let _ = stage.reporter.report(notice).await;
            }
            outcome
        }
        Some(Err(failure)) => Outcome { status: Status::Failed, failure: Some(failure), ..outcome },
    }
}

/// The most bytes of a variable with its name, for Linux: `NAME=value` and a NUL.
const MAX_VARIABLE: usize = 128 << 10;
/// The most bytes of all variables of a node: a process takes about two megabytes, the user's own
/// environment among them.
const MAX_VARIABLES: usize = 1 << 20;

/// The variables that the node gives its script, filled in.
fn variables_of_node(stage: &Stage) -> Result<Vec<(String, String)>, Failure> {
    let failed = |message: String| Failure::new(FailureClass::Deterministic, message);
    let Some(spec) = stage.spec().command() else { return Ok(Vec::new()) };
    let mut variables = Vec::with_capacity(spec.env.len());
    let mut total = 0;
    for (name, text) in &spec.env {
        let value = render(stage, text, Mode::Variable)
            .map_err(|failure| failed(format!("env.{name}: {}", failure.message)))?;
        if value.contains('\0') {
            let message = format!("env.{name} holds a NUL character, which no variable can");
            return Err(failed(format!("{message}; read the value from a file")));
        }
        let bytes = name.len() + value.len() + 2;
        total += bytes;
        if bytes > MAX_VARIABLE || total > MAX_VARIABLES {
            let message = if bytes > MAX_VARIABLE {
                format!("env.{name} has {bytes} bytes, and a variable at most {MAX_VARIABLE}")
            } else {
                format!("the variables of the node have more than {MAX_VARIABLES} bytes together")
            };
            return Err(failed(format!(
                "{message}; write large values to a file and pass its path"
            )));
        }
        variables.push((name.to_string(), value));
    }
    Ok(variables)
}

/// The variable that holds the folder of the workflow file.
pub const WORKFLOW_DIR_VARIABLE: &str = "FABRO_WORKFLOW_DIR";

/// What every script may know about where it runs.
fn variables(stage: &Stage) -> Vec<(String, String)> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut all = vec![
        ("FABRO_RUN_ID".to_owned(), stage.run_id.to_string()),
        ("FABRO_RUN_DIR".to_owned(), text(&stage.run_dir)),
        ("FABRO_STAGE_DIR".to_owned(), text(&stage.dir())),
        ("FABRO_NODE".to_owned(), stage.at.node.to_string()),
        ("FABRO_VISIT".to_owned(), stage.at.visit.to_string()),
        ("FABRO_ATTEMPT".to_owned(), stage.at.attempt.to_string()),
    ];
    let graph_dir = stage.context.text(crate::WORKFLOW_DIR);
    if !graph_dir.is_empty() {
        all.push((WORKFLOW_DIR_VARIABLE.to_owned(), graph_dir.to_owned()));
    }
    all
}

/// The outcome, with outputs that are too large for memory in blobs. Such a log of gigabytes is read,
/// hashed and synced on a thread of its own: the other branches must not wait for that.
async fn kept(
    store: &Arc<dyn Store>,
    ended: fabro_sandbox::Finished,
) -> Result<Outcome, BlobError> {
    let is_large = |captured: &Captured| matches!(captured, Captured::Large { .. });
    if !is_large(&ended.stdout) && !is_large(&ended.stderr) {
        return outcome(&**store, ended);
    }
    let store = Arc::clone(store);
    let read = tokio::task::spawn_blocking(move || outcome(&*store, ended)).await;
    read.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic()))
}

fn outcome(store: &dyn BlobStore, ended: fabro_sandbox::Finished) -> Result<Outcome, BlobError> {
    let failure = match ended.exit {
        Exit::Code(0) => None,
        Exit::Code(code) => {
            let line = last_line(&ended.stderr).or_else(|| last_line(&ended.stdout));
            let quote = line.map(|line| format!(": {line}")).unwrap_or_default();
            Some(Failure::new(FailureClass::Deterministic, format!("exit code {code}{quote}")))
        }
        Exit::Signal(signal) => {
            let message = format!("killed by signal {signal}");
            Some(Failure::new(FailureClass::Deterministic, message))
        }
        Exit::Canceled => Some(Failure::new(FailureClass::Canceled, "canceled")),
    };
    let code = match ended.exit {
        Exit::Code(code) => Value::from(code),
        Exit::Signal(signal) => Value::from(128 + signal),
        Exit::Canceled => Value::Null,
    };
    let base = failure.map_or_else(Outcome::succeeded, Outcome::failed);
    Ok(base
        .with_update(keys::COMMAND_OUTPUT, value(store, ended.stdout)?)
        .with_update(keys::COMMAND_STDERR, value(store, ended.stderr)?)
        .with_update(keys::COMMAND_EXIT_CODE, code))
}

/// Output as a context value: its text, or a reference when it is too large for memory.
fn value(store: &dyn BlobStore, captured: Captured) -> Result<Value, BlobError> {
    match captured {
        Captured::Text(text) => Ok(Value::from(text)),
        Captured::Large { path, .. } => {
            let mut log = File::open(&path).map_err(|source| BlobError::Input { source })?;
            Ok(store.put_json_string(&mut log)?.to_value())
        }
    }
}

/// The last line with text of what a script wrote, for the message of its failure.
pub fn last_line(captured: &Captured) -> Option<String> {
    let text = match captured {
        Captured::Text(text) => Cow::Borrowed(text.as_str()),
        Captured::Large { path, .. } => Cow::Owned(tail(path, TAIL).ok()?),
    };
    // The guard of a sandbox adds lines of its own behind those of the script.
    let is_of_script = |line: &&str| !line.is_empty() && !line.starts_with("fabro: ");
    let line = text.lines().rev().map(str::trim).find(is_of_script)?;
    Some(line.chars().take(QUOTED).collect())
}
