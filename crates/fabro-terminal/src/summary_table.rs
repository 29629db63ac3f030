//! The table at the end of a run.

use std::fmt::Write as _;

use fabro_types::{RunStatus, Status, clean, took};

use crate::paint::Paint;
use crate::summary::{Response, Summary, SummaryRow};
use crate::table::{Align, Table};
use crate::text::counted;

/// The most rows that are shown; of longer runs those that did not succeed, and the slowest.
const SHOWN: usize = 40;

/// The most lines of the last answer that are shown.
const RESPONSE_LINES: usize = 10;

/// The most characters of such a line.
const RESPONSE_WIDTH: usize = 400;

/// A row for each stage, the result of the run, and after a success the beginning of the last answer of a model.
/// `elapsed_ms` is the time of this driver.
pub fn summary_text(summary: &Summary, status: RunStatus, elapsed_ms: u64, paint: Paint) -> String {
    let mut text = String::new();
    if !summary.rows.is_empty() {
        let rows = chosen(&summary.rows);
        text.push('\n');
        text.push_str(&rendered(&rows, paint));
        let left = summary.rows.len() - rows.len();
        if left > 0 {
            text.push_str(&paint.dim(&format!("… and {left} more that succeeded\n")));
        }
    }
    let visits = summary.rows.iter().map(|row| row.visits).sum();
    let mut total = format!("in {}, {}", took(elapsed_ms), counted(visits, "stage"));
    let of_rows = || {
        let tokens = summary.rows.iter().map(|row| row.tokens).sum();
        (tokens, summary.rows.iter().map(|row| row.cost_usd).sum::<f64>())
    };
    let (tokens, cost) = summary.spent.unwrap_or_else(of_rows);
    if tokens > 0 {
        let _ = write!(total, ", {tokens} tokens");
    }
    if cost > 0.0 {
        let _ = write!(total, ", ${cost:.2}");
    }
    if let Ok(count @ 1..) = u32::try_from(summary.artifacts) {
        let _ = write!(total, ", {}", counted(count, "artifact"));
    }
    let _ = writeln!(text, "{} {total}", paint_run(status, paint));
    if let Some(response) = &summary.response
        && matches!(status, RunStatus::Succeeded | RunStatus::PartiallySucceeded)
    {
        text.push_str(&response_text(response, paint));
    }
    text
}

fn response_text(response: &Response, paint: Paint) -> String {
    let lines: Vec<_> = response.text.trim().lines().collect();
    if lines.is_empty() {
        return String::new();
    }
    let mut text = format!("\nresponse of {}:\n", paint.bold(&clean(&response.stage)));
    for line in lines.iter().take(RESPONSE_LINES) {
        // Indentation is a part of code and lists.
        let end = line.char_indices().nth(RESPONSE_WIDTH).map_or(line.len(), |(at, _)| at);
        let cut = if end < line.len() { "…" } else { "" };
        let _ = writeln!(text, "  {}{cut}", clean(&line[..end]));
    }
    if lines.len() > RESPONSE_LINES {
        let left = lines.len() - RESPONSE_LINES;
        let Response { run, stage, .. } = response;
        let more = format!("  … {left} more lines: `fabro inspect {run} {stage}`\n");
        text.push_str(&paint.dim(&clean(&more)));
    }
    text
}

/// A run's status in its color.
pub fn paint_run(status: RunStatus, paint: Paint) -> String {
    let word = status.as_str();
    match status {
        RunStatus::Succeeded => paint.good(word),
        RunStatus::Failed | RunStatus::Canceled => paint.bad(word),
        RunStatus::PartiallySucceeded | RunStatus::Paused | RunStatus::Interrupted => {
            paint.odd(word)
        }
        RunStatus::Running => paint.hint(word),
    }
}

/// A stage's status in its color.
pub fn paint_stage(word: &str, paint: Paint) -> String {
    match Status::parse(word) {
        Some(Status::Succeeded) => paint.good(word),
        Some(Status::Failed) => paint.bad(word),
        Some(Status::PartiallySucceeded) => paint.odd(word),
        _ => paint.dim(word),
    }
}

fn chosen(rows: &[SummaryRow]) -> Vec<&SummaryRow> {
    if rows.len() <= SHOWN {
        return rows.iter().collect();
    }
    let mut places: Vec<usize> = (0..rows.len()).collect();
    places.sort_by_key(|at| {
        let row = &rows[*at];
        (row.status == Status::Succeeded, std::cmp::Reverse(row.duration_ms))
    });
    places.truncate(SHOWN);
    places.sort_unstable();
    places.into_iter().map(|at| &rows[at]).collect()
}

/// The status, and in how many branches it failed, where there are several.
fn status_text(row: &SummaryRow) -> String {
    if row.lines > 1 && row.failed > 0 {
        return format!("{} in {} of {} branches", row.status, row.failed, row.lines);
    }
    row.status.to_string()
}

fn paint_result(text: &str, paint: Paint) -> String {
    match text.split_once(" in ") {
        Some((word, rest)) => format!("{} in {rest}", paint_stage(word, paint)),
        None => paint_stage(text, paint),
    }
}

fn rendered(rows: &[&SummaryRow], paint: Paint) -> String {
    let mut table = Table::new(&[
        ("stage", Align::Left),
        ("visits", Align::Right),
        ("status", Align::Left),
        ("time", Align::Right),
        ("tokens", Align::Right),
    ]);
    for row in rows {
        let tokens = if row.tokens == 0 { String::new() } else { row.tokens.to_string() };
        table.row([
            row.node.to_string(),
            row.visits.to_string(),
            status_text(row),
            took(row.duration_ms),
            tokens,
        ]);
    }
    table.render(paint, |column, text| match column {
        2 => paint_result(text, paint),
        _ => text.to_owned(),
    })
}
