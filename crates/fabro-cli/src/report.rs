//! How errors are reported: the message, what to do next, and the exit code. Only here the errors of
//! libraries are given the commands and options that help.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io;
use std::os::unix::fs::MetadataExt as _;

use fabro_blob::{BlobError, ReadError};
use fabro_config::ConfigError;
use fabro_engine::DriveError;
use fabro_inspect::ReportError;
use fabro_inspect::dump::DumpError;
use fabro_run::{GoalError, NamedGate, RunError, SetupError, UNAVAILABLE};
use fabro_store::StoreError;
use fabro_terminal::{clean, diagnostics};
use fabro_types::{Diagnostic, RunId, RunStatus, Severity, bounded};

use crate::error::{CliError, failed, store, usage};
use crate::exit::Exit;
use crate::global::{self, Global, wrapped};
use crate::output;
use crate::workflow_files::shown;

/// An error of a run, with the commands and options that help.
fn run_error(error: RunError, global: &Global) -> anyhow::Error {
    let message = error.to_string();
    match error {
        RunError::Invalid { path, text, findings } => {
            let shown = shown(&path, &global::cwd().unwrap_or_default());
            let mut errors = findings.iter().filter(|it| it.severity == Severity::Error);
            let what = if errors.all(|error| error.rule == UNAVAILABLE) {
                "cannot run: its stages need what is missing"
            } else {
                "is not valid"
            };
            refused(&shown, what, &text, &findings, global)
        }
        RunError::Unreadable { .. } => usage(message, "name a .fabro file that can be read"),
        RunError::Config(error) => error.into(),
        RunError::Setup(error) => error.into(),
        RunError::Store(StoreError::AlreadyAnswered { .. }) => {
            usage(message, "the run takes that answer when it continues; `fabro inspect` shows it")
        }
        RunError::Store(error) | RunError::Drive(DriveError::Store(error)) => error.into(),
        RunError::Bundle(error) => error.into(),
        RunError::Goal(GoalError { message, fix, .. }) => {
            usage(format!("the goal cannot be rendered: {message}"), fix)
        }
        RunError::Choice(_) => usage(message, "answer with one of these"),
        RunError::NoModel { .. } => usage(
            message,
            "set ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY or OPENAI_BASE_URL, or write a [providers.NAME] into .fabro/config.toml; or use canned responses with --model-script FILE, or try --dry-run",
        ),
        RunError::OlderLog { run, .. } => {
            let accept = global.command(&format!("verify {run} --accept-loss"));
            store(message, format!("without a copy, `{accept}` continues with what is left"))
        }
        RunError::NotCreated { .. } => {
            failed(message, "the log is damaged; look at it with `fabro events`")
        }
        RunError::Ended { run, status } => {
            let retry = match status {
                RunStatus::Succeeded => String::new(),
                _ => format!(
                    "run again what failed with `{}`, ",
                    global.command(&format!("retry {run}"))
                ),
            };
            let rewind = global.command(&format!("rewind {run} NODE@VISIT"));
            let fork = global.command(&format!("fork {run} NODE@VISIT"));
            usage(message, format!("{retry}go back with `{rewind}`, or copy it with `{fork}`"))
        }
        RunError::SubWorkflow { root, .. } => {
            usage(message, format!("name the run it belongs to: {root}"))
        }
        RunError::NoCheckpoint { run, .. } => {
            let inspect = global.command(&format!("inspect {run}"));
            usage(message, format!("list its stages with `{inspect}`; nothing follows an exit"))
        }
        RunError::SeveralStages { stage, stages } => {
            ReportError::SeveralStages { stage, stages }.into()
        }
        RunError::InputInContext { key } => {
            let name = key.strip_prefix("inputs.").unwrap_or("KEY");
            let fork = global.command(&format!("fork RUN STAGE -I {name}=VALUE"));
            usage(message, format!("make a copy of the run with another input: `{fork}`"))
        }
        RunError::NoOpenGate { run } => {
            let inspect = global.command(&format!("inspect {run}"));
            usage(message, format!("see its state with `{inspect}`"))
        }
        RunError::GateAnswered { .. } => {
            usage(message, "an answer counts once; `fabro rewind` takes the run back before it")
        }
        RunError::GateTimedOut { run, .. } => {
            let resume = global.command(&format!("resume {run}"));
            usage(
                message,
                format!("`{resume}` continues with its default, or fails the gate without one"),
            )
        }
        RunError::NoSuchGate { open, .. } => {
            let open = gate_lines(&open);
            usage(message, format!("waiting gates (quote a text of several words):{open}"))
        }
        RunError::AmbiguousGate { gates } => {
            usage(message, format!("name one of them before the choice:{}", gate_lines(&gates)))
        }
        RunError::NoAgent { agents, .. } if agents.is_empty() => {
            usage("the run has no agents", "only agent stages take messages")
        }
        RunError::NoAgent { agents, .. } => usage(message, format!("it has {}", agents.join(", "))),
        error => error.into(),
    }
}

/// An error of a driver, whose run can be resumed.
pub fn driving(error: RunError, run: RunId, global: &Global) -> anyhow::Error {
    match error {
        RunError::Drive(
            error @ (DriveError::Record { .. } | DriveError::Store(StoreError::Blob(_))),
        ) => {
            let resume = global.command(&format!("resume {run}"));
            let next = format!("the run's events are intact: fix it, then run `{resume}`");
            store(error.to_string(), next)
        }
        error => error.into(),
    }
}

/// A file with these errors, which are shown on stderr first.
pub fn not_valid(
    shown: &str,
    source: &str,
    errors: &[Diagnostic],
    global: &Global,
) -> anyhow::Error {
    refused(shown, "is not valid", source, errors, global)
}

fn refused(
    shown: &str,
    what: &str,
    source: &str,
    errors: &[Diagnostic],
    global: &Global,
) -> anyhow::Error {
    output::stderr(&diagnostics::render(shown, source, errors, global.paint_stderr()));
    usage(format!("{shown} {what}"), "fix the errors shown above")
}

/// Prints the error, with what to do next, to stderr. A closed pipe is not an error: nothing is printed
/// then.
pub fn report(error: anyhow::Error, global: &Global) -> Exit {
    let error = match error.downcast::<RunError>() {
        Ok(error) => run_error(error, global),
        Err(error) => error,
    };
    if is_closed_pipe(&error) {
        return Exit::SUCCEEDED;
    }
    let error = without_warnings(error);
    let paint = global.paint_stderr();
    let message = error.to_string();
    let mut text = format!("{} {}\n", paint.error("error:"), clean(&bounded(&message)));
    let mut printed = message;
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        // Many errors name their cause in their own message.
        if !printed.contains(&cause) {
            let _ = writeln!(text, "  because: {}", clean(&bounded(&cause)));
            printed.push_str(&cause);
        }
    }
    if let Some(next) = next(&error) {
        let _ = writeln!(text, "  {} {}", paint.hint("help:"), clean(&bounded(&next)));
    }
    for line in text.lines() {
        output::stderr(&format!("{}\n", wrapped(line)));
    }
    exit_of(&error)
}

/// The error of a settings file without its warnings, which are printed before it.
pub fn without_warnings(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<ConfigError>() {
        Ok(ConfigError::Invalid(findings)) => {
            let (warnings, errors) = findings.split();
            if !warnings.list.is_empty() {
                output::stderr(&format!("{}\n", clean(&warnings.to_string())));
            }
            ConfigError::Invalid(Box::new(errors)).into()
        }
        Ok(error) => error.into(),
        Err(error) => error,
    }
}

/// Advice for a store that belongs to another user.
fn foreign_store(error: &StoreError) -> Option<String> {
    let path = match error {
        StoreError::Io { path, source } if source.kind() == io::ErrorKind::PermissionDenied => path,
        StoreError::ReadOnly { path } => path,
        _ => return None,
    };
    let owner = path.ancestors().find_map(|place| place.metadata().ok())?.uid();
    (owner != rustix::process::geteuid().as_raw()).then(|| {
        format!(
            "the store belongs to another user (uid {owner}): run fabro as that user, or keep your runs in another store with `--store DIR` or FABRO_STORE"
        )
    })
}

/// What to do next, where the message does not say it.
pub fn next(error: &anyhow::Error) -> Option<Cow<'_, str>> {
    let own = error.chain().find_map(|cause| Some(cause.downcast_ref::<CliError>()?.next.as_str()));
    let named = match error.downcast_ref::<ConfigError>() {
        Some(ConfigError::NoFile(..) | ConfigError::NoWorkflow { .. }) => {
            Some("check the name, or make a first workflow with `fabro init`")
        }
        Some(ConfigError::Read { .. }) => Some("check its permissions, or name another file"),
        _ => None,
    };
    let store = error.chain().find_map(|cause| cause.downcast_ref::<StoreError>());
    if let Some(fix) = store.and_then(foreign_store) {
        return Some(fix.into());
    }
    let named = named.or(store.and_then(|error| match error {
        StoreError::NoStore { .. } => {
            Some("start one with `fabro run`, or name another store with `--store`")
        }
        StoreError::NotAStore { .. } | StoreError::ReadOnly { .. } | StoreError::Io { .. } => {
            Some("fix that, or name another store with `--store`")
        }
        StoreError::HiddenCommit { .. } => {
            Some("without a copy, `fabro verify --accept-loss` continues without that commit")
        }
        StoreError::Lost { .. } | StoreError::DamagedHead { .. } => {
            Some("without a copy, `fabro verify RUN --accept-loss` continues with what is left")
        }
        _ => None,
    }));
    let settings = error.chain().find_map(|cause| cause.downcast_ref::<SetupError>());
    own.or(named).or(settings.map(|error| error.fix.as_str())).map(Cow::Borrowed)
}

/// How many gates an error lists.
const LISTED_GATES: usize = 20;

/// One line for each gate.
fn gate_lines(gates: &[NamedGate]) -> String {
    let mut text = String::new();
    for gate in gates.iter().take(LISTED_GATES) {
        let _ = write!(text, "\n  {}", clean(&gate.to_string()));
    }
    if gates.len() > LISTED_GATES {
        let _ = write!(text, "\n  … and {} more", gates.len() - LISTED_GATES);
    }
    text
}

/// The exit code of an error.
fn exit_of(error: &anyhow::Error) -> Exit {
    for cause in error.chain() {
        if let Some(own) = cause.downcast_ref::<CliError>() {
            return own.exit;
        }
        if let Some(store) = cause.downcast_ref::<StoreError>() {
            return exit_of_store(store);
        }
        if cause.is::<BlobError>() || matches!(cause.downcast_ref(), Some(ReadError::Blob(_))) {
            return Exit::STORE;
        }
        let report = match cause.downcast_ref::<DumpError>() {
            Some(DumpError::Report(report)) => Some(report),
            Some(_) => return Exit::STORE,
            None => cause.downcast_ref::<ReportError>(),
        };
        match report {
            Some(ReportError::Store(store)) => return exit_of_store(store),
            Some(other) => return if other.is_store() { Exit::STORE } else { Exit::USAGE },
            None => {}
        }
    }
    if error.chain().any(|cause| cause.is::<ConfigError>() || cause.is::<SetupError>()) {
        return Exit::USAGE;
    }
    Exit::FAILED
}

fn exit_of_store(error: &StoreError) -> Exit {
    match error {
        StoreError::NoRuns
        | StoreError::NotFound { .. }
        | StoreError::Ambiguous { .. }
        | StoreError::AlreadyAnswered { .. }
        | StoreError::Driven { .. } => Exit::USAGE,
        _ => Exit::STORE,
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let closed = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(closed))
}
