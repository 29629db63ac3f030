//! `fabro ps`.

use fabro_inspect::PsRow;
use fabro_store::{Runs, SqliteStore, StoreError};

use crate::exit::Exit;
use crate::global::Global;
use crate::output;
use fabro_run::now_ms;
use fabro_terminal::{Align, Paint, Table, one_line, paint_run, took};

/// List runs, newest first
#[derive(clap::Args, Clone, Debug)]
pub struct PsArgs {
    /// Show the runs of sub-workflows too
    #[arg(short, long)]
    pub all: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Lists runs.
pub async fn ps(args: &PsArgs, global: &Global) -> anyhow::Result<Exit> {
    let runs = match SqliteStore::open_read_only(&global.store_dir()?) {
        Ok(store) => store.list().await?,
        // There are no runs here: an empty list, not an error.
        Err(StoreError::NoStore { .. }) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let rows = fabro_inspect::ps(runs, args.all);
    if rows.is_empty() && !args.json {
        output::stderr("there are no runs yet; start one with `fabro run`\n");
    } else {
        output::report(args.json, &rows, || table(&rows, now_ms(), global.paint_stdout()))?;
    }
    Ok(Exit::SUCCEEDED)
}

fn table(rows: &[PsRow], now_ms: i64, paint: Paint) -> String {
    let mut table = Table::new(&[
        ("run", Align::Left),
        ("workflow", Align::Left),
        ("status", Align::Left),
        ("age", Align::Right),
        ("goal", Align::Left),
    ]);
    for row in rows {
        let age = u64::try_from(now_ms).unwrap_or_default().saturating_sub(row.id.unix_ms());
        table.row([
            row.id.to_string(),
            row.workflow.clone(),
            row.status.to_string(),
            age_text(age),
            one_line(&row.goal, 50),
        ]);
    }
    table.render(paint, |column, text| match column {
        2 => rows
            .iter()
            .find(|row| row.status.as_str() == text)
            .map_or_else(|| text.to_owned(), |row| paint_run(row.status, paint)),
        _ => text.to_owned(),
    })
}

fn age_text(ms: u64) -> String {
    const DAY: u64 = 86_400_000;
    if ms >= 2 * DAY { format!("{} days", ms / DAY) } else { took(ms / 1_000 * 1_000) }
}
