//! Prometheus metrics: gauges of the store, and counters of events recorded since the server started.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::{Display, Write as _};

use fabro_events::{Event, EventBody};
use fabro_run::now_ms;
use fabro_store::{RunLog as _, RunSummary, SqliteStore, StoreError};
use fabro_types::{RunId, RunStatus, Usage};
use tokio::sync::Mutex;

use crate::actions::WaitingGates;

/// How many events one read returns.
const PAGE: usize = 256;

const STATUSES: [RunStatus; 7] = [
    RunStatus::Running,
    RunStatus::Paused,
    RunStatus::Succeeded,
    RunStatus::PartiallySucceeded,
    RunStatus::Failed,
    RunStatus::Canceled,
    RunStatus::Interrupted,
];

/// Counters of events recorded since the server started, as Prometheus expects. Older events are read once, and only
/// for runs that have not ended.
pub(crate) struct Metrics {
    since_ms: i64,
    counters: Mutex<Counters>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Self { since_ms: now_ms(), counters: Mutex::default() }
    }

    /// Renders the metrics, with these runs of the store and these waiting gates.
    pub(crate) async fn text(
        &self,
        store: &SqliteStore,
        runs: &[RunSummary],
        waiting: &WaitingGates,
    ) -> String {
        let mut counters = self.counters.lock().await;
        counters.update(store, runs, self.since_ms).await;
        let mut text = Exposition::default();
        let help = "The version of the server.";
        let version = labels(&[("version", env!("CARGO_PKG_VERSION"))]);
        text.one("fabro_build_info", "gauge", help, [(version, 1)]);
        let of_status = |status| {
            let all = runs.iter().filter(|run| run.parent.is_none() && run.status == status);
            (labels(&[("status", RunStatus::as_str(status))]), all.count())
        };
        let help = "Runs in the store, without those of sub-workflows.";
        text.one("fabro_runs", "gauge", help, STATUSES.map(of_status));
        let help = "Runs whose log cannot be read.";
        let unreadable = waiting.unreadable.len().max(counters.unreadable.len());
        text.one("fabro_runs_unreadable", "gauge", help, [(String::new(), unreadable)]);
        let help = "Gates that wait for an answer.";
        let gates = &waiting.gates;
        text.one("fabro_gates_waiting", "gauge", help, [(String::new(), gates.len())]);
        let help = "How long the oldest waiting gate has waited; 0 without one.";
        let asked_ms = gates.iter().map(|waiting| waiting.gate.asked_ms).min();
        let age_ms = asked_ms.map_or(0, |asked_ms| now_ms().saturating_sub(asked_ms).max(0));
        let age = age_ms as f64 / 1_000.0;
        text.one("fabro_gates_oldest_age_seconds", "gauge", help, [(String::new(), age)]);
        counters.write(&mut text);
        text.0
    }
}

#[derive(Default)]
struct Counters {
    stages: BTreeMap<&'static str, u64>,
    usage: Usage,
    commits: u64,
    /// What is counted of each run's log.
    runs: HashMap<RunId, Counted>,
    unreadable: HashSet<RunId>,
}

#[derive(Default)]
struct Counted {
    seq: u64,
    /// The end time of a run that is counted up to its end. It changes if the run continues.
    settled_ms: Option<i64>,
    /// The commits seen so far: a stage that changed nothing repeats the commit of the previous one.
    commits: HashSet<String>,
}

impl Counters {
    /// Counts what was recorded since the last update.
    async fn update(&mut self, store: &SqliteStore, runs: &[RunSummary], since_ms: i64) {
        let known: HashSet<RunId> = runs.iter().map(|run| run.id).collect();
        self.runs.retain(|run, _| known.contains(run));
        self.unreadable.retain(|run| known.contains(run));
        for run in runs {
            let settled_ms = self.runs.get(&run.id).and_then(|counted| counted.settled_ms);
            let ended_ms = run.ended_at_ms;
            if ended_ms.is_some_and(|ended| ended < since_ms || settled_ms == Some(ended)) {
                continue;
            }
            // A damaged log does not prevent counting the others.
            match self.count(store, run.id, since_ms).await {
                Ok(()) => self.unreadable.remove(&run.id),
                Err(_) => self.unreadable.insert(run.id),
            };
            if let (Some(counted), Some(_)) = (self.runs.get_mut(&run.id), ended_ms) {
                counted.settled_ms = ended_ms;
                counted.commits = HashSet::new();
            }
        }
    }

    async fn count(
        &mut self,
        store: &SqliteStore,
        run: RunId,
        since_ms: i64,
    ) -> Result<(), StoreError> {
        loop {
            let seq = self.runs.entry(run).or_default().seq;
            let page = store.read(run, seq, PAGE).await?;
            for event in &page {
                self.apply(run, event, event.ts_ms >= since_ms);
            }
            if page.len() < PAGE {
                return Ok(());
            }
        }
    }

    /// Counts an event. An event older than the server only marks its commit as seen.
    fn apply(&mut self, run: RunId, event: &Event, is_new: bool) {
        let body = &event.entry.body;
        let counted = self.runs.entry(run).or_default();
        counted.seq = event.seq;
        if let EventBody::RunCreated(created) = body {
            counted.commits.extend(created.worktree.iter().map(|tree| tree.base.clone()));
        }
        let commit = body.git_sha().map(str::to_owned);
        let is_new_commit = commit.is_some_and(|commit| counted.commits.insert(commit));
        if !is_new {
            return;
        }
        self.commits += u64::from(is_new_commit);
        if let EventBody::StageCompleted(end) | EventBody::StageFailed(end) = body {
            *self.stages.entry(end.outcome.status.as_str()).or_default() += 1;
        }
        if let Some(usage) = body.request_usage() {
            self.usage.add(usage);
        }
    }

    fn write(&self, text: &mut Exposition) {
        let stages = ["succeeded", "partially_succeeded", "failed", "skipped"].map(|status| {
            (labels(&[("status", status)]), self.stages.get(status).copied().unwrap_or(0))
        });
        let help = "Stages that ended since the server started.";
        text.one("fabro_stages_total", "counter", help, stages);
        let Usage { input_tokens, output_tokens, cached_tokens, cost_usd, .. } = self.usage;
        let tokens =
            [("input", input_tokens), ("output", output_tokens), ("cached", cached_tokens)]
                .map(|(kind, count)| (labels(&[("kind", kind)]), count));
        let help = "Tokens of models since the server started; cached ones are input tokens too.";
        text.one("fabro_tokens_total", "counter", help, tokens);
        let help =
            "What models cost since the server started, in US dollars, as far as prices are known.";
        text.one("fabro_cost_usd_total", "counter", help, [(String::new(), cost_usd)]);
        let help = "Commits of stages in git worktrees since the server started.";
        text.one("fabro_commits_total", "counter", help, [(String::new(), self.commits)]);
    }
}

/// Text in the Prometheus exposition format.
#[derive(Default)]
struct Exposition(String);

impl Exposition {
    /// One metric, with its values by their labels.
    fn one<V: Display>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        values: impl IntoIterator<Item = (String, V)>,
    ) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in values {
            let _ = writeln!(self.0, "{name}{labels} {value}");
        }
    }
}

/// Formats labels. The values are fixed words that need no escaping.
fn labels(pairs: &[(&str, &str)]) -> String {
    let pairs: Vec<String> =
        pairs.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
    format!("{{{}}}", pairs.join(","))
}
