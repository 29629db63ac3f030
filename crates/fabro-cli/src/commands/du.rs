//! `fabro du`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bytesize::ByteSize;
use clap_complete::ArgValueCandidates;
use fabro_run::now_ms;
use fabro_store::{RunSummary, RunUsage, Runs as _, SqliteStore, StoreError, StoreUsage};
use fabro_terminal::{Align, Table, wrap};
use fabro_types::{RunId, RunStatus};
use serde::Serialize;

use super::ps::age_text;
use crate::complete;
use crate::exit::Exit;
use crate::global::{Global, find, stdout_width};
use crate::output;

/// Show the space that runs take, the largest first
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro du\n  fabro du latest\n  fabro du --json | jq '.runs[] | select(.total_bytes > 1e8) | .id'\n\nA run counts with its sub-workflows. Data that several runs share (a blob, an artifact, a file that a fork took over) is shown as shared, and is removed with the last of them. `fabro prune` removes runs."
)]
pub struct DuArgs {
    /// Only these runs
    #[arg(value_name = "RUN", add = ArgValueCandidates::new(complete::runs))]
    pub runs: Vec<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A run with the space it takes, in bytes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SizeRow {
    pub(super) id: RunId,
    pub(super) workflow: String,
    pub(super) status: RunStatus,
    pub(super) records_bytes: u64,
    pub(super) blobs_bytes: u64,
    pub(super) shared_blobs_bytes: u64,
    pub(super) artifacts_bytes: u64,
    pub(super) shared_artifacts_bytes: u64,
    pub(super) files_bytes: u64,
    pub(super) shared_files_bytes: u64,
    /// What removing it would free.
    pub(super) total_bytes: u64,
    #[serde(skip)]
    pub(super) last_ms: i64,
}

impl SizeRow {
    fn new(summary: &RunSummary, usage: &RunUsage) -> Self {
        Self {
            id: usage.run,
            workflow: summary.workflow.clone(),
            status: summary.status,
            records_bytes: usage.records,
            blobs_bytes: usage.blobs,
            shared_blobs_bytes: usage.shared_blobs,
            artifacts_bytes: usage.artifacts,
            shared_artifacts_bytes: usage.shared_artifacts,
            files_bytes: usage.files,
            shared_files_bytes: usage.shared_files,
            total_bytes: usage.own(),
            last_ms: summary.ended_at_ms.unwrap_or(summary.started_at_ms),
        }
    }
}

#[derive(Serialize)]
struct Report {
    runs: Vec<SizeRow>,
    database_bytes: u64,
    free_bytes: u64,
    blob_files_bytes: u64,
    unnamed_blobs_bytes: u64,
    artifact_files_bytes: u64,
    unnamed_artifacts_bytes: u64,
}

/// Shows the space that runs take.
pub async fn du(args: &DuArgs, global: &Global) -> anyhow::Result<Exit> {
    let store = match SqliteStore::open_read_only(&global.store_dir()?) {
        Err(StoreError::NoStore { .. }) if args.runs.is_empty() => {
            output::stderr("there are no runs yet; start one with `fabro run`\n");
            return Ok(Exit::SUCCEEDED);
        }
        opened => opened?,
    };
    let mut named = Vec::new();
    for text in &args.runs {
        let run = find(&store, text).await?;
        named.push(store.root(run).await?);
    }
    let (mut runs, usage) = sizes(&store).await?;
    runs.retain(|row| named.is_empty() || named.contains(&row.id));
    runs.sort_by_key(|row| (std::cmp::Reverse(row.total_bytes), row.id));
    let report = Report {
        runs,
        database_bytes: usage.database,
        free_bytes: usage.free,
        blob_files_bytes: usage.blob_files,
        unnamed_blobs_bytes: usage.unnamed_blobs,
        artifact_files_bytes: usage.artifacts,
        unnamed_artifacts_bytes: usage.unnamed_artifacts,
    };
    output::report(args.json, &report, || text(&report, global))?;
    Ok(Exit::SUCCEEDED)
}

/// The runs of a store with the space they take, the oldest first, and the space of the store.
pub(super) async fn sizes(store: &SqliteStore) -> anyhow::Result<(Vec<SizeRow>, StoreUsage)> {
    let usage = store.usage().await?;
    let list = store.list().await?;
    let summaries: BTreeMap<RunId, &RunSummary> = list.iter().map(|run| (run.id, run)).collect();
    let rows =
        usage.runs.iter().filter_map(|run| Some(SizeRow::new(summaries.get(&run.run)?, run)));
    Ok((rows.collect(), usage))
}

fn text(report: &Report, global: &Global) -> String {
    let mut text = table(&report.runs, global);
    let own: u64 = report.runs.iter().map(|row| row.total_bytes).sum();
    let runs = match report.runs.len() {
        1 => "1 run".to_owned(),
        count => format!("{count} runs"),
    };
    let sums = format!(
        "{} in {runs}; the database has {}, of which {} is free; blobs in files {}; artifacts {}",
        size(own),
        size(report.database_bytes),
        size(report.free_bytes),
        size(report.blob_files_bytes),
        size(report.artifact_files_bytes),
    );
    let _ = writeln!(text, "\n{}", wrap(&sums, stdout_width(), 2));
    text
}

/// The runs in a table.
pub(super) fn table(rows: &[SizeRow], global: &Global) -> String {
    let mut table = Table::new(&[
        ("run", Align::Left),
        ("status", Align::Left),
        ("age", Align::Right),
        ("total", Align::Right),
        ("records", Align::Right),
        ("blobs", Align::Right),
        ("artifacts", Align::Right),
        ("shared", Align::Right),
        ("files", Align::Right),
        ("workflow", Align::Left),
    ])
    .within(stdout_width());
    let now_ms = now_ms();
    for row in rows {
        table.row([
            row.id.to_string(),
            row.status.as_str().to_owned(),
            age_text(u64::try_from(now_ms - row.last_ms).unwrap_or_default()),
            size(row.total_bytes),
            size(row.records_bytes),
            size(row.blobs_bytes),
            size(row.artifacts_bytes),
            size(row.shared_blobs_bytes + row.shared_artifacts_bytes + row.shared_files_bytes),
            size(row.files_bytes),
            row.workflow.clone(),
        ]);
    }
    table.render(global.paint_stdout(), |_, text| text.to_owned())
}

/// A number of bytes for people: `1.5 MB`.
pub(super) fn size(bytes: u64) -> String {
    ByteSize::b(bytes).display().si().to_string()
}
