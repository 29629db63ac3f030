//! `fabro replay`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap_complete::{ArgValueCandidates, ArgValueCompleter};
use fabro_engine::RunState;
use fabro_inspect::replay::{Difference, Replay, Report};
use fabro_run::{Bundle, LoadedWorkflow, RunError, ServiceBuilder};
use fabro_store::RunLog;
use fabro_terminal::{Paint, clean, one_line};
use serde_json::{Map, Value};

use super::compare::diff_line;
use crate::complete;
use crate::exit::Exit;
use crate::global::{Global, cwd, home};
use crate::output;

/// Replay a run offline, and show the differences
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro replay latest\n  fabro replay latest --workflow review.fabro\n  fabro replay 01K3 --workflow review --json | jq '.differences[].stage'\n\nAnswers of models and people, results of tools and outcomes of scripts are the recorded ones. Exits with 1 if there is a difference."
)]
pub struct ReplayArgs {
    /// The run: its id, the beginning of it, or `latest`
    #[arg(add = ArgValueCandidates::new(complete::runs))]
    pub run: String,

    /// Another workflow, to see the effect of a change [default: the one stored with the run]
    #[arg(long, value_name = "FILE", add = ArgValueCompleter::new(complete::workflows))]
    pub workflow: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// How much of a text on one line is shown.
const SHOWN: usize = 300;

/// Replays a run and shows the differences.
pub async fn replay(args: ReplayArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, run) = global.run_to_read(&args.run).await?;
    let first = store.read(run, 0, 1).await?;
    let Some(created) = RunState::replay(run, &first).created else {
        return Err(RunError::NotCreated { run }.into());
    };
    let settings = Bundle::load(&store, &created)?.settings;
    let run_dir = store.runs_dir().join(run.to_string());
    let mut what = Replay::new(Arc::new(store), run);
    what.redactor = ServiceBuilder::new(&settings).dry_run(created.dry_run).recorded_redactor();
    what.run_dir = Some(run_dir);
    let workflow = args.workflow.as_deref().map(|file| workflow(file, &created.inputs));
    what.workflow = workflow.transpose()?;
    let report = fabro_inspect::replay::replay(what).await?;
    output::report(args.json, &report, || text(&report, global.paint_stdout()))?;
    Ok(if report.is_same() { Exit::SUCCEEDED } else { Exit::FAILED })
}

/// A workflow file with the files that it names.
fn workflow(file: &Path, inputs: &Map<String, Value>) -> anyhow::Result<Bundle> {
    let cwd = cwd()?;
    let home = home();
    let target = fabro_config::locate(&file.to_string_lossy(), &cwd, home.as_deref())?;
    Ok(LoadedWorkflow::read(&target.workflow_file, &cwd, home, inputs)?.bundle)
}

fn text(report: &Report, paint: Paint) -> String {
    let since = if report.since_fork { " since the run was forked or rewound" } else { "" };
    let end = if report.is_whole { "" } else { ", up to the end of the record" };
    let end = format!("{since}{end}");
    let mut text = String::new();
    let Some((first, more)) = report.differences.split_first() else {
        for unanswered in &report.unanswered {
            let _ = writeln!(text, "{} {}", paint.bad("✗"), clean(unanswered));
        }
        if report.is_same() {
            let mark = paint.good("✓");
            let _ = writeln!(text, "{mark} the same: {} events{end}", report.compared);
        }
        return text;
    };
    text.push_str(&difference(first, paint));
    for unanswered in &report.unanswered {
        let _ = writeln!(text, "{}", paint.dim(&clean(unanswered)));
    }
    if !more.is_empty() {
        let places: Vec<String> = more.iter().take(5).map(place).collect();
        let dots = if more.len() > places.len() { ", …" } else { "" };
        let places = format!("and then: {}{dots}; --json shows all", places.join(", "));
        let _ = writeln!(text, "{}", paint.dim(&clean(&places)));
    }
    if report.rules_changed {
        let changed = "the engine's rules have changed since this run was recorded, so a difference may come from them \
                       (see CHANGELOG.md)";
        let _ = writeln!(text, "{}", paint.dim(changed));
    }
    let _ = writeln!(text, "{} events compared{end}", report.compared);
    text
}

fn place(difference: &Difference) -> String {
    let stage = difference.stage.as_deref().unwrap_or("the run");
    let branch = difference.branch.iter().map(|branch| format!(" in {branch}"));
    format!("{} of {stage}{}", difference.aspect.as_str(), branch.collect::<String>())
}

fn difference(difference: &Difference, paint: Paint) -> String {
    let seq = difference.seq.map(|seq| format!("  event {seq}")).unwrap_or_default();
    let head = paint.bold(&clean(&place(difference)));
    let mut text = format!("{} {head}{}\n", paint.bad("✗"), paint.dim(&seq));
    if let Some(diff) = &difference.diff {
        for line in diff.lines() {
            let _ = writeln!(text, "{}", diff_line(line, paint));
        }
        return text;
    }
    let text_of = |result: &Option<String>| match result {
        Some(result) => one_line(result, SHOWN),
        None => "nothing".to_owned(),
    };
    let _ = writeln!(text, "  recorded  {}", paint.bad(&text_of(&difference.recorded)));
    let _ = writeln!(text, "  replayed  {}", paint.good(&text_of(&difference.replayed)));
    text
}
