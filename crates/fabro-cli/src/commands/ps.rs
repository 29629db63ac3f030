//! `fabro ps`.

use std::fmt::Write as _;

use fabro_inspect::PsRow;
use fabro_run::now_ms;
use fabro_store::{SqliteStore, StoreError};
use fabro_terminal::{Align, Paint, Table, cut, one_line, paint_run, took};
use fabro_types::RunStatus;

use super::run_lines::fork_text;
use crate::exit::Exit;
use crate::global::{Global, stdout_width};
use crate::output;

/// List runs, newest first
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro ps\n  fabro ps --json | jq -r '.[] | select(.status == \"failed\") | .id'\n\nBelow a run that failed is the reason, below a paused one what it waits for. `took` is the time from the start to the last event, with the time in which the run waited; `inspect` counts only the time in which a process drove it."
)]
pub struct PsArgs {
    /// Show the runs of sub-workflows too
    #[arg(short, long)]
    pub all: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The most columns that the name of a workflow takes.
const WORKFLOW: usize = 24;

/// Lists runs.
pub async fn ps(args: &PsArgs, global: &Global) -> anyhow::Result<Exit> {
    let rows = match SqliteStore::open_read_only(&global.store_dir()?) {
        Ok(store) => {
            global.warn(store.check_last_commit().err());
            let lost = store.lost_runs().await?;
            global.warn(lost.iter().map(|run| {
                let verify = global.command(&format!("verify {run}"));
                format!("run {run} was recorded, and the database has nothing of it: `{verify}`")
            }));
            let (rows, failed) = fabro_inspect::list_runs(&store, args.all).await?;
            global.warn(failed);
            rows
        }
        // There are no runs here: an empty list, not an error.
        Err(StoreError::NoStore { .. }) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    if rows.is_empty() && !args.json {
        output::stderr("there are no runs yet; start one with `fabro run`\n");
    } else {
        let text = || table(&rows, now_ms(), global.paint_stdout(), stdout_width());
        output::report(args.json, &rows, text)?;
    }
    Ok(Exit::SUCCEEDED)
}

fn table(rows: &[PsRow], now_ms: i64, paint: Paint, width: usize) -> String {
    let mut table = Table::new(&[
        ("run", Align::Left),
        ("workflow", Align::Left),
        ("status", Align::Left),
        ("age", Align::Right),
        ("took", Align::Right),
        ("goal", Align::Left),
    ])
    .within(width);
    let longest = rows.iter().map(|row| status(row).len()).max().unwrap_or_default();
    let workflow_width = workflow_width(width, longest);
    for row in rows {
        let age = u64::try_from(now_ms).unwrap_or_default().saturating_sub(row.id.unix_ms());
        table.row([
            row.id.to_string(),
            cut(&one_line(&row.workflow, WORKFLOW), workflow_width),
            status(row),
            age_text(age),
            row.took_ms(now_ms).map(took).unwrap_or_default(),
            one_line(&row.goal, 50),
        ]);
    }
    let text = table.render(paint, |column, text| match column {
        2 => rows
            .iter()
            .find(|row| status(row) == text)
            .map_or_else(|| text.to_owned(), |row| paint_status(row, text, paint)),
        _ => text.to_owned(),
    });
    let mut lines = text.lines();
    let mut text = String::new();
    let _ = writeln!(text, "{}", lines.next().unwrap_or_default());
    for (line, row) in lines.zip(rows) {
        let _ = writeln!(text, "{line}");
        if let Some(note) = note(row) {
            let _ = writeln!(text, "{}", paint.dim(&cut(&format!("  {note}"), width)));
        }
    }
    text
}

/// The width of the column of workflows: what ids, statuses and ages leave of a narrow terminal.
fn workflow_width(width: usize, longest_status: usize) -> usize {
    const ID: usize = 26;
    const AGE: usize = 3;
    const GAPS: usize = 6;
    width.saturating_sub(ID + AGE + GAPS + longest_status).clamp(4, WORKFLOW)
}

/// The status; a dry run is marked, and a copy that was never interrupted is not called so.
fn status(row: &PsRow) -> String {
    let word = match &row.forked {
        Some(point) if row.status == RunStatus::Interrupted => super::inspect::verb(point),
        _ => row.status.as_str(),
    };
    if row.dry_run { format!("{word} (dry)") } else { word.to_owned() }
}

fn paint_status(row: &PsRow, text: &str, paint: Paint) -> String {
    let word = row.status.as_str();
    match text.strip_prefix(word) {
        Some("") => paint_run(row.status, paint),
        Some(rest) => format!("{}{}", paint_run(row.status, paint), paint.dim(rest)),
        None => paint.odd(text),
    }
}

/// Why it failed, or what it waits for.
fn note(row: &PsRow) -> Option<String> {
    match row.status {
        RunStatus::Failed => row.failure.as_ref().map(|failure| {
            let cause = row.cause.as_ref().filter(|cause| cause.adds_to(failure));
            let cause = cause.map(|cause| format!("; first cause: {cause}"));
            one_line(&format!("{failure}{}", cause.unwrap_or_default()), 300)
        }),
        RunStatus::PartiallySucceeded => {
            row.cause.as_ref().map(|cause| one_line(&format!("not handled: {cause}"), 300))
        }
        RunStatus::Paused if !row.answers.is_empty() => {
            let answers = row.answers.join(", ");
            Some(one_line(&format!("answered with {answers}, not resumed yet"), 300))
        }
        RunStatus::Paused => row.pause.as_ref().map(|pause| one_line(&pause.message, 300)),
        RunStatus::Interrupted => {
            row.forked.as_ref().map(|fork| format!("{}, not resumed yet", fork_text(fork)))
        }
        _ => None,
    }
}

/// Since when, in one unit: `45s`, `12m`, `3h`, `5d`.
pub(crate) fn age_text(ms: u64) -> String {
    let seconds = ms / 1_000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_terminal_shortens_workflows_before_it_loses_the_status() {
        let width = |terminal| workflow_width(terminal, "succeeded (dry)".len());
        assert_eq!([usize::MAX, 120, 80, 60, 40].map(width), [24, 24, 24, 10, 4]);
    }

    #[test]
    fn ages_have_one_unit() {
        let seconds = [0, 59, 60, 3_599, 3_600, 172_799, 172_800, 8_640_000];
        let ages = seconds.map(|seconds| age_text(seconds * 1_000));
        assert_eq!(ages, ["0s", "59s", "1m", "59m", "1h", "47h", "2d", "100d"]);
    }
}
