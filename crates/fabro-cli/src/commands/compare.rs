//! `fabro compare`.

use std::fmt::Write as _;

use clap_complete::ArgValueCandidates;
use fabro_engine::read_all;
use fabro_inspect::replay::compare_runs;
use fabro_inspect::{ComparedRun, ComparedStage, RunComparison, RunDifference, comparison};
use fabro_terminal::{Align, Paint, Table, clean, one_line, paint_run, took};
use fabro_types::excerpt;

use super::run_lines::cost_text;
use crate::complete;
use crate::exit::Exit;
use crate::global::{Global, find, stdout_width};
use crate::output;

/// Compare two runs: stages, prompts, edges
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro compare 01K3 latest\n  fabro compare 01K3 01K4 --json | jq '.differences[].stage'\n\nThe old run is at the left and its lines begin with -, the new one is at the right and its lines begin with +. Where the runs diverge, the comparison continues at the next common stage."
)]
pub struct CompareArgs {
    /// The old run: its id, the beginning of it, or `latest`
    #[arg(add = ArgValueCandidates::new(complete::runs))]
    pub old: String,

    /// The new run
    #[arg(default_value = "latest", add = ArgValueCandidates::new(complete::runs))]
    pub new: String,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The maximum length of a value on one line, and of a line of a diff, in characters.
const MAX_VALUE: usize = 300;

/// Compares two runs.
pub async fn compare(args: &CompareArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, old) = global.run_to_read(&args.old).await?;
    let new = find(&store, &args.new).await?;
    let found = compare_runs(&read_all(&store, old).await?, &read_all(&store, new).await?, &store)?;
    let old = fabro_inspect::inspect_run(&store, old).await?;
    let new = fabro_inspect::inspect_run(&store, new).await?;
    let report = comparison(&old, &new, found);
    output::report(args.json, &report, || text(&report, stdout_width(), global.paint_stdout()))?;
    Ok(Exit::SUCCEEDED)
}

fn text(report: &RunComparison, width: usize, paint: Paint) -> String {
    let mut text = format!("{}\n{}", runs(report, paint), stages(report, width, paint));
    if report.differences.is_empty() {
        let mark = paint.good("✓");
        let _ = writeln!(text, "\n{mark} no other differences in {} events", report.compared);
    }
    for difference in &report.differences {
        let what = difference.stage.as_deref().unwrap_or("the run");
        let what = paint.bold(&clean(what));
        let _ = writeln!(text, "\n{what} {}", difference.aspect.as_str().replace('_', " "));
        text.push_str(&changed(difference, paint));
    }
    text
}

/// A summary of both runs, as a table.
fn runs(report: &RunComparison, paint: Paint) -> String {
    let mut table = Table::new(&[("", Align::Left), ("old", Align::Left), ("new", Align::Left)]);
    let facts = |run: &ComparedRun| {
        [
            run.id.to_string(),
            run.workflow.clone(),
            run.status.as_str().to_owned(),
            took(run.duration_ms),
            run.stages.to_string(),
            cost_text(&run.usage),
        ]
    };
    let names = ["run", "workflow", "status", "time", "stages", "cost"];
    for (name, (old, new)) in
        names.into_iter().zip(facts(&report.old).into_iter().zip(facts(&report.new)))
    {
        if !old.is_empty() || !new.is_empty() {
            table.row([name.to_owned(), old, new]);
        }
    }
    let statuses = [report.old.status, report.new.status];
    table.render(paint, |_, cell| {
        let status = statuses.iter().find(|status| status.as_str() == cell);
        status.map_or_else(|| cell.to_owned(), |status| paint_run(*status, paint))
    })
}

/// The stages side by side. `-`: only in the old run; `+`: only in the new run; `!`: different.
fn stages(report: &RunComparison, width: usize, paint: Paint) -> String {
    let columns =
        [("", Align::Left), ("stage", Align::Left), ("old", Align::Left), ("new", Align::Left)];
    let mut table = Table::new(&columns).within(width);
    for pair in &report.stages {
        let mark = match (&pair.old, &pair.new) {
            (Some(_), None) => "-",
            (None, Some(_)) => "+",
            _ if pair.differs() => "!",
            _ => "",
        };
        let cell = |it: &Option<ComparedStage>| it.as_ref().map(end).unwrap_or_default();
        table.row([mark.to_owned(), pair.stage.clone(), cell(&pair.old), cell(&pair.new)]);
    }
    table.render(paint, |column, cell| match (column, cell) {
        (0, "-") => paint.bad(cell),
        (0, "+") => paint.good(cell),
        (0, _) => paint.odd(cell),
        _ => cell.to_owned(),
    })
}

/// How a stage ended, in a cell.
fn end(stage: &ComparedStage) -> String {
    let to = stage.edge.as_ref().map(|to| format!(" → {to}")).unwrap_or_default();
    let tries =
        if stage.attempts > 1 { format!(" ({} attempts)", stage.attempts) } else { String::new() };
    format!("{} {}{tries}{to}", stage.status, took(stage.duration_ms))
}

fn changed(difference: &RunDifference, paint: Paint) -> String {
    let mut text = String::new();
    if let Some(diff) = &difference.diff {
        for line in diff.lines() {
            let _ = writeln!(text, "{}", diff_line(&excerpt(line, MAX_VALUE), paint));
        }
        return text;
    }
    if let Some(old) = &difference.old {
        let _ = writeln!(text, "{}", paint.bad(&format!("- {}", one_line(old, MAX_VALUE))));
    }
    if let Some(new) = &difference.new {
        let _ = writeln!(text, "{}", paint.good(&format!("+ {}", one_line(new, MAX_VALUE))));
    }
    text
}

/// A line of a unified diff in its color.
pub(super) fn diff_line(line: &str, paint: Paint) -> String {
    let shown = clean(line);
    match line.chars().next() {
        Some('-') => paint.bad(&shown),
        Some('+') => paint.good(&shown),
        Some('@') => paint.dim(&shown),
        _ => shown.into_owned(),
    }
}
