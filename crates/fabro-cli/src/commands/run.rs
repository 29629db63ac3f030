//! `fabro run`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use fabro_config::Target;
use fabro_engine::{NewRun, Plan, RunState, begin};
use fabro_events::EventBody;
use fabro_graph::Workflow;
use fabro_handlers::{Bundle, GoalError, RunSettings, WORKFLOW_DIR, obstacle, render_goal};
use fabro_run::{Beside, goal_of, model_script_of};
use fabro_store::{Batch, DriverLock, RunLog, SqliteStore};
use fabro_types::{RunId, Severity};
use serde_json::{Map, Value};

use crate::cli::RunArgs;
use crate::drive::{Driven, drive};
use crate::error;
use crate::exit::{self, Exit};
use crate::global::Global;
use crate::wiring::{self, read_option};

/// Creates a run and drives it.
pub async fn run(args: RunArgs, global: &Global) -> anyhow::Result<Exit> {
    let prepared = prepare(&args, global)?;
    let store = global.store()?;
    let run_id: RunId = ulid::Ulid::generate().to_string().parse()?;
    let (plan, new) = (prepared.plan, prepared.new);
    let dry_run = new.dry_run;
    let mut commit = begin(run_id, wiring::now_ms(), &plan, new);
    if let Some(event) = commit.events.first_mut()
        && let EventBody::RunCreated(created) = &mut event.entry.body
    {
        let dir = Value::from(prepared.workflow_dir.to_string_lossy());
        let context = &mut std::sync::Arc::make_mut(created).context;
        context.insert(WORKFLOW_DIR.to_owned(), dir.into());
    }
    // Nobody else is to find the run before it is ours.
    let lock = store.lock(run_id)?;
    let batch = Batch { events: &commit.events, blobs: &commit.blobs, consumed: &[] };
    store.append(run_id, 0, &batch).await?;
    if args.detach {
        return detach(&store, lock, &[], &prepared.secrets).await;
    }
    let state = RunState::replay(run_id, &commit.events);
    let driven = Driven {
        store,
        lock,
        plan: std::sync::Arc::new(plan),
        settings: prepared.settings,
        dry_run,
        state,
        events: commit.events,
        max_cost: None,
        mode: wiring::mode(args.shown, global),
    };
    drive(driven, global).await
}

/// Drives a run in a process of its own, without a terminal, with these options of `resume` and
/// with these secrets that are not kept with the run.
pub async fn detach(
    store: &SqliteStore,
    lock: DriverLock,
    options: &[OsString],
    secrets: &BTreeMap<String, String>,
) -> anyhow::Result<Exit> {
    let run_id = lock.run();
    drop(lock);
    let mut driver = Command::new(std::env::current_exe()?);
    driver.args(["resume", &run_id.to_string(), "--store"]).arg(store.dir());
    driver.args(options).envs(secrets);
    let dir = store.run_dir(run_id);
    if let Some(ended) = fabro_run::start_driver(driver, store, run_id, &dir).await? {
        crate::output::stderr(&std::fs::read_to_string(dir.join("driver.log"))?);
        return Ok(ended.code().and_then(Exit::of).unwrap_or(exit::FAILED));
    }
    crate::output::stdout(&format!("{run_id}\n"))?;
    Ok(exit::SUCCEEDED)
}

/// A run that is ready to be created.
struct Prepared {
    plan: Plan,
    new: NewRun,
    settings: RunSettings,
    /// Variables of run.toml that are not kept with the run.
    secrets: BTreeMap<String, String>,
    workflow_dir: PathBuf,
}

fn prepare(args: &RunArgs, global: &Global) -> anyhow::Result<Prepared> {
    let (cwd, home) = (global.cwd()?, global.home());
    let target = fabro_config::locate(&args.workflow, &cwd, home.as_deref())?;
    warn_about(&target);
    let inputs = inputs(args, &target);
    let (bundle, workflow) = bundle(&target, &inputs, global)?;
    let dir = target.workflow_file.parent().map_or_else(|| cwd.clone(), Path::to_owned);
    let goal = goal(args, &target, &workflow, &inputs, global)?;
    let settings = run_settings(args, &target, global)?;
    fabro_run::check_kept(&settings, &inputs, &goal)?;
    let (env, secrets) = fabro_run::without_secrets(&settings.env)?;
    let bundle = Bundle { settings: RunSettings { env, ..settings.clone() }, ..bundle };
    if !args.dry_run {
        check_obstacles(&bundle, &workflow)?;
        fabro_run::check(&settings)?;
    }
    let seed = args.seed.unwrap_or_else(|| bundle.seed(&inputs));
    let new = NewRun {
        goal,
        inputs,
        seed,
        work_dir: cwd.to_string_lossy().into_owned(),
        bundle: bundle.to_bytes(),
        max_cost: args.max_cost,
        parent: None,
        dry_run: args.dry_run,
    };
    Ok(Prepared { plan: Plan::compile(workflow)?, new, settings, secrets, workflow_dir: dir })
}

/// A workflow that is valid, with the files that it names and no settings; what is wrong with it goes
/// to stderr.
pub fn bundle(
    target: &Target,
    inputs: &Map<String, Value>,
    global: &Global,
) -> anyhow::Result<(Bundle, Workflow)> {
    let (cwd, home) = (global.cwd()?, global.home());
    let file = &target.workflow_file;
    let source = crate::files::read_workflow(file)?;
    let dir = file.parent().map_or_else(|| cwd.clone(), Path::to_owned);
    let sources = Beside::new(dir, home);
    let name =
        file.file_stem().map_or("workflow".into(), |stem| stem.to_string_lossy().into_owned());
    let checked = fabro_validate::check(&name, &source, &sources, Some(inputs));
    let shown = file.strip_prefix(&cwd).unwrap_or(file).to_string_lossy().into_owned();
    if !checked.is_valid() {
        let errors: Vec<_> =
            checked.findings.iter().filter(|f| f.severity == Severity::Error).cloned().collect();
        return Err(error::not_valid(&shown, &source, &errors, global));
    }
    let bundle = Bundle {
        name,
        file: shown,
        base: String::new(),
        files: sources.into_texts(),
        settings: RunSettings::default(),
        source,
    };
    Ok((bundle, checked.workflow.context("a valid workflow")?))
}

/// Says what is odd about a run.toml, and what in it later versions act on.
fn warn_about(target: &Target) {
    let Some(file) = &target.run_file else { return };
    if !file.warnings.list.is_empty() {
        crate::output::stderr(&format!("{}\n", file.warnings));
    }
    for setting in fabro_config::unsupported(&file.config) {
        crate::output::stderr(&format!("{}: warning: {setting}\n", file.path.display()));
    }
}

/// Refuses what this version cannot run, before there is a run.
fn check_obstacles(bundle: &Bundle, workflow: &Workflow) -> anyhow::Result<()> {
    match obstacle(bundle, workflow)? {
        None => Ok(()),
        Some(_) => Err(error::usage(
            "no model is configured for the LLM stages of this workflow",
            "set ANTHROPIC_API_KEY, OPENAI_API_KEY or OPENAI_BASE_URL, or write a [providers.NAME] into .fabro/config.toml; or name ready answers with --model-script FILE, or try --dry-run",
        )),
    }
}

fn inputs(args: &RunArgs, target: &Target) -> Map<String, Value> {
    let mut inputs =
        target.run_file.as_ref().map(|file| file.config.inputs.clone()).unwrap_or_default();
    for input in &args.inputs {
        inputs.insert(input.key.clone(), input.value.clone());
    }
    inputs
}

/// The goal: of the command line, else of run.toml, else of the workflow.
fn goal(
    args: &RunArgs,
    target: &Target,
    workflow: &Workflow,
    inputs: &Map<String, Value>,
    global: &Global,
) -> anyhow::Result<String> {
    let goal = match (&args.goal, &args.goal_file, &target.run_file) {
        (Some(goal), ..) => Some(goal.clone()),
        (_, Some(file), _) => Some(read_option(file, "the goal")?.trim_end().to_owned()),
        (_, _, Some(file)) => match goal_of(file, inputs, global.home().as_deref()) {
            Ok(Some(goal)) => return Ok(goal),
            Ok(None) => None,
            Err(finding) => return Err(error::not_valid_in(file, finding, global)),
        },
        _ => None,
    };
    let goal = goal.or_else(|| workflow.attrs().text("goal").map(str::to_owned));
    render_goal(&goal.unwrap_or_default(), inputs).map_err(|GoalError { message, fix, .. }| {
        error::usage(format!("the goal cannot be rendered: {message}"), fix)
    })
}

fn run_settings(args: &RunArgs, target: &Target, global: &Global) -> anyhow::Result<RunSettings> {
    let (file, home) = (target.run_file.as_ref(), global.home());
    let configured = match file {
        Some(file) => file.settings(global.settings()?, home.as_deref())?,
        None => global.settings()?,
    };
    let config = file.map(|file| file.config.clone()).unwrap_or_default();
    let script = configured.model.script.clone();
    let settings = fabro_run::run_settings(config, configured);
    let read = |path: &PathBuf| read_option(path, "the model script");
    // The settings' script stands in for a provider; the one of the command line is meant as said.
    let model_script = match (&args.model_script, file) {
        (Some(path), _) => Some(read(path)?),
        _ if !settings.providers.is_empty() => None,
        (None, Some(file)) => match model_script_of(file, home.as_deref()) {
            Ok(Some(text)) => Some(text),
            Ok(None) => script.as_ref().map(read).transpose()?,
            Err(finding) => return Err(error::not_valid_in(file, finding, global)),
        },
        (None, None) => script.as_ref().map(read).transpose()?,
    };
    Ok(RunSettings {
        model_script,
        model: args.model.clone().or(settings.model),
        answers: args.answers.as_deref().map(|p| read_option(p, "the answers")).transpose()?,
        auto_approve: args.auto_approve,
        ..settings
    })
}
