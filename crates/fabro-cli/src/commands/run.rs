//! `fabro run`.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::builder::PossibleValuesParser;
use clap_complete::{ArgValueCandidates, ArgValueCompleter};
use fabro_config::{SandboxProvider, Target, Unsupported, locate_as};
use fabro_run::{Bundle, LoadedWorkflow, Overrides, Run, RunError, RunSpec};
use fabro_store::SqliteStore;
use fabro_terminal::{Paint, clean, diagnostics};
use fabro_types::Diagnostic;

use crate::complete;
use crate::drive::{ShownArgs, drive};
use crate::error;
use crate::exit::Exit;
use crate::global::{Global, cwd, home, quoted, settings_to_run};
use crate::output;
use crate::values::{KeyValue, amount, key_value};

/// Run a workflow
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro run hello\n  fabro run deploy.fabro -I target=staging --goal 'Ship it'\n  fabro run run.toml --json | jq .event\n  fabro run review.fabro --dry-run\n\nOnly --json writes to stdout. Ctrl-C shuts down cleanly; `fabro resume` continues."
)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct RunArgs {
    /// A workflow file, a run.toml, or the NAME of a workflow in .fabro/workflows
    #[arg(add = ArgValueCompleter::new(complete::workflows))]
    pub workflow: String,

    /// The goal; overrides the one in the workflow
    #[arg(long, value_name = "TEXT", conflicts_with = "goal_file")]
    pub goal: Option<String>,

    /// The file that holds the goal
    #[arg(long, value_name = "FILE")]
    pub goal_file: Option<PathBuf>,

    /// An input; JSON if the value is valid JSON, else text. Repeatable
    #[arg(short = 'I', long = "input", value_name = "KEY=VALUE", value_parser = key_value)]
    pub inputs: Vec<KeyValue>,

    /// Execute nothing: models are simulated and scripts are skipped
    #[arg(long)]
    pub dry_run: bool,

    /// Answer every gate with its default, else with its first option
    #[arg(long)]
    pub auto_approve: bool,

    /// Answers to gates, as JSON: for each node a list
    #[arg(long, value_name = "FILE")]
    pub answers: Option<PathBuf>,

    /// The model of stages that name none
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(complete::models))]
    pub model: Option<String>,

    /// Canned responses instead of a model, as JSON: for each node a list of turns
    #[arg(long, value_name = "FILE")]
    pub model_script: Option<PathBuf>,

    /// Use real providers even if settings force a model script
    #[arg(long, conflicts_with_all = ["model_script", "dry_run"])]
    pub live: bool,

    /// Seed of all random choices [default: a hash of workflow and inputs]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// Work in a git worktree of the run's own, with a commit for each stage that changes files
    #[arg(long, conflicts_with = "dry_run")]
    pub worktree: bool,

    /// Sandbox for scripts and agents; overrides `run.sandbox.provider`
    #[arg(long, value_name = "PROVIDER", value_parser = PossibleValuesParser::new(SandboxProvider::NAMES))]
    pub sandbox: Option<String>,

    /// Keep what is left in the sandbox when the run has ended, for `fabro sandbox`
    #[arg(long)]
    pub preserve_sandbox: bool,

    /// Print the run's id and continue in the background
    #[arg(long)]
    pub detach: bool,

    /// What is printed while the run is driven.
    #[command(flatten)]
    pub shown: ShownArgs,

    /// Pause when the run has cost this much
    #[arg(long, value_name = "USD", value_parser = amount, allow_negative_numbers = true)]
    pub max_cost: Option<f64>,
}

/// Creates a run and drives it.
pub async fn run(args: RunArgs, global: &Global) -> anyhow::Result<Exit> {
    if global.is_live() {
        fabro_terminal::clear_leftovers();
    }
    let home = home();
    let cwd = cwd()?;
    let unsupported = match (args.dry_run, args.sandbox.is_some()) {
        // Nothing runs.
        (true, _) => Unsupported::Reported,
        (_, true) => Unsupported::SandboxChosen,
        _ => Unsupported::Refused,
    };
    let target = locate_as(&args.workflow, &cwd, home.as_deref(), unsupported)?;
    print_warnings(&target);
    let shown = args.shown;
    let named = args.workflow.clone();
    let detached = args.detach;
    let overrides = overrides(args)?;
    let settings = settings_to_run(unsupported)?;
    let spec = RunSpec::from_target(&target, settings, overrides, &cwd, home.as_deref())?;
    let is_talkative = !shown.json && !shown.quiet;
    let findings = is_talkative.then(|| findings_text(&spec, &named, global.paint_stderr()));
    let store = Arc::new(global.store()?);
    let run = match Run::create(store.clone(), &store.runs_dir(), spec).await {
        // With `on_busy = "skip"` this is not an error.
        Err(error @ RunError::Busy { .. }) => {
            output::stderr(&format!("{}\n", clean(&error.to_string())));
            return Ok(Exit::SUCCEEDED);
        }
        // A misspelled attribute or shape is why a stage needs a model.
        Err(error @ RunError::NoModel { .. }) => {
            output::stderr(&findings.unwrap_or_default());
            return Err(error.into());
        }
        run => run?,
    };
    // Not before: what refuses the run is to stand alone.
    output::stderr(&findings.unwrap_or_default());
    global.warn(run.warnings());
    if detached {
        return detach(run, &store, &[]).await;
    }
    drive(run, shown, global).await
}

/// Drives a run in the background, with these options of `resume`.
pub async fn detach(run: Run, store: &SqliteStore, options: &[OsString]) -> anyhow::Result<Exit> {
    let mut driver = fabro_run::driver_command(&std::env::current_exe()?, store, run.id());
    driver.args(options);
    match run.detach(driver).await {
        Ok(id) => {
            output::stdout(&format!("{id}\n"))?;
            Ok(Exit::SUCCEEDED)
        }
        Err(RunError::DriverEnded { status, log }) => {
            output::stderr(&log);
            Ok(status.code().and_then(Exit::of).unwrap_or(Exit::FAILED))
        }
        Err(error) => Err(error.into()),
    }
}

/// How many warnings of a workflow are printed before its run.
const WARNINGS: usize = 10;

/// What validation warns of, and unread inputs, a line each. `named` is how the workflow was named.
fn findings_text(spec: &RunSpec, named: &str, paint: Paint) -> String {
    let LoadedWorkflow { bundle, warnings, .. } = &spec.workflow;
    let more = format!(": fabro validate {}", quoted(Path::new(named)));
    let mut text = warnings_text(bundle, warnings, &more, paint);
    for warning in &spec.warnings {
        let _ = writeln!(text, "{} {}", paint.warning("warning:"), clean(warning));
    }
    text
}

/// What validation warns of, a line each. `more` follows the number of those that are left out.
pub fn warnings_text(bundle: &Bundle, warnings: &[Diagnostic], more: &str, paint: Paint) -> String {
    let (mut text, left) =
        diagnostics::short(&bundle.file, &bundle.source, warnings, WARNINGS, paint);
    if left > 0 {
        let _ = writeln!(text, "… and {left} more{more}");
    }
    text
}

/// Prints the findings of a run.toml.
fn print_warnings(target: &Target) {
    let Some(file) = &target.run_file else { return };
    if !file.warnings.list.is_empty() {
        output::stderr(&format!("{}\n", clean(&file.warnings.to_string())));
    }
}

fn overrides(args: RunArgs) -> anyhow::Result<Overrides> {
    let goal = match args.goal_file {
        Some(file) => Some(read_option(&file, "the goal")?.trim_end().to_owned()),
        None => args.goal,
    };
    let script = args.model_script.as_deref().map(read_script);
    let answers = args.answers.as_deref().map(|path| read_option(path, "the answers"));
    Ok(Overrides {
        goal,
        inputs: args.inputs.into_iter().collect(),
        model: args.model,
        model_script_file: args.model_script.as_deref().map(file_name),
        live: args.live,
        model_script: script.transpose()?,
        answers: answers.transpose()?,
        auto_approve: args.auto_approve,
        dry_run: args.dry_run,
        seed: args.seed,
        max_cost: args.max_cost,
        worktree: args.worktree,
        sandbox: args.sandbox.as_deref().and_then(SandboxProvider::parse),
        preserve_sandbox: args.preserve_sandbox,
    })
}

/// Reads the model script that an option names.
pub fn read_script(path: &Path) -> anyhow::Result<String> {
    fabro_run::read_model_script(path).map_err(|error| error::usage(error.message, error.fix))
}

/// The name of a file for messages.
pub fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Reads a text file that an option names, or a pipe.
pub fn read_option(path: &Path, what: &str) -> anyhow::Result<String> {
    fabro_run::read_text_or_pipe(path).map_err(|reason| {
        error::usage(
            format!("{what} {} cannot be read: {reason}", path.display()),
            "check the path",
        )
    })
}
