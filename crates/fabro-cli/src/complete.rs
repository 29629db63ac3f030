//! Completion of values by the shell: runs, stages, gates, workflows, models.
//!
//! The script of `fabro completion` calls the program with the words of the line and with
//! [`VARIABLE`] set. An error here offers nothing: a shell has no place for errors.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;

use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter as _};
use clap_complete::env::{EnvCompleter, Shells};
use clap_complete::{CompleteEnv, Shell};
use fabro_config::McpTransport;
use fabro_engine::{checkpoint, read_all};
use fabro_events::{Event, EventBody};
use fabro_run::{gate_names, open_gates_of_family};
use fabro_store::{Runs as _, SqliteStore};
use fabro_terminal::one_line;
use fabro_types::RunId;

use crate::global::{Global, block_on, cwd, settings_and_warnings};
use crate::workflow_files::EXTENSIONS;

/// Holds the name of the shell that asks for completions.
const VARIABLE: &str = "FABRO_COMPLETE";

/// The most runs that are offered, newest first.
const MOST_RUNS: usize = 50;

/// Answers the shell about these commands, if it is the shell that has called the program.
pub fn answer_shell(commands: fn() -> clap::Command) -> clap::error::Result<bool> {
    let cwd = std::env::current_dir().ok();
    CompleteEnv::with_factory(commands)
        .var(VARIABLE)
        .try_complete(std::env::args_os(), cwd.as_deref())
}

/// The script that makes a shell ask for completions.
pub fn script(shell: Shell) -> anyhow::Result<String> {
    let mut text = Vec::new();
    let shells = Shells::builtins();
    let name = shell.to_string();
    let completer: &dyn EnvCompleter = shells
        .completer(&name)
        .ok_or_else(|| anyhow::anyhow!("there are no completions for {name}"))?;
    completer.write_registration(VARIABLE, "fabro", "fabro", &program(), &mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The program as the shell is to call it: by its name, or by its path when it was called so.
fn program() -> String {
    let called = std::env::args_os().next().unwrap_or_else(|| "fabro".into());
    let path = Path::new(&called);
    if path.components().count() < 2 {
        return "fabro".to_owned();
    }
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// The runs of the store, newest first, and `latest`.
pub fn runs() -> Vec<CompletionCandidate> {
    let list = || {
        let store = store()?;
        block_on(async { Ok(store.list().await?) }).ok()
    };
    let mut runs: Vec<_> = list().unwrap_or_default();
    runs.retain(|run| run.parent.is_none());
    if runs.is_empty() {
        return Vec::new();
    }
    let described = runs.into_iter().take(MOST_RUNS).enumerate().map(|(at, run)| {
        let text = format!("{} {}", one_line(&run.workflow, 40), run.status);
        candidate(&run.id.to_string(), &text).display_order(Some(at + 1))
    });
    let latest = candidate("latest", "the run created last").display_order(Some(0));
    std::iter::once(latest).chain(described).collect()
}

/// The stages of the run that the line names: nodes, and single visits of those that have several.
pub fn stages() -> Vec<CompletionCandidate> {
    let mut names: Vec<String> = Vec::new();
    let events = events_of_run().unwrap_or_default();
    for event in checkpoint::effective(&events) {
        let EventBody::StageStarted { .. } = event.entry.body else { continue };
        let Some(node) = event.entry.node_id.as_deref() else { continue };
        let branch = event.entry.branch.as_deref().map(|it| format!("{it}/")).unwrap_or_default();
        names.push(format!("{branch}{node}"));
        if let Some(visit) = event.entry.visit.filter(|visit| *visit > 1) {
            names.push(format!("{branch}{node}@1"));
            names.push(format!("{branch}{node}@{visit}"));
        }
    }
    distinct(names)
}

/// The nodes of the run that the line names.
pub fn nodes() -> Vec<CompletionCandidate> {
    let events = events_of_run().unwrap_or_default();
    distinct(events.iter().filter_map(|event| event.entry.node_id.as_deref().map(str::to_owned)))
}

/// The paths of the artifacts of the run that the line names.
pub fn artifacts() -> Vec<CompletionCandidate> {
    let events = events_of_run().unwrap_or_default();
    let all = fabro_inspect::artifacts(&events);
    distinct(all.into_iter().map(|kept| kept.artifact.path.clone()))
}

/// The choices of the open gates of the run that the line names, and the gates if there are several.
pub fn choices() -> Vec<CompletionCandidate> {
    let gates = || {
        let (store, run) = store_and_run()?;
        block_on(async { Ok(open_gates_of_family(&store, run).await?) }).ok()
    };
    let gates = gates().unwrap_or_default();
    let names = if gates.len() > 1 { gate_names(&gates) } else { Vec::new() };
    let options = gates.iter().flat_map(|gate| &gate.options);
    let options = options
        .map(|option| candidate(&option.key, &one_line(&option.label, 60)))
        .collect::<Vec<_>>();
    distinct(names).into_iter().chain(options).collect()
}

/// Workflows: the names of the project's, and files.
pub fn workflows(current: &OsStr) -> Vec<CompletionCandidate> {
    let names = cwd().map(|cwd| fabro_config::workflow_names(&cwd)).unwrap_or_default();
    let current_text = current.to_string_lossy();
    let fitting = names.iter().filter(|name| name.starts_with(&*current_text));
    let mut all: Vec<_> =
        fitting.map(|name| candidate(name, "a workflow of the project")).collect();
    let is_workflow = |path: &Path| {
        let extension = path.extension().and_then(OsStr::to_str);
        path.is_dir() || extension.is_some_and(|it| it == "toml" || EXTENSIONS.contains(&it))
    };
    all.extend(PathCompleter::any().filter(is_workflow).complete(current));
    all
}

/// The models of the catalog and of the settings.
pub fn models() -> Vec<CompletionCandidate> {
    let Ok((settings, _)) = settings_and_warnings() else { return Vec::new() };
    let catalog = fabro_run::catalog(&settings.models);
    let described = catalog
        .iter()
        .map(|model| candidate(&model.name, model.provider.as_deref().unwrap_or_default()));
    described.collect()
}

/// The MCP servers of the settings that are reached by a URL.
pub fn mcp_servers() -> Vec<CompletionCandidate> {
    let Ok((settings, _)) = settings_and_warnings() else { return Vec::new() };
    let named = settings.agent.mcp.iter().filter_map(|(name, server)| match &server.transport {
        McpTransport::Http { url, .. } => Some(candidate(name, url)),
        McpTransport::Command { .. } => None,
    });
    named.collect()
}

/// The attributes of the language.
pub fn attributes() -> Vec<CompletionCandidate> {
    let all = fabro_graph::schema::ATTRIBUTES.iter();
    all.map(|attribute| candidate(attribute.name, attribute.doc)).collect()
}

fn candidate(value: &str, help: &str) -> CompletionCandidate {
    CompletionCandidate::new(value).help((!help.is_empty()).then(|| help.to_owned().into()))
}

/// Each name once, in the order in which they come first.
fn distinct(names: impl IntoIterator<Item = String>) -> Vec<CompletionCandidate> {
    let mut known = BTreeSet::new();
    let first = names.into_iter().filter(|name| known.insert(name.clone()));
    first
        .enumerate()
        .map(|(at, name)| CompletionCandidate::new(name).display_order(Some(at)))
        .collect()
}

/// The words of the line so far.
fn words() -> Vec<String> {
    let words = std::env::args_os().skip_while(|word| word != "--").skip(2);
    words.map(|word| word.to_string_lossy().into_owned()).collect()
}

/// The store that the line names, else the usual one.
fn store() -> Option<SqliteStore> {
    let words = words();
    let mut pairs = words.iter().zip(words.iter().skip(1));
    let after = pairs.find(|(word, _)| *word == "--store").map(|(_, dir)| dir.as_str());
    let store = after.or_else(|| words.iter().find_map(|word| word.strip_prefix("--store=")));
    let global = Global { store: store.map(Into::into), ..Global::default() };
    global.store_to_read().ok()
}

/// The run that the line names: the first word after the command that is one.
fn store_and_run() -> Option<(SqliteStore, RunId)> {
    let store = store()?;
    let words = words();
    let typed = words.iter().skip(1).filter(|word| !word.is_empty() && !word.starts_with('-'));
    let found = block_on(async {
        for word in typed {
            if let Ok(run) = store.find(word).await {
                return Ok(Some(run));
            }
        }
        Ok(None)
    });
    let run = found.ok().flatten()?;
    Some((store, run))
}

fn events_of_run() -> Option<Vec<Event>> {
    let (store, run) = store_and_run()?;
    block_on(async { Ok(read_all(&store, run).await?) }).ok()
}
