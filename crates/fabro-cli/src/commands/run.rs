//! `fabro run`.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::Context as _;
use fabro_config::Target;
use fabro_run::{Overrides, Run, RunError, RunSpec};
use fabro_store::SqliteStore;

use crate::cli::RunArgs;
use crate::drive::drive;
use crate::error;
use crate::exit::{self, Exit};
use crate::global::Global;
use crate::output;

/// Creates a run and drives it.
pub async fn run(args: RunArgs, global: &Global) -> anyhow::Result<Exit> {
    let home = global.home();
    let cwd = global.cwd()?;
    let target = fabro_config::locate(&args.workflow, &cwd, home.as_deref())?;
    print_warnings(&target);
    let shown = args.shown;
    let detached = args.detach;
    let overrides = overrides(args)?;
    let settings = global.settings()?;
    let spec = RunSpec::from_target(&target, settings, overrides, &cwd, home.as_deref())
        .map_err(|error| error::run(error, global))?;
    let store = Arc::new(global.store()?);
    let run = Run::create(store.clone(), &store.runs_dir(), spec).await;
    let run = run.map_err(|error| error::run(error, global))?;
    if detached {
        return detach(run, &store, &[], global).await;
    }
    drive(run, shown, global).await
}

/// Drives a run in the background, with these options of `resume`.
pub async fn detach(
    run: Run,
    store: &SqliteStore,
    options: &[OsString],
    global: &Global,
) -> anyhow::Result<Exit> {
    let mut driver = Command::new(std::env::current_exe()?);
    driver.args(["resume", &run.id().to_string(), "--store"]).arg(store.dir()).args(options);
    match run.detach(driver).await {
        Ok(id) => {
            output::stdout(&format!("{id}\n"))?;
            Ok(exit::SUCCEEDED)
        }
        Err(RunError::DriverEnded { status, log }) => {
            output::stderr(&log);
            Ok(status.code().and_then(Exit::of).unwrap_or(exit::FAILED))
        }
        Err(error) => Err(error::run(error, global)),
    }
}

/// Prints the findings of a run.toml, and its settings that this version does not support.
fn print_warnings(target: &Target) {
    let Some(file) = &target.run_file else { return };
    if !file.warnings.list.is_empty() {
        output::stderr(&format!("{}\n", file.warnings));
    }
    if let Some(warning) = fabro_config::unsupported(&file.config) {
        output::stderr(&format!("{}: warning: {warning}\n", file.path.display()));
    }
}

fn overrides(args: RunArgs) -> anyhow::Result<Overrides> {
    let goal = match args.goal_file {
        Some(file) => Some(read_option(&file, "the goal")?.trim_end().to_owned()),
        None => args.goal,
    };
    let read = |path: Option<&Path>, what| path.map(|path| read_option(path, what)).transpose();
    Ok(Overrides {
        goal,
        inputs: args.inputs.into_iter().map(|input| (input.key, input.value)).collect(),
        model: args.model,
        model_script: read(args.model_script.as_deref(), "the model script")?,
        answers: read(args.answers.as_deref(), "the answers")?,
        auto_approve: args.auto_approve,
        dry_run: args.dry_run,
        seed: args.seed,
        max_cost: args.max_cost,
    })
}

/// Reads a text file that an option names.
pub fn read_option(path: &Path, what: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(path)
        .with_context(|| format!("{what} {} cannot be read", path.display()))
        .map_err(|error| error::usage(format!("{error:#}"), "check the path"))
}
