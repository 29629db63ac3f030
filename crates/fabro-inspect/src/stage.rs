use std::sync::Arc;

use fabro_blob::BlobStore;
use fabro_context::keys;
use fabro_engine::{RunState, checkpoint};
use fabro_events::{CompletedStage, Event, EventBody, timestamp};
use fabro_run::{Gate, open_gates};
use fabro_types::{BlobRef, Failure, Outcome, RunId, Usage};
use serde::Serialize;
use serde_json::Value;

use crate::Explain;
use crate::ReportError;
use crate::at::{StageKey, end_of, find};
use crate::blobs::read;
use crate::conversation::{ModelInputs, TranscriptMessage, transcript};
use crate::explain::{GateAnswered, answer_of, explain_of};
use crate::inspect::{OpenRow, Rows, StageRow, rows};
use crate::read_back_small;

/// One visit of a node: its inputs and its outcome.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageReport {
    /// Where it is, how it ended, and what it took.
    #[serde(flatten)]
    pub row: StageRow,
    /// The attempts before the last one; left out when there were none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub earlier_attempts: Vec<FailedAttempt>,
    /// What the model received before the prompt, in the last attempt.
    #[serde(flatten)]
    pub given: ModelInputs,
    /// The prompt; `None` for stages without a model.
    pub prompt: Option<String>,
    /// The answer of the model, or the output of the command.
    pub response: Option<Value>,
    /// What a command wrote to its standard error; left out for other stages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr: Option<Value>,
    /// The outcome; `None` while it is running.
    pub outcome: Option<Outcome>,
    /// The runs of its sub-workflow, one for each attempt that began one; left out when there is none,
    /// and always by [`stage`], which reads only one run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sub_workflows: Vec<RunId>,
    /// Its question to a person, while it waits for the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<Gate>,
    /// How it was answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<GateAnswered>,
    /// Its conversation with a model, of its last attempt; left out when there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub transcript: Vec<TranscriptMessage>,
}

/// An attempt that failed, after which another one began.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FailedAttempt {
    /// Which one, from 1.
    pub attempt: u32,
    /// When it ended, RFC 3339.
    pub ended_at: String,
    /// Why it failed.
    pub failure: Failure,
    /// How long the next one waited, in milliseconds.
    pub delay_ms: u64,
    /// What it used of a model; left out when it used none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

impl StageReport {
    /// Whether the stage ran a script that ended.
    pub fn is_command(&self) -> bool {
        let updates = self.outcome.as_ref().map(|outcome| &outcome.context_updates);
        updates.is_some_and(|updates| updates.contains_key(keys::COMMAND_EXIT_CODE))
    }

    /// Puts small values in the place of references in what it wrote to the context, for people:
    /// [`read_back_small`].
    pub fn read_back_updates(&mut self, max: u64, blobs: &dyn BlobStore) {
        for value in self.outcome.iter_mut().flat_map(|it| it.context_updates.values_mut()) {
            *value = Arc::new(read_back_small(value, max, blobs));
        }
    }
}

/// A stage, named as [`StageName`](checkpoint::StageName) has it. `driven` tells
/// whether the run has a driver.
/// Prompt, response and standard error are read back from `blobs`, unless they are too large for that; large values
/// in the outcome stay references.
pub fn stage(
    events: &[Event],
    stage: &str,
    driven: bool,
    blobs: &dyn BlobStore,
) -> Result<StageReport, ReportError> {
    let gates = open_gates(events);
    let events = checkpoint::effective(events);
    let key = find(&events, stage)?;
    let row = row_of(&events, &key, driven)?;
    report_of(&events, &key, row, gates, blobs)
}

/// The report of a stage whose row is known, and why the run took the edge after it if it was left: from the
/// first event of the run, those of the stage, and the next one of its line. There may be others among them.
/// What a row of a fold [for a list](crate::RunFold::for_list) leaves out is taken from the events.
///
/// # Errors
///
/// A large value cannot be read back.
pub fn stage_of_row(
    events: &[&Event],
    row: StageRow,
    gates: impl IntoIterator<Item = Gate>,
    blobs: &dyn BlobStore,
) -> Result<(StageReport, Option<Explain>), ReportError> {
    let key = row.key();
    let explain = explain_of(events, &key).ok();
    Ok((report_of(events, &key, completed(row, events), gates, blobs)?, explain))
}

/// A row with what a list leaves out, from the events of the stage.
fn completed(mut row: StageRow, events: &[&Event]) -> StageRow {
    let key = row.key();
    let mut own = Rows::default();
    for event in events.iter().filter(|event| key.is(event)) {
        own.apply(event);
    }
    if let Some(OpenRow { row: whole, .. }) = own.list.pop() {
        row.failure = whole.failure;
        row.choice = whole.choice;
        row.files_touched = whole.files_touched;
        row.warnings = whole.warnings;
    }
    row
}

/// The report of one visit from its events; there may be others among them.
pub(crate) fn report_of(
    events: &[&Event],
    key: &StageKey,
    row: StageRow,
    gates: impl IntoIterator<Item = Gate>,
    blobs: &dyn BlobStore,
) -> Result<StageReport, ReportError> {
    let end = end_of(events, key).and_then(|at| match &events[at].entry.body {
        EventBody::StageCompleted(end) | EventBody::StageFailed(end) => Some(end),
        _ => None,
    });
    let prompt = end.and_then(|end| end.prompt).map(|blob| read(key, "the prompt", &blob, blobs));
    let whole = |what: &'static str, value: Arc<Value>| match BlobRef::from_value(&value) {
        Some(blob) => read(key, what, &blob, blobs),
        None => Ok(Value::clone(&value)),
    };
    let response = end.and_then(|end| response(&key.node, end));
    let response = response.map(|value| whole("the response", value));
    let stderr = end.and_then(|end| end.outcome.context_updates.get(keys::COMMAND_STDERR).cloned());
    let stderr = stderr.map(|value| whole("the standard error", value));
    let (given, transcript) = transcript(events, key, Some(blobs))?;
    Ok(StageReport {
        given,
        transcript,
        prompt: prompt.transpose()?.map(|value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        }),
        response: response.transpose()?,
        stderr: stderr.transpose()?,
        earlier_attempts: earlier_attempts(events, key),
        outcome: end.map(|end| end.outcome.clone()),
        sub_workflows: Vec::new(),
        gate: gates.into_iter().find(|gate| {
            (&gate.node, gate.visit, &gate.branch) == (&key.node, key.visit, &key.branch)
        }),
        answer: answer_of(events, key),
        row,
    })
}

fn row_of(events: &[&Event], key: &StageKey, driven: bool) -> Result<StageRow, ReportError> {
    let first = events.first().ok_or(ReportError::Empty)?;
    let mut state = RunState::new(first.run_id);
    for event in events {
        state.apply(event);
    }
    let rows = rows(events, state.status(driven));
    let is_stage =
        |row: &StageRow| row.node == key.node && row.visit == key.visit && row.branch == key.branch;
    // A restart may have visited it for the first time again: the last one is meant.
    let row = rows.into_iter().rfind(is_stage);
    row.ok_or_else(|| ReportError::NoStage { stage: key.name(), stages: Vec::new() })
}

fn earlier_attempts(events: &[&Event], key: &StageKey) -> Vec<FailedAttempt> {
    let failed =
        events.iter().filter(|event| key.is(event)).filter_map(|event| match &event.entry.body {
            EventBody::StageRetrying { attempt, delay_ms, failure, usage } => Some(FailedAttempt {
                attempt: *attempt,
                ended_at: timestamp(event.ts_ms),
                failure: failure.clone(),
                delay_ms: *delay_ms,
                usage: usage.clone(),
            }),
            _ => None,
        });
    failed.collect()
}

/// The answer of the stage's model, else the output of its command.
pub(crate) fn response(node: &str, end: &CompletedStage) -> Option<Arc<Value>> {
    let updates = &end.outcome.context_updates;
    let own = format!("{}{node}", keys::RESPONSE_PREFIX);
    updates.get(&own).or_else(|| updates.get(keys::COMMAND_OUTPUT)).cloned()
}
