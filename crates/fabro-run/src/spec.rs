//! What a run is created from: a workflow with its files, settings, goal and inputs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{Bundle, RunSettings, render_goal};
use fabro_config::{SandboxProvider, SandboxSettings, ScriptUse, Settings, Target};
use fabro_engine::{Plan, PlanError};
use fabro_graph::{MemorySources, Sources};
use fabro_llm::Script;
use fabro_types::{Diagnostic, RunId, Severity};
use serde_json::{Map, Value};

use crate::models::providers;
use crate::run_file::{goal_of, model_script_of};
use crate::unread_inputs::unread_inputs;
use crate::{FileSources, RunError, SetupError, read_text, read_text_or_pipe};

/// A valid workflow with the files that it names.
#[derive(Clone, Debug)]
pub struct LoadedWorkflow {
    /// What is stored with a run; without settings.
    pub bundle: Bundle,
    /// The workflow, compiled once for validation and running.
    pub plan: Arc<Plan>,
    /// What validation warns of.
    pub warnings: Vec<Diagnostic>,
}

impl LoadedWorkflow {
    /// Reads and validates a workflow file. Paths in messages are relative to `cwd`.
    ///
    /// # Errors
    /// The file cannot be read, or it is not valid with these inputs.
    pub fn read(
        file: &Path,
        cwd: &Path,
        home: Option<PathBuf>,
        inputs: &Map<String, Value>,
    ) -> Result<Self, RunError> {
        let source = read_text(file)
            .map_err(|reason| RunError::Unreadable { path: file.to_owned(), reason })?;
        let name = file.file_stem().map_or("workflow".into(), |stem| stem.to_string_lossy());
        let sources = FileSources::new(cwd.join(file), home);
        let shown = file.strip_prefix(cwd).unwrap_or(file).to_string_lossy();
        let mut loaded = Self::validate(&name, &shown, source, &sources, Some(inputs))?;
        loaded.bundle.files = sources.into_texts();
        Ok(loaded)
    }

    /// Validates the source of a workflow that names no files.
    ///
    /// # Errors
    /// It is not valid.
    pub fn parse(name: &str, source: &str) -> Result<Self, RunError> {
        Self::validate(name, name, source.to_owned(), &MemorySources::default(), None)
    }

    fn validate(
        name: &str,
        file: &str,
        source: String,
        sources: &dyn Sources,
        inputs: Option<&Map<String, Value>>,
    ) -> Result<Self, RunError> {
        let checked = fabro_validate::check(name, &source, sources, inputs);
        let mut warnings = checked.findings.clone();
        warnings.retain(|finding| finding.severity == Severity::Warning);
        match checked.into_plan() {
            Ok(plan) => Ok(Self {
                warnings,
                bundle: Bundle {
                    name: name.to_owned(),
                    file: file.to_owned(),
                    base: String::new(),
                    files: [].into(),
                    settings: RunSettings::default(),
                    constants: None,
                    source,
                },
                plan: Arc::new(plan),
            }),
            Err(PlanError { findings }) => {
                Err(RunError::Invalid { path: file.into(), text: source, findings })
            }
        }
    }
}

/// What is set over the settings of a run.toml, a project and a user.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct Overrides {
    /// The goal; `{{ inputs.NAME }}` is filled in.
    pub goal: Option<String>,
    /// Inputs, over those of the run.toml.
    pub inputs: Map<String, Value>,
    /// The model of stages that name none.
    pub model: Option<String>,
    /// The text of a model script.
    pub model_script: Option<String>,
    /// The name of its file.
    pub model_script_file: Option<String>,
    /// Providers answer, and no model script that the settings name.
    pub live: bool,
    /// The text of a file of prepared answers.
    pub answers: Option<String>,
    /// Answer every gate with its default, else its first option.
    pub auto_approve: bool,
    /// Execute nothing.
    pub dry_run: bool,
    /// Decides every random choice.
    pub seed: Option<u64>,
    /// A spending limit in US dollars.
    pub max_cost: Option<f64>,
    /// Work in a git worktree of the run's own.
    pub worktree: bool,
    /// What confines scripts and agents.
    pub sandbox: Option<SandboxProvider>,
    /// Keep what is left in the sandbox when the run has ended.
    pub preserve_sandbox: bool,
}

/// What a run is created from.
#[derive(Clone, Debug)]
pub struct RunSpec {
    /// The workflow.
    pub workflow: LoadedWorkflow,
    /// How it is run. Secrets in it are not stored.
    pub settings: RunSettings,
    /// The goal, rendered; `None` for the workflow's own, rendered with the inputs.
    pub goal: Option<String>,
    /// The inputs.
    pub inputs: Map<String, Value>,
    /// Unread inputs and other warnings about them, in sentences for people.
    pub warnings: Vec<String>,
    /// Decides every random choice; `None` for a hash of workflow and inputs.
    pub seed: Option<u64>,
    /// The directory that scripts and tools work in.
    pub work_dir: PathBuf,
    /// The directory that `@file` references of prompts are relative to.
    pub workflow_dir: PathBuf,
    /// A spending limit in US dollars, over the workflow's own.
    pub max_cost: Option<f64>,
    /// Execute nothing.
    pub dry_run: bool,
    /// The id of the run, which holds the time of its creation; `None` for a new one.
    pub id: Option<RunId>,
}

impl RunSpec {
    /// A run of this workflow in `dir`, with default settings.
    pub fn new(workflow: LoadedWorkflow, dir: impl Into<PathBuf>) -> Self {
        let dir = dir.into();
        Self {
            workflow,
            settings: RunSettings::default(),
            goal: None,
            inputs: Map::new(),
            warnings: Vec::new(),
            seed: None,
            work_dir: dir.clone(),
            workflow_dir: dir,
            max_cost: None,
            dry_run: false,
            id: None,
        }
    }

    /// A run of a workflow file or a run.toml in `cwd`. `settings` are those of project and user,
    /// `home` replaces `~` in paths.
    ///
    /// # Errors
    /// The workflow is not valid, a file that the settings name cannot be read, or the goal cannot be
    /// rendered.
    pub fn from_target(
        target: &Target,
        settings: Settings,
        overrides: Overrides,
        cwd: &Path,
        home: Option<&Path>,
    ) -> Result<Self, RunError> {
        let config = target.run_file.as_ref().map(|file| &file.config);
        let mut inputs = settings.defaults.inputs.clone();
        inputs.extend(config.map(|config| config.inputs.clone()).unwrap_or_default());
        inputs.extend(overrides.inputs.clone());
        let execution = config.map(|config| config.execution).unwrap_or_default();
        let execution = execution.or(settings.defaults.execution);
        let file = &target.workflow_file;
        let mut workflow = LoadedWorkflow::read(file, cwd, home.map(Path::to_owned), &inputs)?;
        if config.and_then(|config| config.on_failure).or(settings.on_failure).is_some() {
            // The settings set the failure policy.
            workflow.warnings.retain(|finding| finding.rule != "unhandled-failure");
        }
        let goal = match (&overrides.goal, &target.run_file) {
            (Some(goal), _) => Some(render_goal(goal, &inputs)?),
            (None, Some(file)) => goal_of(file, &inputs, home).map_err(|it| invalid(file, it))?,
            (None, None) => None,
        };
        let of_project = settings.defaults.goal.as_deref();
        let goal = match (goal, of_project) {
            (None, Some(text)) => Some(render_goal(text, &inputs)?),
            (goal, _) => goal,
        };
        let written = target.run_file.as_ref().and_then(|file| file.goal(home).ok().flatten());
        let goal_text = overrides.goal.as_deref().or(written.as_deref()).or(of_project);
        let goal_text = goal_text.unwrap_or_default();
        let files = workflow.bundle.files.values().map(String::as_str);
        let texts = files.chain([workflow.bundle.source.as_str(), goal_text]);
        let unread = unread_inputs(&inputs, texts).into_iter();
        let warnings = unread.map(|it| format!("{}: {}", it.message(), it.fix)).collect();
        Ok(Self {
            goal,
            inputs,
            warnings,
            seed: overrides.seed,
            workflow_dir: workflow_dir(file, cwd),
            max_cost: overrides.max_cost,
            dry_run: overrides.dry_run || execution.dry_run == Some(true),
            settings: merged_settings(target, settings, overrides, home)?,
            ..Self::new(workflow, cwd)
        })
    }
}

fn workflow_dir(file: &Path, cwd: &Path) -> PathBuf {
    file.parent().unwrap_or(cwd).to_owned()
}

fn merged_settings(
    target: &Target,
    settings: Settings,
    overrides: Overrides,
    home: Option<&Path>,
) -> Result<RunSettings, RunError> {
    let file = target.run_file.as_ref();
    let configured = match file {
        Some(file) => file.settings(settings, home)?,
        None => settings,
    };
    let config = file.map(|file| file.config.clone()).unwrap_or_default();
    let script = configured.model.script.clone();
    let own_script = config.model.script.clone();
    let script_when = match own_script {
        Some(_) => config.model.script_when,
        None => config.model.script_when.or(configured.model.script_when),
    };
    let providers = providers(&configured);
    let execution = config.execution.or(configured.defaults.execution);
    let mut env = configured.defaults.env;
    env.extend(config.env);
    let prepare =
        if config.prepare.is_empty() { configured.defaults.prepare } else { config.prepare };
    let mut git = config.git.or(configured.defaults.git);
    if overrides.worktree {
        git.worktree = Some(true);
    }
    let own_fallbacks = !config.model.fallbacks.is_empty();
    let named = [&config.model.name, &configured.model.name].into_iter().flatten();
    let mut settings = RunSettings {
        env,
        prepare: prepare.into_iter().map(|step| step.script).collect(),
        sandbox: sandbox_settings(configured.sandbox, &overrides)?,
        model_script: overrides.model_script,
        model_script_file: overrides.model_script_file,
        named_models: named.cloned().collect(),
        model: overrides.model.clone().or(config.model.name),
        provider: config.model.provider,
        configured_provider: configured.model.provider,
        answers: overrides.answers,
        auto_approve: overrides.auto_approve || execution.auto_approve == Some(true),
        providers,
        configured_model: configured.model.name,
        agent: configured.agent,
        on_failure: configured.on_failure,
        max_cost: configured.max_cost,
        command_timeout: configured.command_timeout,
        on_unavailable: configured.on_unavailable,
        retry_unavailable: configured.retry_unavailable,
        resume_threads: configured.resume_threads,
        max_time: configured.max_time,
        concurrency: configured.concurrency,
        git,
        hooks: configured.hooks,
        secret_variables: configured.webhooks.into_iter().map(|hook| hook.secret_env).collect(),
        secret_headers: configured.telemetry.headers.clone(),
        telemetry: configured.telemetry.otlp.is_some().then_some(configured.telemetry),
        artifacts: config.artifacts.or(configured.defaults.artifacts),
        models: configured.models,
        fallbacks: if own_fallbacks { config.model.fallbacks } else { configured.model.fallbacks },
    };
    // A script of the settings replaces missing providers, or those that are there where it is to answer always;
    // one of the overrides always counts.
    let is_wanted = match script_when.unwrap_or_default() {
        ScriptUse::Always => overrides.model.is_none() || settings.providers.is_empty(),
        ScriptUse::NoProvider => settings.providers.is_empty(),
    };
    if settings.model_script.is_none() && is_wanted && !overrides.live {
        let own = file.map(|file| model_script_of(file, home).map_err(|it| invalid(file, it)));
        let script = own_script.or(script);
        settings.model_script = match own.transpose()?.flatten() {
            Some(text) => Some(text),
            None => script.as_deref().map(read_model_script).transpose()?,
        };
        let name = script.as_deref().and_then(Path::file_name);
        settings.model_script_file = name.map(|name| name.to_string_lossy().into_owned());
    }
    Ok(settings)
}

/// The settings with what is set over them. The user may choose to run on this machine, with any settings of
/// a sandbox are.
pub(crate) fn sandbox_settings(
    settings: SandboxSettings,
    overrides: &Overrides,
) -> Result<SandboxSettings, SetupError> {
    if overrides.sandbox == Some(SandboxProvider::Local) {
        let provider = overrides.sandbox;
        return Ok(SandboxSettings { provider, ..SandboxSettings::default() });
    }
    let mut settings = settings;
    settings.provider = overrides.sandbox.or(settings.provider);
    settings.preserve = overrides.preserve_sandbox.then_some(true).or(settings.preserve);
    match settings.lost_restriction() {
        None => Ok(settings),
        Some(name) if settings.is_confined() => {
            let provider = settings.provider.map_or("local", SandboxProvider::name);
            Err(SetupError::new(
                format!(
                    "`run.sandbox.{name}` restricts a sandbox, and `{provider}` cannot do that"
                ),
                "use another provider, or remove the setting",
            ))
        }
        Some(name) => Err(SetupError::new(
            format!("`run.sandbox.{name}` restricts a sandbox, and the run has none"),
            "set `run.sandbox.provider`, or remove the setting",
        )),
    }
}

/// The text of a model script, from a file or a pipe.
///
/// # Errors
///
/// It cannot be read, or is not a model script.
pub fn read_model_script(path: &Path) -> Result<String, SetupError> {
    let text = read_text_or_pipe(path).map_err(|error| {
        let message = format!("the model script {} cannot be read: {error}", path.display());
        SetupError::new(message, "check the path")
    })?;
    Script::from_json(&text).map_err(|error| {
        let message = format!("the model script {} is not valid: {error}", path.display());
        SetupError::new(message, "fix the file")
    })?;
    Ok(text)
}

fn invalid(file: &fabro_config::RunFile, finding: fabro_types::Diagnostic) -> RunError {
    let text = file.warnings.text.clone();
    RunError::Invalid { path: file.path.clone(), text, findings: vec![finding] }
}
