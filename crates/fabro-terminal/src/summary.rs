use std::collections::BTreeMap;
use std::sync::Arc;

use fabro_context::keys;
use fabro_events::{CompletedStage, Event};
use fabro_types::{BlobRef, BranchPath, RunId, Status};
use serde::Serialize;

/// The results of the nodes of a run: a row for each node with work, in the order of their first ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// The rows.
    pub rows: Vec<SummaryRow>,
    /// How many artifacts the stages left.
    #[serde(skip)]
    pub artifacts: usize,
    /// The last answer of a model on the main line: mostly what the run was for.
    #[serde(skip)]
    pub response: Option<Response>,
    /// Tokens and US dollars of the whole run, including failed attempts and canceled branches; `None` to sum the rows.
    #[serde(skip)]
    pub spent: Option<(u64, f64)>,
    #[serde(skip)]
    by_node: BTreeMap<Arc<str>, usize>,
    /// How a node's last visit on each line ended, a branch that a loop comes to again being the same line.
    #[serde(skip)]
    ends: BTreeMap<(usize, String), Status>,
}

/// What a model answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The run.
    pub run: RunId,
    /// The stage that asked, as `NODE@VISIT`.
    pub stage: String,
    /// The answer; of one too long for an event, the beginning.
    pub text: String,
}

impl Response {
    fn of(event: &Event, end: &CompletedStage) -> Option<Self> {
        let node = event.entry.node_id.as_ref().filter(|_| event.entry.branch.is_none())?;
        let updates = &end.outcome.context_updates;
        let whole = updates.get(&format!("{}{node}", keys::RESPONSE_PREFIX));
        let whole = whole.and_then(|text| text.as_str());
        let is_kept_elsewhere = |text: &str| text.parse::<BlobRef>().is_ok();
        let text = match whole {
            Some(text) if is_kept_elsewhere(text) => updates.get(keys::LAST_RESPONSE)?.as_str()?,
            whole => whole?,
        };
        let stage = format!("{node}@{}", event.entry.visit.unwrap_or(1));
        Some(Self { run: event.run_id, stage, text: text.to_owned() })
    }
}

/// A node, over all its visits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SummaryRow {
    /// The node.
    pub node: Arc<str>,
    /// Its label, when it has one of its own.
    pub label: Option<Arc<str>>,
    /// How many visits ended.
    pub visits: u32,
    /// How the last one ended; failed when it did in any branch.
    pub status: Status,
    /// In how many branches it has ended.
    pub lines: u32,
    /// In how many of them its last visit failed.
    pub failed: u32,
    /// How long they took together, in milliseconds.
    pub duration_ms: u64,
    /// Model tokens, sent and received.
    pub tokens: u64,
    /// What they cost in US dollars.
    pub cost_usd: f64,
}

impl Summary {
    /// Adds a finished stage.
    pub(crate) fn add(&mut self, event: &Event, end: &CompletedStage) {
        let Some(node) = event.entry.node_id.clone() else { return };
        let rows = &mut self.rows;
        let at = *self.by_node.entry(Arc::clone(&node)).or_insert_with(|| {
            rows.push(SummaryRow {
                node,
                label: event.entry.node_label.clone().filter(|label| !label.contains("{{")),
                visits: 0,
                status: end.outcome.status,
                lines: 0,
                failed: 0,
                duration_ms: 0,
                tokens: 0,
                cost_usd: 0.0,
            });
            rows.len() - 1
        });
        self.artifacts += end.outcome.artifacts.len();
        if let Some(response) = Response::of(event, end) {
            self.response = Some(response);
        }
        let row = &mut rows[at];
        row.visits += 1;
        let branch = BranchPath::new(event.entry.branch.as_deref().unwrap_or_default());
        let before = self.ends.insert((at, branch.without_visits()), end.outcome.status);
        row.lines += u32::from(before.is_none());
        row.failed -= u32::from(before == Some(Status::Failed));
        row.failed += u32::from(end.outcome.status == Status::Failed);
        row.status = if row.failed > 0 { Status::Failed } else { end.outcome.status };
        row.duration_ms += end.outcome.duration_ms;
        if let Some(usage) = &end.outcome.usage {
            row.tokens += usage.input_tokens + usage.output_tokens;
            row.cost_usd += usage.cost_usd;
        }
    }
}
