//! What has to be known about a workflow before a run of it is started: its goal, its inputs, what is wrong with it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fabro_config::{Settings, Target};
use fabro_types::Diagnostic;
use serde_json::Value;

use crate::RunError;
use crate::sources::FileSources;
use crate::sources::read_text;
use crate::unread_inputs::read_names;

/// What a form that starts a run of a workflow asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct StartForm {
    /// The workflow file, relative to the directory of the project where it is in it.
    pub file: PathBuf,
    /// Its text.
    pub source: String,
    /// The goal that a run has without another one.
    pub goal: Option<String>,
    /// The inputs that it reads or is given, with the values that they have without others.
    pub inputs: BTreeMap<String, Option<Value>>,
    /// What validation finds. Inputs that are missing are no finding here.
    pub findings: Vec<Diagnostic>,
}

/// Reads what a form asks for. `cwd` is the project's directory, `home` replaces `~` in paths.
///
/// # Errors
///
/// The workflow cannot be read.
pub fn start_form(
    target: &Target,
    settings: &Settings,
    cwd: &Path,
    home: Option<&Path>,
) -> Result<StartForm, RunError> {
    let config = target.run_file.as_ref().map(|file| &file.config);
    let mut given = settings.defaults.inputs.clone();
    given.extend(config.map(|config| config.inputs.clone()).unwrap_or_default());
    let file = &target.workflow_file;
    let source =
        read_text(file).map_err(|reason| RunError::Unreadable { path: file.clone(), reason })?;
    let name = file.file_stem().map_or("workflow".into(), |stem| stem.to_string_lossy());
    let sources = FileSources::new(cwd.join(file), home.map(Path::to_owned));
    let checked = fabro_validate::check(&name, &source, &sources, None);
    let findings = checked.findings.clone();
    let of_graph = checked
        .into_plan()
        .ok()
        .and_then(|plan| plan.workflow().attrs().text("goal").map(str::to_owned));
    let written = target.run_file.as_ref().and_then(|file| file.goal(home).ok().flatten());
    let goal = written.or_else(|| settings.defaults.goal.clone()).or(of_graph);
    let files = sources.into_texts();
    let texts = files.values().map(String::as_str).chain([source.as_str()]);
    let goal_text = goal.as_deref().unwrap_or_default();
    let mut inputs: BTreeMap<String, Option<Value>> =
        read_names(texts.chain([goal_text])).into_iter().map(|name| (name, None)).collect();
    inputs.extend(given.into_iter().map(|(name, value)| (name, Some(value))));
    Ok(StartForm {
        file: file.strip_prefix(cwd).unwrap_or(file).to_owned(),
        goal: goal.filter(|goal| !goal.trim().is_empty()),
        inputs,
        findings,
        source,
    })
}
