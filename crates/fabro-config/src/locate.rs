use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use fabro_types::control_files::{
    FABRO_DIR, GRAPH_EXTENSIONS, RUN_FILES, SETTINGS_FILES, WORKFLOW_EXTENSION, WORKFLOW_FILE,
};
use fabro_types::{Diagnostic, Span, nearest};

use crate::error::{ConfigError, Findings};
use crate::file::{expand, read_text};
use crate::model::ModelSettings;
use crate::named::goal_text;
use crate::reader::{Unsupported, find_span, find_string};
use crate::run::{RunConfig, parse_as};
use crate::settings::{RunDefaults, Settings};
use crate::spelling::spelled_as_on_disk;
use crate::store_dir::{project_dirs, project_root};
use crate::telemetry::TelemetrySettings;
use crate::trust::{check_link, check_owner, read_trusted};

/// Whether a workflow may have this extension.
fn is_graph_extension(extension: &str) -> bool {
    extension == WORKFLOW_EXTENSION || GRAPH_EXTENSIONS.contains(&extension)
}

/// A workflow to run, and the run.toml that names it, if one does.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The workflow file. It exists.
    pub workflow_file: PathBuf,
    /// The run.toml.
    pub run_file: Option<RunFile>,
}

/// A run.toml that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct RunFile {
    /// Where it is.
    pub path: PathBuf,
    /// What it sets.
    pub config: RunConfig,
    /// Its warnings; the list is empty when there are none.
    pub warnings: Findings,
}

impl RunFile {
    /// The workflow it names, beside it when it names none (`workflow.fabro`). It may not exist.
    /// `home` is what `~` stands for.
    pub fn workflow_file(&self, home: Option<&Path>) -> PathBuf {
        let graph = self.config.graph.as_deref().unwrap_or(WORKFLOW_FILE);
        spelled_as_on_disk(&expand(self.dir(), home, Path::new(graph)))
    }

    /// The file of canned responses it names.
    pub fn model_script(&self, home: Option<&Path>) -> Option<PathBuf> {
        let script = self.config.model.script.as_deref()?;
        Some(expand(self.dir(), home, script))
    }

    /// The goal it sets; `@file` is read.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or has over 1 MiB.
    pub fn goal(&self, home: Option<&Path>) -> Result<Option<String>, ConfigError> {
        let Some(goal) = self.config.goal.as_deref() else { return Ok(None) };
        goal_text(&self.path, home, goal).map(Some)
    }

    /// What it sets over the settings of project and user (`weaker`): its providers, models and
    /// `run.agent`, with paths resolved. Its model is not among them: it is stronger than a graph's
    /// own, and theirs is weaker.
    ///
    /// # Errors
    ///
    /// The JSON Schema of a tool cannot be read, or is not a schema.
    pub fn settings(&self, weaker: Settings, home: Option<&Path>) -> Result<Settings, ConfigError> {
        let own = Settings {
            model: ModelSettings::default(),
            agent: self.config.agent.clone().resolved(&self.path, home)?,
            on_failure: self.config.on_failure,
            max_cost: self.config.max_cost,
            command_timeout: self.config.command_timeout,
            on_unavailable: self.config.on_unavailable,
            retry_unavailable: self.config.retry_unavailable,
            resume_threads: self.config.resume_threads,
            max_time: self.config.max_time,
            concurrency: self.config.concurrency.clone(),
            telemetry: TelemetrySettings::default(),
            webhooks: Vec::new(),
            sandbox: self.config.sandbox.clone().resolved(self.dir(), home),
            hooks: self.config.hooks.clone(),
            providers: self.config.providers.clone(),
            models: self.config.models.clone(),
            defaults: RunDefaults::default(),
        };
        Ok(own.or(weaker))
    }

    /// The span of the value of a setting, such as `run.goal`; the beginning of the file when it is not
    /// set.
    pub fn span_of(&self, setting: &str) -> Span {
        find_span(&self.warnings.text, setting).unwrap_or_default()
    }

    /// The span of a part of `text`, which is such a value; of the whole value when it is written
    /// with escapes.
    pub fn span_within(&self, setting: &str, text: &str, part: Span) -> Span {
        let whole = self.span_of(setting);
        let written = self.warnings.text.get(whole.start..whole.end).unwrap_or_default();
        let Some(at) = written.find(text).filter(|_| part.end > part.start) else { return whole };
        Span::new(whole.start + at + part.start, whole.start + at + part.end)
    }

    fn dir(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }
}

/// Finds what `arg` means: a workflow file (`.fabro`, `.dot`, `.gv`), a run.toml (any `.toml`), or
/// the name of a workflow. A name is looked up in `.fabro/workflows` of `cwd` and of each folder
/// above it in its project, as `NAME/workflow.toml`, `NAME/workflow.fabro` or `NAME.fabro`. Other paths, with a
/// separator in them, are workflow files with any name. `home` is what `~` stands for in
/// a run.toml.
///
/// # Errors
///
/// There is no such file, with the files that were looked for and a similar name; a run.toml that
/// cannot be read or has an error; a workflow found by name that another user owns or can write.
pub fn locate(arg: &str, cwd: &Path, home: Option<&Path>) -> Result<Target, ConfigError> {
    locate_as(arg, cwd, home, Unsupported::Refused)
}

/// Like [`locate`], with unsupported settings of upstream treated in this way.
///
/// # Errors
///
/// As [`locate`].
pub fn locate_as(
    arg: &str,
    cwd: &Path,
    home: Option<&Path>,
    unsupported: Unsupported,
) -> Result<Target, ConfigError> {
    let path = spelled_as_on_disk(&cwd.join(arg));
    check_link(&path, project_root(cwd))?;
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => {
            existing(&path)?;
            return by_run_file(&path, read_text(&path)?, home, unsupported);
        }
        Some(extension) if is_graph_extension(extension) => {}
        _ if arg.contains(['/', '\\']) => {}
        _ => return by_name(arg, cwd, home, unsupported),
    }
    existing(&path).map_err(|error| match error {
        ConfigError::NoFile(path, near) if near.is_empty() => {
            let near = stem_of_name(arg, cwd).into_iter().collect();
            ConfigError::NoFile(path, near)
        }
        error => error,
    })?;
    Ok(Target { workflow_file: path, run_file: None })
}

/// The name of a workflow of the projects that `cwd` is in, for `NAME.fabro`.
fn stem_of_name(arg: &str, cwd: &Path) -> Option<String> {
    let stem = Path::new(arg).file_stem()?.to_str()?;
    (!arg.contains(['/', '\\']) && workflow_names(cwd).contains(stem)).then(|| stem.to_owned())
}

/// Reads a run.toml; its relative paths stay as written.
///
/// # Errors
///
/// The file cannot be read, has over 1 MiB, or holds an error.
pub fn load(path: &Path) -> Result<RunFile, ConfigError> {
    parsed(path, read_text(path)?, Unsupported::Refused)
}

fn parsed(path: &Path, text: String, unsupported: Unsupported) -> Result<RunFile, ConfigError> {
    let path = path.to_owned();
    match parse_as(&text, unsupported) {
        Ok((config, list)) => {
            let warnings = Findings { path: path.clone(), text, list };
            Ok(RunFile { path, config, warnings })
        }
        Err(list) => Err(ConfigError::Invalid(Box::new(Findings { path, text, list }))),
    }
}

fn by_run_file(
    path: &Path,
    text: String,
    home: Option<&Path>,
    unsupported: Unsupported,
) -> Result<Target, ConfigError> {
    let run_file = parsed(path, text, unsupported)?;
    let workflow_file = run_file.workflow_file(home);
    if !workflow_file.is_file() {
        return Err(ConfigError::Invalid(Box::new(without_graph(run_file, &workflow_file))));
    }
    Ok(Target { workflow_file, run_file: Some(run_file) })
}

/// The findings of a run.toml whose workflow is missing: its warnings may name a misspelled `graph`.
fn without_graph(run_file: RunFile, workflow_file: &Path) -> Findings {
    const SETTING: &str = "workflow.graph";
    let near = near_files(workflow_file).pop();
    let fix = match (near, &run_file.config.graph) {
        (Some(near), Some(_)) => format!("did you mean `{near}`?"),
        (_, Some(_)) => format!("correct `{SETTING}`"),
        (_, None) => format!("name the workflow: `{SETTING}`"),
    };
    let message = format!("the workflow {} is not a file", workflow_file.display());
    let error =
        Diagnostic::error("setting-value", run_file.span_of(SETTING), message).with_fix(fix);
    let mut findings = run_file.warnings;
    findings.list.push(error);
    findings.list.sort_by_key(|finding| finding.span.start);
    findings
}

fn by_name(
    name: &str,
    cwd: &Path,
    home: Option<&Path>,
    unsupported: Unsupported,
) -> Result<Target, ConfigError> {
    if name.is_empty() || name == "." || name == ".." {
        return Err(ConfigError::NoName(name.to_owned()));
    }
    let mut tried = Vec::new();
    for folder in project_dirs(cwd).flat_map(workflow_folders) {
        let run_file = folder.join(name).join(RUN_FILES[0]);
        if run_file.is_file() {
            let text = read_trusted(&run_file, project_root(cwd))?;
            let target = by_run_file(&run_file, text, home, unsupported)?;
            check_owner(&target.workflow_file, project_root(cwd))?;
            return Ok(target);
        }
        let inside = folder.join(name).join(WORKFLOW_FILE);
        let beside = folder.join(format!("{name}.{WORKFLOW_EXTENSION}"));
        if let Some(found) = [&inside, &beside].into_iter().find(|file| file.is_file()) {
            check_owner(found, project_root(cwd))?;
            return Ok(Target { workflow_file: found.clone(), run_file: None });
        }
        tried.extend([run_file, inside, beside]);
    }
    if cwd.join(name).is_file() {
        return Err(ConfigError::OtherFile(name.to_owned()));
    }
    let is_meant = |file: &String| {
        let path = Path::new(file);
        path.extension().is_some_and(|it| it != "toml") && path.file_stem() == Some(name.as_ref())
    };
    // A file beside is run by its whole name.
    let mut near: Vec<_> = workflow_files(cwd).into_iter().filter(is_meant).collect();
    if near.is_empty() {
        let known = workflow_names(cwd);
        near = similar(name, known.iter().map(String::as_str));
    }
    Err(ConfigError::NoWorkflow { name: name.to_owned(), tried, near })
}

/// The names of the workflows of the project that `cwd` is in.
pub fn workflow_names(cwd: &Path) -> BTreeSet<String> {
    project_dirs(cwd).flat_map(names_in).collect()
}

/// The files of the folder `dir` itself, by their names, that [`locate`] takes: workflow files, and each run.toml
/// that names its workflow or stands beside a `workflow.fabro`.
pub fn workflow_files(dir: &Path) -> BTreeSet<String> {
    let takes = |file: &String| {
        let path = dir.join(file);
        let is_toml = path.extension().is_some_and(|it| it == "toml");
        is_runnable(file) && path.is_file() && (!is_toml || is_run_file(&path))
    };
    files_in(dir).into_iter().filter(takes).collect()
}

/// Whether a `.toml` is a run.toml: it names a workflow, or has one of two names beside a `workflow.fabro`.
fn is_run_file(path: &Path) -> bool {
    let names_graph = || find_string(&read_text(path).ok()?, "workflow.graph");
    let is_beside = path.file_name().is_some_and(|it| RUN_FILES.iter().any(|name| it == *name))
        && path.with_file_name(WORKFLOW_FILE).is_file();
    is_beside || names_graph().is_some()
}

/// The folders of a project's workflows: `.fabro/workflows`, and where its project file of upstream has
/// them.
fn workflow_folders(dir: &Path) -> Vec<PathBuf> {
    let setting = |file: &str, name: &str| {
        let file = dir.join(file);
        Some(find_string(&read_trusted(&file, project_root(dir)).ok()?, name))
    };
    let [_, project, older] = SETTINGS_FILES;
    let own = setting(project, "project.directory").flatten();
    let older = setting(older, "fabro.root").map(|root| root.unwrap_or_else(|| ".".into()));
    let mut folders = vec![dir.join(FABRO_DIR).join("workflows")];
    for root in own.into_iter().chain(older) {
        let folder = dir.join(root).join("workflows");
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

/// The names of the workflows of one project folder.
fn names_in(dir: &Path) -> Vec<String> {
    let folders = workflow_folders(dir).into_iter();
    let entries = folders.filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    let has_workflow =
        |dir: &Path| [RUN_FILES[0], WORKFLOW_FILE].iter().any(|file| dir.join(file).is_file());
    let is_workflow = |path: &PathBuf| match path.extension() {
        Some(extension) if extension == WORKFLOW_EXTENSION && !path.is_dir() => true,
        _ => has_workflow(path),
    };
    let paths = entries.flatten().map(|entry| entry.path()).filter(is_workflow);
    paths.filter_map(|path| path.file_stem()?.to_str().map(str::to_owned)).collect()
}

/// The error for a path that should be a file and is not.
fn existing(path: &Path) -> Result<(), ConfigError> {
    match fs::metadata(path) {
        Ok(kind) if kind.is_dir() => {
            let near = files_in(path).into_iter().filter(|file| is_runnable(file)).take(3);
            let near = near.map(|file| path.join(file).display().to_string()).collect();
            Err(ConfigError::NotAFile(path.to_owned(), near))
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(ConfigError::NoFile(path.to_owned(), near_files(path)))
        }
        Err(source) => Err(ConfigError::Read { path: path.to_owned(), source }),
    }
}

/// A file in the same folder with a similar name.
fn near_files(path: &Path) -> Vec<String> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str()))
    else {
        return Vec::new();
    };
    let files = files_in(dir);
    let runnable = files.iter().filter(|file| is_runnable(file)).map(String::as_str);
    similar(name, runnable)
}

fn similar<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    nearest(name, names).map(str::to_owned).into_iter().collect()
}

fn is_runnable(file: &str) -> bool {
    let extension = Path::new(file).extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|it| it == "toml" || is_graph_extension(it))
}

/// The names of the entries of a folder, sorted.
fn files_in(dir: &Path) -> BTreeSet<String> {
    let Ok(entries) = fs::read_dir(dir) else { return BTreeSet::new() };
    entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

#[cfg(test)]
mod tests;
