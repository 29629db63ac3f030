//! The gates of all runs, and which runs could not be asked for theirs.

use std::collections::BTreeSet;
use std::time::Duration;

use fabro_store::{RunLog as _, RunSummary, Runs as _, SqliteStore, StoreError};
use fabro_types::{RunId, RunStatus};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::folds::{Folds, OpenGate};
use crate::problem::Problem;

/// How long runs are asked again whose log is locked, for all of them together.
const RETRY_FOR: Duration = Duration::from_secs(5);

/// The pause before a run is asked again.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// A run whose log cannot be read: it may have gates that are not in the list.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct UnreadableRun {
    /// The run.
    pub(crate) run: RunId,
    /// Its workflow.
    pub(crate) workflow: String,
    /// The code of the problem: `store_busy` is over in a moment.
    pub(crate) code: &'static str,
    /// Why it cannot be read.
    pub(crate) detail: String,
    /// What to do about it.
    pub(crate) fix: String,
}

/// The gates of all runs.
pub(crate) struct OpenGates {
    /// The runs with gates, newest first.
    pub(crate) runs: Vec<(RunSummary, Vec<OpenGate>)>,
    /// The runs that could not be asked.
    pub(crate) unreadable: Vec<UnreadableRun>,
}

/// Reads the gates of all runs, those included whose answer waits for a driver. A run that cannot be read hides no
/// gate of another.
///
/// # Errors
///
/// The list of runs cannot be read.
pub(crate) async fn open_gates(store: &SqliteStore, folds: &Folds) -> Result<OpenGates, Problem> {
    let mut all = OpenGates { runs: Vec::new(), unreadable: Vec::new() };
    let mut known = BTreeSet::new();
    let until = Instant::now() + RETRY_FOR;
    for (run, error) in lost_runs(store).await? {
        let Problem { code, detail, fix, .. } = error.into();
        all.unreadable.push(UnreadableRun { run, workflow: String::new(), code, detail, fix });
    }
    for run in store.list().await? {
        let is_open =
            matches!(run.status, RunStatus::Running | RunStatus::Paused | RunStatus::Interrupted);
        // A run that waits may have sub-workflows that have ended.
        if is_open || run.parent.is_some() {
            known.insert(run.id);
        }
        if !is_open || run.parent.is_some() {
            continue;
        }
        let id = run.id;
        match retried(until, || folds.gates(id)).await {
            Ok(gates) if gates.is_empty() => {}
            Ok(gates) => all.runs.push((run, gates)),
            // It was removed since the list was read.
            Err(problem) if problem.code == "run_not_found" => {}
            Err(Problem { code, detail, fix, .. }) => {
                let RunSummary { id: run, workflow, .. } = run;
                all.unreadable.push(UnreadableRun { run, workflow, code, detail, fix });
            }
        }
    }
    folds.keep_gates_of(|run| known.contains(&run));
    Ok(all)
}

/// The runs that were recorded and of which the database has nothing, each with what is lost.
pub(crate) async fn lost_runs(store: &SqliteStore) -> Result<Vec<(RunId, StoreError)>, StoreError> {
    let mut lost = Vec::new();
    for run in store.lost_runs().await? {
        lost.extend(store.read(run, 0, 1).await.err().map(|error| (run, error)));
    }
    Ok(lost)
}

/// What `read` gives, which is called again while the store is busy.
async fn retried<T, F: Future<Output = Result<T, Problem>>>(
    until: Instant,
    mut read: impl FnMut() -> F,
) -> Result<T, Problem> {
    loop {
        match read().await {
            Err(problem) if problem.code == "store_busy" && Instant::now() < until => {
                sleep(RETRY_AFTER).await;
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use axum::http::StatusCode;

    use super::*;

    /// How often a read is called that fails so many times with this code.
    async fn check(code: &'static str, failures: u32, calls: u32, is_ok: bool) {
        let count = Cell::new(0);
        let read = || {
            count.set(count.get() + 1);
            let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, code, "why", "fix");
            std::future::ready(if count.get() <= failures { Err(problem) } else { Ok(()) })
        };
        let result = retried(Instant::now() + RETRY_FOR, read).await;
        assert_eq!((count.get(), result.is_ok()), (calls, is_ok), "{code} {failures}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_store_is_asked_again_for_some_seconds() {
        check("store_busy", 0, 1, true).await;
        check("store_busy", 3, 4, true).await;
        check("store_busy", u32::MAX, 51, false).await;
        check("store_error", 1, 1, false).await;
    }
}
