//! `fabro explain`.

use std::fmt::Write as _;

use clap_complete::ArgValueCandidates;
use fabro_engine::read_all;
use fabro_inspect::{Considered, Explain, ReportError, TieBreak};
use fabro_run::find_stage_below;

use fabro_types::RunId;

use crate::complete;
use crate::error::usage;
use crate::exit::Exit;
use crate::global::Global;
use crate::output;
use fabro_terminal::{Paint, clean, one_line};

/// Show why a run took an edge after a stage
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Example:\n  fabro explain latest test@2\n\nShows every outgoing edge with its condition, and the values that the condition compared."
)]
pub struct ExplainArgs {
    /// The run: its id, the beginning of it, or `latest`
    #[arg(default_value = "latest", add = ArgValueCandidates::new(complete::runs))]
    pub run: String,

    /// The stage; without it the last one that the run has left
    #[arg(value_name = "[BRANCH/]NODE[@VISIT]", add = ArgValueCandidates::new(complete::stages))]
    pub stage: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Explains which edge was taken after a stage.
pub async fn explain(args: &ExplainArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, run) = global.run_to_read(&args.run).await?;
    let events = read_all(&store, run).await?;
    let last = match &args.stage {
        Some(_) => None,
        None => Some(fabro_inspect::last_explained(&events).ok_or_else(|| none_left(run, global))?),
    };
    let stage = args.stage.as_ref().or(last.as_ref()).map_or("", String::as_str);
    let (run, report) = match fabro_inspect::explain(&events, stage) {
        Err(none @ ReportError::NoStage { .. }) => {
            let (run, stage) = find_stage_below(&store, run, stage).await?.ok_or(none)?;
            (run, fabro_inspect::explain(&read_all(&store, run).await?, &stage)?)
        }
        report => (run, report?),
    };
    let paint = global.paint_stdout();
    output::report(args.json, &report, || {
        let mut text = text(stage, &report, paint);
        if let Some(note) = others_text(&report, run, global) {
            text.push_str(&paint.dim(&note));
        }
        if last.is_some() {
            let inspect = global.command(&format!("inspect {run}"));
            let explain = global.command(&format!("explain {run} STAGE"));
            let note = format!(
                "the last stage that the run has left; `{inspect}` lists all, `{explain}` explains one\n"
            );
            text.push_str(&paint.dim(&note));
        }
        text
    })?;
    Ok(Exit::SUCCEEDED)
}

fn none_left(run: RunId, global: &Global) -> anyhow::Error {
    let inspect = global.command(&format!("inspect {run}"));
    usage("the run has not left any stage", format!("see its state with `{inspect}`"))
}

/// Lists the other branches that the given name matches.
fn others_text(report: &Explain, run: RunId, global: &Global) -> Option<String> {
    const SHOWN: usize = 5;
    let first = report.others.first()?;
    let names = report.others.iter().take(SHOWN).map(|it| one_line(it, 200));
    let names = names.collect::<Vec<_>>().join(", ");
    let more = if report.others.len() > SHOWN { ", …" } else { "" };
    let explain = global.command(&format!("explain {run} {first}"));
    let last = clean(&report.stage);
    Some(format!(
        "the stage ran in {} branches, and {last} started last; the others: {names}{more}\nexplain another one with `{explain}`\n",
        report.others.len() + 1
    ))
}

fn text(named: &str, report: &Explain, paint: Paint) -> String {
    // In a fan-out the given name does not identify the branch.
    let stage = if report.stage.contains('/') { report.stage.as_str() } else { named };
    let rule = report.tier.map_or_else(String::new, |tier| format!("by rule {}", tier.as_str()));
    let drawn = report.seed.map(|seed| format!(", drawn by weight with seed {seed}"));
    let why = match &report.failure {
        Some(failure) => paint.bad(&one_line(&failure.to_string(), 200)),
        None => paint.dim(
            &(rule + &drawn.unwrap_or_default() + report.tie_break.map_or("", TieBreak::text)),
        ),
    };
    let to = report.chosen.as_deref().unwrap_or("no edge");
    let mut text = format!("{} → {}  {why}\n", paint.bold(&clean(stage)), paint.bold(&clean(to)));
    if let Some(answer) = &report.answer {
        let _ = writeln!(text, "  {answer}");
    }
    if let Some(gate) = &report.gate {
        let _ = writeln!(text, "goal gate {gate} is not met");
    }
    for candidate in &report.candidates {
        text.push_str(&edge(candidate, paint));
    }
    text
}

/// ✓ is the edge taken, ✗ one whose condition did not hold, · one that was not chosen.
fn edge(candidate: &Considered, paint: Paint) -> String {
    let mark = match (candidate.taken, candidate.holds) {
        (true, _) => paint.good("✓"),
        (false, true) => paint.dim("·"),
        (false, false) => paint.bad("✗"),
    };
    let mut text = format!("  {mark} {}", one_line(&candidate.to, 200));
    if let Some(label) = &candidate.label {
        let _ = write!(text, "  \"{}\"", one_line(label, 60));
    }
    if !candidate.weight.is_default() {
        let _ = write!(text, "  weight {}", candidate.weight);
    }
    let condition = match &candidate.condition {
        Some(condition) => format!("  if {}", one_line(condition, 200)),
        None => paint.dim("  unconditional"),
    };
    text.push_str(&condition);
    text.push('\n');
    for clause in &candidate.clauses {
        let mark = if clause.holds { paint.good("✓") } else { paint.bad("✗") };
        let saw = format!("saw \"{}\"", one_line(&clause.value, 120));
        let _ = writeln!(text, "      {mark} {}  {}", one_line(&clause.text, 200), paint.dim(&saw));
    }
    text
}
