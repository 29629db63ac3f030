//! `fabro prune`.

use std::time::Duration;

use bytesize::ByteSize;
use fabro_engine::read_all;
use fabro_inspect::discarded_at;
use fabro_run::{RunError, now_ms, remove_branch};
use fabro_store::{SqliteStore, StoreError, StoreUsage};
use fabro_types::RunStatus;
use serde::Serialize;

use super::du::{SizeRow, size, sizes, table};
use crate::commands::rm::remove;
use crate::exit::Exit;
use crate::global::Global;
use crate::output;
use crate::values::duration;

/// Remove runs by age, number, status or size
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro prune --older-than 30d\n  fabro prune --older-than 7d --status failed,canceled --force\n  fabro prune --keep 20 --force\n  fabro prune --larger-than 500MB\n\nA run is removed when all of the conditions hold for it: with its sub-workflows, files and the blobs that no other run names. Runs that a process drives are never removed, and paused and interrupted ones only when --status names them. Without a condition no run is removed; --force then gives free space of the database back to the disk."
)]
pub struct PruneArgs {
    /// Runs that ended longer ago than this; for a run that has not ended, that began
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub older_than: Option<Duration>,

    /// All but this many of the newest runs
    #[arg(long, value_name = "COUNT")]
    pub keep: Option<usize>,

    /// Runs with one of these statuses [default: all that have ended]
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = status)]
    pub status: Vec<RunStatus>,

    /// Runs of this workflow
    #[arg(long, value_name = "NAME")]
    pub workflow: Option<String>,

    /// Runs that take at least this space, such as 500MB
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub larger_than: Option<ByteSize>,

    /// Remove them
    #[arg(short, long)]
    pub force: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The statuses of runs that have ended.
const ENDED: [RunStatus; 4] =
    [RunStatus::Succeeded, RunStatus::PartiallySucceeded, RunStatus::Failed, RunStatus::Canceled];

/// Free space of the database below this is not worth writing the database anew.
const LEAST_FREE: u64 = 1 << 20;

fn status(text: &str) -> Result<RunStatus, String> {
    let known = [&ENDED[..], &[RunStatus::Paused, RunStatus::Interrupted]].concat();
    known.iter().copied().find(|status| status.as_str() == text).ok_or_else(|| {
        let names: Vec<_> = known.iter().map(|status| status.as_str()).collect();
        format!("write one or several of {}", names.join(", "))
    })
}

fn bytes(text: &str) -> Result<ByteSize, String> {
    text.parse().map_err(|_| "write a size such as 500MB or 2GiB".to_owned())
}

#[derive(Serialize)]
struct Report {
    removed: bool,
    runs: Vec<SizeRow>,
    /// Git branches of ended runs whose changes are merged or discarded.
    branches: Vec<String>,
    freed_bytes: u64,
    /// What the database has then for later runs: a small part is not worth compacting it.
    free_bytes: u64,
}

impl PruneArgs {
    fn has_condition(&self) -> bool {
        self.older_than.is_some()
            || self.keep.is_some()
            || !self.status.is_empty()
            || self.workflow.is_some()
            || self.larger_than.is_some()
    }

    /// Whether the conditions hold for a run that is the newest but `newer`.
    fn selects(&self, row: &SizeRow, newer: usize, now_ms: i64) -> bool {
        let statuses = if self.status.is_empty() { &ENDED[..] } else { &self.status };
        let age = Duration::from_millis(u64::try_from(now_ms - row.last_ms).unwrap_or_default());
        statuses.contains(&row.status)
            && self.older_than.is_none_or(|least| age >= least)
            && self.keep.is_none_or(|count| newer >= count)
            && self.workflow.as_ref().is_none_or(|name| *name == row.workflow)
            && self.larger_than.is_none_or(|least| row.total_bytes >= least.as_u64())
    }
}

/// Removes runs, or shows which would be.
pub async fn prune(args: &PruneArgs, global: &Global) -> anyhow::Result<Exit> {
    let store = global.existing_store()?;
    let (rows, before) = sizes(&store).await?;
    let now_ms = now_ms();
    let newest_first = rows.iter().rev().enumerate();
    let selected: Vec<SizeRow> = newest_first
        .filter(|(newer, row)| args.has_condition() && args.selects(row, *newer, now_ms))
        .map(|(_, row)| row.clone())
        .collect();
    let branches = remove_branches(&store, &rows, !args.force, global).await?;
    if !args.force {
        let (on_disk, in_database) = expected(&selected, &before);
        let report = Report {
            removed: false,
            runs: selected,
            branches,
            freed_bytes: on_disk,
            free_bytes: in_database,
        };
        output::report(args.json, &report, || shown(args, &report, global))?;
        return Ok(Exit::SUCCEEDED);
    }
    let mut removed = Vec::new();
    let mut failure = None;
    for row in selected {
        match remove(&store, row.id, global).await {
            Ok(()) => removed.push(row),
            // Another process has removed it since the list was read.
            Err(RunError::Store(StoreError::NotFound { .. })) => {}
            Err(error) => {
                global.warn([format!("run {} stays: {error}", row.id)]);
                // One that was resumed since the list was read is no longer to be removed.
                if !matches!(error, RunError::Store(StoreError::Driven { .. })) {
                    failure = Some(error);
                }
            }
        }
    }
    let is_idle = store.compact(LEAST_FREE).await?;
    if !is_idle {
        global.warn([
            "a run is being driven, so blobs that no run names and free space stay: run `fabro prune --force` again later",
        ]);
    }
    let after = store.usage().await?;
    // The log of the database grows while runs are removed: this takes nothing of what their files took.
    let freed_bytes = files(&before).saturating_sub(files(&after))
        + before.database.saturating_sub(after.database);
    let report =
        Report { removed: true, runs: removed, branches, freed_bytes, free_bytes: after.free };
    output::report(args.json, &report, || done(&report))?;
    match failure {
        Some(error) => Err(error.into()),
        None => Ok(Exit::SUCCEEDED),
    }
}

/// Removes the worktrees and branches of ended runs whose changes are merged or discarded; with `is_dry` it only
/// finds them. Returns the names of the branches.
async fn remove_branches(
    store: &SqliteStore,
    rows: &[SizeRow],
    is_dry: bool,
    global: &Global,
) -> anyhow::Result<Vec<String>> {
    let mut removed = Vec::new();
    for row in rows.iter().filter(|row| ENDED.contains(&row.status)) {
        let is_discarded = discarded_at(&read_all(store, row.id).await?).is_some();
        match remove_branch(store, row.id, is_discarded, is_dry).await {
            Ok(branch) => removed.extend(branch),
            Err(error) => {
                global.warn([format!("could not remove the branch of run {}: {error}", row.id)]);
            }
        }
    }
    Ok(removed)
}

/// What removing these runs would give back to the disk, and to later runs in the database: a small part of it
/// stays there.
fn expected(selected: &[SizeRow], usage: &StoreUsage) -> (u64, u64) {
    let files: u64 = selected.iter().map(|row| row.files_bytes + row.artifacts_bytes).sum();
    let records: u64 = selected.iter().map(|row| row.records_bytes + row.blobs_bytes).sum();
    let on_disk = files + usage.unnamed_artifacts;
    let in_database = records + usage.free + usage.unnamed_blobs;
    if in_database < LEAST_FREE { (on_disk, in_database) } else { (on_disk + in_database, 0) }
}

/// What a store takes on the disk beside its database.
fn files(usage: &StoreUsage) -> u64 {
    usage.blob_files + usage.artifacts + usage.files
}

fn shown(args: &PruneArgs, report: &Report, global: &Global) -> String {
    let about = space(report);
    let branches = branches_text(&report.branches, "--force would remove");
    if !args.has_condition() {
        return format!(
            "No run is selected: name a condition, such as --older-than 30d. --force alone would free about {about}.\n{branches}"
        );
    }
    if report.runs.is_empty() {
        return format!("No runs match. --force would free about {about}.\n{branches}");
    }
    let table = table(&report.runs, global);
    let count = report.runs.len();
    let runs = match count {
        1 => "this run".to_owned(),
        _ => format!("these {count} runs"),
    };
    format!("{table}\n--force would remove {runs} and free about {about}.\n{branches}")
}

fn done(report: &Report) -> String {
    let freed = space(report);
    let branches = branches_text(&report.branches, "removed");
    match report.runs.len() {
        1 => format!("removed 1 run, and freed {freed}\n{branches}"),
        count => format!("removed {count} runs, and freed {freed}\n{branches}"),
    }
}

/// A line about git branches; empty if there are none.
fn branches_text(branches: &[String], verb: &str) -> String {
    match branches {
        [] => String::new(),
        [one] => format!("{verb} the merged or discarded branch {one}, with its worktree\n"),
        several => {
            let count = several.len();
            let first = &several[0];
            format!(
                "{verb} {count} merged or discarded branches, with their worktrees: {first}, …\n"
            )
        }
    }
}

/// The freed space: of the disk, and what the database keeps for later runs.
fn space(report: &Report) -> String {
    let disk = size(report.freed_bytes);
    match report.free_bytes {
        0 => disk,
        free => format!("{disk} of the disk and {} in the database for later runs", size(free)),
    }
}
