//! What a log says that each attempt of each stage received, and what happened to the run itself.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use fabro_blob::BlobStore;
use fabro_engine::{Idle, Input, ReadError, keys, read_blob};
use fabro_events::{CompletedStage, Event, EventBody, QuestionType};
use fabro_gate::{GateAnswer, Question};
use fabro_llm::Message;
use fabro_types::{BlobRef, BranchPath, Failure, Outcome, Status, Usage};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::replay::ReplayError;

/// One attempt of one stage.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) branch: Arc<str>,
    pub(crate) node: Arc<str>,
    pub(crate) visit: u32,
    pub(crate) attempt: u32,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { branch, node, visit, attempt } = self;
        let branch = if branch.is_empty() { String::new() } else { format!("{branch}: ") };
        let attempt = if *attempt > 1 { format!(" (attempt {attempt})") } else { String::new() };
        write!(f, "{branch}{node}@{visit}{attempt}")
    }
}

/// A run's record: the inputs of its machine, in the order of the log.
#[derive(Default)]
pub(crate) struct Record {
    /// The events of each attempt, oldest first; taken as they are replayed.
    attempts: BTreeMap<Key, VecDeque<Event>>,
    /// What happened to the run itself, with the position in the log.
    run_inputs: VecDeque<(u64, Input)>,
    /// The attempts of fan-outs that reached their time limits, by the names that their branches
    /// begin with, with the position in the log.
    pub(crate) overdue: BTreeMap<Arc<str>, u64>,
    /// The run has ended.
    pub(crate) is_whole: bool,
}

/// How an attempt ended.
#[derive(Clone)]
pub(crate) enum End {
    /// It failed, and another attempt followed.
    Retried { failure: Failure, usage: Option<Box<Usage>> },
    /// It was the last one.
    Completed(Arc<CompletedStage>),
}

impl Record {
    /// Reads the events that count, oldest first.
    pub(crate) fn read(events: &[&Event]) -> Self {
        let mut record = Self::default();
        // The attempt that each stage is at.
        let mut current: BTreeMap<(Arc<str>, Arc<str>, u32), u32> = BTreeMap::new();
        for &event in events {
            let entry = &event.entry;
            let branch = entry.branch.clone().unwrap_or_default();
            let Some((node, visit)) = entry.node_id.clone().zip(entry.visit) else {
                record.read_run_event(event);
                continue;
            };
            let attempt = current.entry((branch.clone(), node.clone(), visit)).or_insert(1);
            let key = Key { branch, node, visit, attempt: *attempt };
            match &entry.body {
                EventBody::StageStarted { .. } => {
                    *attempt = 1;
                    record.attempts.entry(Key { attempt: 1, ..key }).or_default();
                    continue;
                }
                EventBody::StageRetrying { attempt: failed, .. } => {
                    *attempt = failed.saturating_add(1);
                    let next = Key { attempt: *attempt, ..key.clone() };
                    record.attempts.entry(next).or_default();
                }
                EventBody::EdgeSelected(_)
                | EventBody::LoopRestart { .. }
                | EventBody::ParallelStarted { .. }
                | EventBody::ParallelCompleted { .. } => continue,
                _ => {}
            }
            record.attempts.entry(key).or_default().push_back(event.clone());
        }
        record.is_whole = events.last().is_some_and(|event| {
            matches!(event.entry.body, EventBody::RunCompleted { .. } | EventBody::RunFailed { .. })
        });
        record
    }

    fn read_run_event(&mut self, event: &Event) {
        let input = match &event.entry.body {
            EventBody::RunResumed { max_cost } => Input::Resume { max_cost: *max_cost },
            EventBody::RunPaused {
                gates, unavailable, failed_turns, used, sub_workflows, ..
            } => Input::Idle(Box::new(Idle {
                gates: gates.clone(),
                unavailable: unavailable.clone(),
                failed_turns: failed_turns.clone(),
                used: used.clone(),
                sub_workflows: *sub_workflows,
            })),
            EventBody::RunCanceled { reason, by_parent } => {
                Input::Cancel { reason: reason.clone(), by_parent: *by_parent }
            }
            // Only a time limit ends a branch with a failure that is not the branch's.
            EventBody::BranchCompleted { canceled: true, failure: Some(_), .. } => {
                let branch = event.entry.branch.as_deref().unwrap_or_default();
                if let Some(fan_out) = BranchPath::new(branch).fan_out_path() {
                    self.overdue.insert(Arc::from(fan_out), event.seq);
                }
                return;
            }
            _ => return,
        };
        self.run_inputs.push_back((event.seq, input));
    }

    /// The position of the next input of the run itself.
    pub(crate) fn next_run_input(&self) -> Option<u64> {
        self.run_inputs.front().map(|(seq, _)| *seq)
    }

    pub(crate) fn take_run_input(&mut self) -> Option<Input> {
        self.run_inputs.pop_front().map(|(_, input)| input)
    }

    /// Whether the record has this attempt.
    pub(crate) fn has(&self, key: &Key) -> bool {
        self.attempts.contains_key(key)
    }

    /// The position of the next event of an attempt.
    pub(crate) fn next_of(&self, key: &Key) -> Option<u64> {
        self.attempts.get(key)?.front().map(|event| event.seq)
    }

    pub(crate) fn take_of(&mut self, key: &Key) -> Option<Event> {
        self.attempts.get_mut(key)?.pop_front()
    }

    /// The rest of an attempt is not replayed. Gives how it ended.
    pub(crate) fn skip(&mut self, key: &Key) -> Option<End> {
        let rest = self.attempts.get_mut(key).map(std::mem::take).unwrap_or_default();
        rest.iter().find_map(|event| End::of(&event.entry.body))
    }
}

impl End {
    /// The end that an event records, if it is one.
    pub(crate) fn of(body: &EventBody) -> Option<Self> {
        match body {
            EventBody::StageRetrying { failure, usage, .. } => {
                Some(Self::Retried { failure: failure.clone(), usage: usage.clone().map(Box::new) })
            }
            EventBody::StageCompleted(done) | EventBody::StageFailed(done) => {
                Some(Self::Completed(Arc::clone(done)))
            }
            _ => None,
        }
    }

    pub(crate) fn is_failure(&self) -> bool {
        match self {
            Self::Retried { .. } => true,
            Self::Completed(done) => done.outcome.status == Status::Failed,
        }
    }

    /// The recorded outcome.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::Retried { failure, usage } => Outcome {
                usage: usage.clone().map(|usage| *usage),
                ..Outcome::failed(failure.clone())
            },
            Self::Completed(done) => done.outcome.clone(),
        }
    }

    /// Directives that lead to this end; the status alone is one only where the answer `had_to_route`.
    pub(crate) fn directives(&self, had_to_route: bool) -> Option<String> {
        let outcome = self.outcome();
        if outcome.failure.as_ref().is_some_and(|failure| !failure.stated) {
            return None;
        }
        let mut found = Map::new();
        let mut add = |field: &str, value: Option<Value>| {
            found.extend(value.map(|value| (field.to_owned(), value)));
        };
        let has_status = had_to_route || outcome.status != Status::Succeeded;
        let status = has_status.then(|| outcome.status.as_str());
        add("outcome", outcome.word.as_deref().or(status).map(Value::from));
        let reason = match &outcome.failure {
            Some(failure) => Some(failure.message.as_str()),
            None => outcome.notes.as_deref(),
        };
        add("failure_reason", reason.map(Value::from));
        add("preferred_next_label", outcome.preferred_label.as_deref().map(Value::from));
        let ids = outcome.suggested_next_ids;
        add("suggested_next_ids", (!ids.is_empty()).then(|| Value::from(ids)));
        // The other keys are not the agent's.
        let updates =
            outcome.context_updates.iter().filter(|(key, _)| keys::refusal(key).is_none());
        let updates: Map<_, _> =
            updates.map(|(key, value)| (key.clone(), Value::clone(value))).collect();
        add("context_updates", (!updates.is_empty()).then_some(Value::Object(updates)));
        (!found.is_empty()).then(|| Value::Object(found).to_string())
    }
}

/// A recorded message: a whole one, or a plain string of that role; itself, or as a blob.
pub(crate) fn recorded_message(
    blobs: &dyn BlobStore,
    role: &str,
    message: &Value,
    seq: u64,
) -> Result<Message, ReplayError> {
    match resolved(blobs, message)? {
        Value::String(text) if role == "assistant" => Ok(Message::assistant(text)),
        Value::String(text) if role == "system" => Ok(Message::system(text)),
        Value::String(text) => Ok(Message::user(text)),
        whole => Message::deserialize(whole)
            .map_err(|error| ReplayError::Message { seq, reason: error.to_string() }),
    }
}

/// The value, or the one that it refers to.
pub(crate) fn resolved(blobs: &dyn BlobStore, value: &Value) -> Result<Value, ReadError> {
    match BlobRef::from_value(value) {
        Some(blob) => read_blob(blobs, &blob),
        None => Ok(value.clone()),
    }
}

/// The answer with which the same is chosen; `None` where it cannot be chosen any more.
pub(crate) fn same_choice(
    selected: &str,
    label: &str,
    text: Option<&str>,
    question: &Question,
) -> Option<GateAnswer> {
    let takes_text = question.freeform || question.question_type == QuestionType::Freeform;
    if let Some(text) = text.filter(|_| takes_text) {
        return Some(GateAnswer::Text(text.to_owned()));
    }
    let labelled = || question.options.iter().filter(|option| option.label == *label);
    let exact = labelled().find(|option| option.key == *selected);
    let option = exact.or_else(|| labelled().next());
    // Without an option of this label, several were selected.
    let choice = text.or(option.map(|option| option.key.as_str())).unwrap_or(selected);
    question.read(choice).ok()
}
