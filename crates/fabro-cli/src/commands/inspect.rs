//! `fabro inspect`: a run. Its stages are in `inspect_stage`.

use std::fmt::Write as _;

use clap_complete::ArgValueCandidates;
use fabro_events::{ForkPoint, PauseReason};
use fabro_inspect::{Cause, Inspect, ReportError, StageRow};
use fabro_run::find_stage_below;
use fabro_store::{Runs as _, SqliteStore};
use fabro_terminal::{
    Align, Paint, Table, clean, cut, one_line, paint_run, paint_stage, tokens, took,
};
use fabro_types::{RunStatus, Usage};

use super::inspect_stage::stage_text;
use super::run_lines::{
    cost_text, failure_line, fork_text, next_text, questions, readable, usage_text,
};
use crate::complete;
use crate::drive::answer_command;
use crate::exit::Exit;
use crate::global::{Global, stdout_width};
use crate::output;

/// Show a run or one of its stages
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro inspect latest\n  fabro inspect latest plan\n  fabro inspect 01K3 test@2 --json"
)]
pub struct InspectArgs {
    /// The run: its id, the beginning of it, or `latest`
    #[arg(default_value = "latest", add = ArgValueCandidates::new(complete::runs))]
    pub run: String,

    /// A stage, for its prompt, response, output and outcome
    #[arg(value_name = "[BRANCH/]NODE[@VISIT]", add = ArgValueCandidates::new(complete::stages))]
    pub stage: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The longest list of files in one line, in characters.
const FILES: usize = 200;

/// Shows a run, or one of its stages.
pub async fn inspect(args: &InspectArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, run) = global.run_to_read(&args.run).await?;
    if let Some(stage) = &args.stage {
        let (run, report) = match fabro_inspect::inspect_stage(&store, run, stage).await {
            Err(none @ ReportError::NoStage { .. }) => {
                let below = find_stage_below(&store, run, stage).await?;
                let (run, stage) = below.ok_or(none)?;
                (run, fabro_inspect::inspect_stage(&store, run, &stage).await?)
            }
            report => (run, report?),
        };
        output::report(args.json, &report, || stage_text(&report, &store, run, global))?;
        return Ok(Exit::SUCCEEDED);
    }
    let report = fabro_inspect::inspect_run(&store, run).await?;
    let next = next_steps(&report, &store, global).await?;
    output::report(args.json, &report, || {
        let paint = global.paint_stdout();
        let mut text = run_text(&report, paint, stdout_width());
        if !report.gates.is_empty() {
            text.push('\n');
            text.push_str(&questions(&report.gates, stdout_width(), paint));
        }
        text + &next
    })?;
    Ok(Exit::SUCCEEDED)
}

/// What a person can do about the state of the run; empty when it is running or has succeeded.
async fn next_steps(
    report: &Inspect,
    store: &SqliteStore,
    global: &Global,
) -> anyhow::Result<String> {
    let run = report.id;
    let resume = global.command(&format!("resume {}", store.root(run).await?));
    let answer = answer_command(run, &report.gates, global);
    let is_paused = report.status == RunStatus::Paused;
    let all_answered = report.gates.iter().all(|gate| gate.pending_answer.is_some());
    Ok(match report.status {
        RunStatus::Paused | RunStatus::Interrupted if all_answered && !report.gates.is_empty() => {
            format!("continue with: {resume}\n")
        }
        _ if !report.gates.is_empty() => format!("answer with: {answer}\n"),
        _ if is_paused
            && report.pause.as_ref().map(|it| it.reason) == Some(PauseReason::Budget) =>
        {
            format!("\ncontinue with: {resume} --max-cost USD\n")
        }
        RunStatus::Paused | RunStatus::Interrupted => format!("\ncontinue with: {resume}\n"),
        RunStatus::Failed | RunStatus::PartiallySucceeded => match failed_stage(report) {
            Some(stage) => {
                let stage = global.command(&format!("inspect {run} {stage}"));
                format!("\nsee the failed stage with: {stage}\n")
            }
            // No stage failed, so no edge could be taken after the last one.
            None => report.stages.last().map_or_else(String::new, |last| {
                let explain = global.command(&format!("explain {run} {}", last.name()));
                format!("\nsee why no edge was taken with: {explain}\n")
            }),
        },
        _ => String::new(),
    })
}

/// The stage whose failure is the first cause; without one the last that failed.
fn failed_stage(report: &Inspect) -> Option<String> {
    let of_cause = report.cause.as_ref().and_then(|cause| cause.stage.clone());
    let last_failed = || report.stages.iter().rev().find(|row| row.failure.is_some());
    of_cause.or_else(|| last_failed().map(StageRow::name))
}

fn run_text(report: &Inspect, paint: Paint, width: usize) -> String {
    let field = |name: &str, value: &str| format!("{} {value}\n", paint.dim(&format!("{name:9}")));
    let mut text = field("run", &report.id.to_string());
    text.push_str(&field("workflow", &clean(&report.workflow)));
    text.push_str(&field("status", &status(report, paint)));
    if let Some(fork) = &report.forked {
        let name = verb(fork);
        text.push_str(&field(name, &fork_text(fork)));
    }
    match (&report.failure, &report.cause) {
        (Some(failure), cause) if report.unhandled.is_empty() => {
            text.push_str(&field("failure", &paint.bad(&clean(&failure.to_string()))));
            if let Some(cause) = cause.as_ref().filter(|cause| cause.adds_to(failure)) {
                text.push_str(&field("cause", &paint.bad(&one_line(&cause.to_string(), 400))));
            }
        }
        _ => {
            for stage in &report.unhandled {
                let cause = Cause::of_stage(stage).to_string();
                text.push_str(&field("unhandled", &paint.bad(&one_line(&cause, 400))));
            }
        }
    }
    for check in &report.overridden {
        text.push_str(&field("overridden", &paint.odd(&one_line(&check.to_string(), 400))));
    }
    if let Some(pause) = &report.pause {
        text.push_str(&field("paused", &paint.odd(&one_line(&pause.message, 400))));
    }
    if !report.goal.is_empty() {
        text.push_str(&field("goal", &one_line(&report.goal, 200)));
    }
    if !report.inputs.is_empty() {
        let inputs = serde_json::Value::from(report.inputs.clone()).to_string();
        text.push_str(&field("inputs", &one_line(&inputs, 200)));
    }
    text.push_str(&field("started", &readable(&report.started_at)));
    let is_open_end = report.status == RunStatus::Interrupted && report.forked.is_none();
    let until = if is_open_end { " to its last record" } else { "" };
    text.push_str(&field("took", &format!("{}{until}", took(report.duration_ms))));
    if report.usage.turns > 0 {
        text.push_str(&field("spent", &usage_text(&report.usage)));
    }
    if let Some(inherited) = &report.inherited_usage {
        let of_it = format!("{} by the run it was forked from", usage_text(inherited));
        text.push_str(&field("of that", &of_it));
    }
    text.push_str(&field("seed", &report.seed.to_string()));
    text.push('\n');
    text.push_str(&stages(report, paint, width));
    text.push_str(&warnings(report, paint));
    text
}

/// How many warnings of stages are listed.
const WARNINGS: usize = 10;

/// The warnings of the stages; empty without any.
fn warnings(report: &Inspect, paint: Paint) -> String {
    let all = report.stages.iter();
    let all = all.flat_map(|row| row.warnings.iter().map(move |warning| (row, warning)));
    let mut text = String::new();
    for (row, warning) in all.clone().take(WARNINGS) {
        let name = clean(&row.name()).into_owned();
        let _ = writeln!(text, "{} {name}: {}", paint.odd("!"), one_line(warning, 400));
    }
    let left = all.count().saturating_sub(WARNINGS);
    if left > 0 {
        let _ = writeln!(text, "{} and {left} more warnings", paint.odd("!"));
    }
    if text.is_empty() { text } else { format!("\n{text}") }
}

/// The status, with what it does not say: a dry run, or a copy that was never interrupted.
fn status(report: &Inspect, paint: Paint) -> String {
    let word = match &report.forked {
        Some(fork) if report.status == RunStatus::Interrupted => {
            let verb = verb(fork);
            paint.odd(&format!("{verb}, not resumed yet"))
        }
        _ => paint_run(report.status, paint),
    };
    if report.dry_run { format!("{word} (dry run: nothing was executed)") } else { word }
}

/// How a run came to continue from an earlier point.
pub fn verb(point: &ForkPoint) -> &'static str {
    match (&point.retry, point.in_place) {
        (Some(_), _) => "retried",
        (None, true) => "rewound",
        (None, false) => "forked",
    }
}

/// A line for each stage, and below it what is to be known of it besides.
fn stages(report: &Inspect, paint: Paint, width: usize) -> String {
    let has_tokens = report.stages.iter().any(|row| row.usage.as_ref().is_some_and(has_tokens));
    let has_cost = report.stages.iter().any(|row| row.usage.as_ref().is_some_and(has_cost));
    let mut columns = vec![
        ("stage", Align::Left),
        ("status", Align::Left),
        ("time", Align::Right),
        ("tokens", Align::Right),
        ("cost", Align::Right),
        ("next", Align::Left),
    ];
    columns.retain(|(name, _)| match *name {
        "tokens" => has_tokens,
        "cost" => has_cost,
        _ => true,
    });
    let mut table = Table::new(&columns).within(width);
    for row in &report.stages {
        let mut cells = vec![row.name(), row.status.to_owned(), took(row.duration_ms)];
        let usage = row.usage.clone().unwrap_or_default();
        if has_tokens {
            let sum = usage.input_tokens.saturating_add(usage.output_tokens);
            cells.push(if sum == 0 { String::new() } else { tokens(sum) });
        }
        if has_cost {
            cells.push(cost_text(&usage));
        }
        cells.push(next_text(row));
        table.row(cells);
    }
    let text = table.render(paint, |column, text| match column {
        1 => paint_stage(text, paint),
        _ => text.to_owned(),
    });
    let mut lines = text.lines();
    let mut text = String::new();
    let _ = writeln!(text, "{}", lines.next().unwrap_or_default());
    for (line, row) in lines.zip(&report.stages) {
        let _ = writeln!(text, "{line}");
        for note in notes(row) {
            let _ = writeln!(text, "{}", paint.dim(&cut(&format!("    {note}"), width)));
        }
    }
    text
}

fn has_tokens(usage: &Usage) -> bool {
    usage.input_tokens > 0 || usage.output_tokens > 0
}

fn has_cost(usage: &Usage) -> bool {
    usage.cost_usd > 0.0
}

/// What is to be known of a stage besides: retries, its failure, its files.
fn notes(row: &StageRow) -> Vec<String> {
    let mut notes = Vec::new();
    let retried = match row.attempts {
        0 | 1 => String::new(),
        attempts => format!("attempt {attempts}: "),
    };
    match &row.failure {
        Some(failure) => notes.push(format!("{retried}{}", failure_line(failure))),
        None if row.attempts > 1 => notes.push(format!("{} attempts", row.attempts)),
        None => {}
    }
    if !row.files_touched.is_empty() {
        notes.push(format!("wrote {}", one_line(&row.files_touched.join(", "), FILES)));
    }
    notes
}
