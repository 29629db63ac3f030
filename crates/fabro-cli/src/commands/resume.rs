//! `fabro resume`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use clap_complete::ArgValueCandidates;
use fabro_run::{RefreshedModels, ResumeOptions, Run, RunError, is_driven};
use fabro_store::Runs as _;
use fabro_terminal::diagnostics;
use fabro_types::RunId;

use super::follow::follow_driven;
use super::run::{detach, file_name, read_option, read_script, warnings_text};
use crate::complete;
use crate::drive::{ShownArgs, drive};
use crate::error::usage;
use crate::exit::Exit;
use crate::global::{Global, settings, wrapped_lines};
use crate::output;
use crate::values::amount;

/// Resume a paused, interrupted or killed run
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro resume latest\n  fabro resume 01K3 --max-cost 20\n\nCommitted stages never run again; interrupted stages start over, and an agent continues its conversation. A run that another process is driving is followed until it ends; the exit code is that of the run."
)]
pub struct ResumeArgs {
    /// The run: its id, the beginning of it, or `latest`
    #[arg(add = ArgValueCandidates::new(complete::runs))]
    pub run: String,

    /// A new spending limit in US dollars; a limit of tokens no longer applies
    #[arg(long, value_name = "USD", value_parser = amount, allow_negative_numbers = true)]
    pub max_cost: Option<f64>,

    /// Answers to gates, as JSON: for each node a list
    #[arg(long, value_name = "FILE")]
    pub answers: Option<PathBuf>,

    /// The model of stages that name none, from now on in this resume
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(complete::models))]
    pub model: Option<String>,

    /// Canned responses instead of a model, as JSON: for each node a list of turns
    #[arg(long, value_name = "FILE")]
    pub model_script: Option<PathBuf>,

    /// Answer every gate with its default, else with its first option
    #[arg(long)]
    pub auto_approve: bool,

    /// Take providers, models and run.model of the settings as they are now, in place of those that the run began
    /// with
    #[arg(long)]
    pub refresh_providers: bool,

    /// Only if the last event of the run has this number: how a server passes on what its client has seen.
    #[arg(long, value_name = "SEQ", hide = true)]
    pub at_seq: Option<u64>,

    /// What is printed while the run is driven.
    #[command(flatten)]
    pub shown: ShownArgs,

    /// Print the run's id and continue in the background
    #[arg(long)]
    pub detach: bool,
}

/// Resumes a run.
pub async fn resume(args: ResumeArgs, global: &Global) -> anyhow::Result<Exit> {
    if args.detach {
        check_files(&args)?;
    }
    let (store, id) = global.find_run(&args.run).await?;
    let store = Arc::new(store);
    let root = store.root(id).await?;
    if args.at_seq.is_none() && options(&args).is_empty() && is_driven(&*store, root).await? {
        return if args.detach {
            output::stdout(&format!("{root}\n"))?;
            Ok(Exit::SUCCEEDED)
        } else {
            follow_driven(&store, root, args.shown, global).await
        };
    }
    let run = Run::open(store.clone(), &store.runs_dir(), id).await?;
    if let Some(seq) = args.at_seq {
        run.check_at(seq)?;
    }
    let answers = args.answers.as_deref().map(|path| read_option(path, "the answers"));
    let script = args.model_script.as_deref().map(read_script);
    let present = if args.refresh_providers { Some(settings()?) } else { None };
    let refreshed = present.as_ref().map(RefreshedModels::of);
    let changes = ResumeOptions {
        max_cost: args.max_cost,
        answers: answers.transpose()?,
        model_script: script.transpose()?,
        model_script_file: args.model_script.as_deref().map(file_name),
        model: args.model.clone(),
        auto_approve: args.auto_approve,
        models: refreshed,
    };
    let mut run = run.with_resume_options(changes)?;
    run.check_resumed().await.map_err(|error| not_resumed(error, id, global))?;
    if global.is_live() {
        fabro_terminal::clear_leftovers();
    }
    if !args.shown.json
        && !args.shown.quiet
        && let Some((bundle, warnings)) = run.recorded_warnings()?
    {
        output::stderr(&warnings_text(&bundle, &warnings, "", global.paint_stderr()));
    }
    global.warn(run.warnings());
    if args.detach {
        return detach(run, &store, &options(&args)).await;
    }
    drive(run, args.shown, global).await
}

/// Retries a run.
pub async fn retry(args: ResumeArgs, global: &Global) -> anyhow::Result<Exit> {
    if args.detach {
        check_files(&args)?;
    }
    let (store, id) = global.run_to_change(&args.run).await?;
    let stages = fabro_run::retry(&store, id, args.at_seq).await?;
    if !args.shown.json && !args.shown.quiet {
        output::stderr(&match stages.as_slice() {
            [] => wrapped_lines(&format!(
                "run {id} has not ended, so it continues where it was and repeats no failure. \
                 Once it has ended: {}\n",
                global.command(&format!("retry {id}"))
            )),
            stages => format!(
                "retrying, with the workflow and the settings of this run: {}\n",
                stages.join(", ")
            ),
        });
    }
    // The log has grown since the caller saw it.
    Box::pin(resume(ResumeArgs { run: id.to_string(), at_seq: None, ..args }, global)).await
}

/// The background driver reads the files again, and a pipe has gone by then.
fn check_files(args: &ResumeArgs) -> anyhow::Result<()> {
    let named = [("--answers", &args.answers), ("--model-script", &args.model_script)];
    for (option, file) in named {
        let is_pipe = |file: &PathBuf| file.exists() && !file.is_file();
        if file.as_ref().is_some_and(is_pipe) {
            return Err(usage(
                format!("{option} names a pipe, which a driver in the background cannot read"),
                "write it into a file, or resume without --detach",
            ));
        }
    }
    Ok(())
}

/// Something is missing for the stages that are left: nothing was started.
fn not_resumed(error: RunError, run: RunId, global: &Global) -> anyhow::Error {
    let RunError::Invalid { path, text, findings } = error else { return error.into() };
    let shown = path.to_string_lossy();
    output::stderr(&diagnostics::render(&shown, &text, &findings, global.paint_stderr()));
    let resume = global.command(&format!("resume {run}"));
    let message = format!("run {run} is not resumed: its stages need what is missing");
    usage(message, format!("fix the errors shown above, then run `{resume}`; nothing is lost"))
}

/// The options for a background driver.
fn options(args: &ResumeArgs) -> Vec<OsString> {
    let mut options = Vec::new();
    if let Some(max_cost) = args.max_cost {
        options.extend(["--max-cost".into(), max_cost.to_string().into()]);
    }
    for (name, file) in [("--answers", &args.answers), ("--model-script", &args.model_script)] {
        if let Some(file) = file {
            options.extend([name.into(), file.clone().into()]);
        }
    }
    if let Some(model) = &args.model {
        options.extend(["--model".into(), model.into()]);
    }
    if args.auto_approve {
        options.push("--auto-approve".into());
    }
    if args.refresh_providers {
        options.push("--refresh-providers".into());
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_background_driver_gets_the_same_options() {
        let args = ResumeArgs {
            run: "latest".into(),
            max_cost: Some(2.5),
            answers: Some("a.json".into()),
            model_script: Some("m.json".into()),
            model: Some("local/tiny".into()),
            auto_approve: true,
            refresh_providers: true,
            at_seq: None,
            shown: ShownArgs::default(),
            detach: true,
        };
        let passed = options(&args).join(std::ffi::OsStr::new(" "));
        let expect = "--max-cost 2.5 --answers a.json --model-script m.json --model local/tiny \
                      --auto-approve --refresh-providers";
        assert_eq!(passed, expect);
        assert!(
            options(&ResumeArgs {
                max_cost: None,
                answers: None,
                model_script: None,
                model: None,
                auto_approve: false,
                refresh_providers: false,
                ..args
            })
            .is_empty()
        );
    }
}
