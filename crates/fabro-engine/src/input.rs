//! What the machine takes in and what it gives.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fabro_events::{EndedByParent, Event, Note, Spent, StageFailure};
use fabro_types::{BlobRef, Failure, Outcome, Usage};
use serde_json::Value;

use crate::NewBlob;

/// Something that happened outside of the machine.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A driver begins with a new run.
    Start,
    /// A driver resumes a run.
    Resume {
        /// A new spending limit in US dollars.
        max_cost: Option<f64>,
    },
    /// An attempt of a stage ended.
    Ended {
        /// The line it ran on.
        branch: Arc<str>,
        /// The result.
        finished: Box<Finished>,
    },
    /// The retry delay of a failed fan-out has passed.
    Due {
        /// The line it began on.
        branch: Arc<str>,
    },
    /// A fan-out has reached its timeout.
    Overdue {
        /// The line it began on.
        branch: Arc<str>,
        /// How long it had.
        limit: Duration,
    },
    /// A handler reports something that belongs into the log.
    Note {
        /// The line its stage runs on.
        branch: Arc<str>,
        /// What it is, in order; one record of the log takes them all.
        notes: Vec<Note>,
        /// Bytes that they name.
        blobs: Vec<NewBlob>,
    },
    /// The blobs that the machine [needs](crate::Machine::needs).
    Values {
        /// Each with its value, or with the reason why it cannot be read.
        values: BTreeMap<BlobRef, Result<Value, String>>,
    },
    /// Nothing is running, and nothing can be: gates wait for a person, no model is available, or
    /// the budget is used up.
    Idle(Box<Idle>),
    /// The run is canceled.
    Cancel {
        /// Who or what.
        reason: String,
        /// Why the stage of a sub-workflow ends it.
        by_parent: Option<EndedByParent>,
    },
    /// The run cannot continue for a reason outside of its stages.
    Abort {
        /// Why.
        failure: Failure,
    },
}

/// What an idle run waits for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Idle {
    /// The gates that wait for an answer from outside.
    pub gates: Vec<Arc<str>>,
    /// The stages for which no model or agent is available.
    pub unavailable: Vec<StageFailure>,
    /// How many requests to models failed for them, by line.
    pub failed_turns: BTreeMap<Arc<str>, u32>,
    /// What these requests used, by line.
    pub used: BTreeMap<Arc<str>, Usage>,
    /// What unfinished sub-workflows have spent.
    pub sub_workflows: Spent,
}

/// The result of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// The outcome.
    pub outcome: Outcome,
    /// The prompt a model was sent.
    pub prompt: Option<BlobRef>,
    /// The script as it ran, where that differs from the node's.
    pub script: Option<Arc<str>>,
    /// The variables that the node gave its script, where a template filled them in.
    pub env: BTreeMap<String, String>,
    /// Bytes that the fields above name.
    pub blobs: Vec<NewBlob>,
    /// The work had ended before its time limit, although the handler returned later: it counts.
    pub in_time: bool,
}

impl From<Outcome> for Finished {
    fn from(outcome: Outcome) -> Self {
        let env = BTreeMap::new();
        Self { outcome, prompt: None, script: None, env, blobs: Vec::new(), in_time: false }
    }
}

/// What has to be durable before it is reported.
#[derive(Clone, Debug, Default)]
pub struct Commit {
    /// The events, in order.
    pub events: Vec<Event>,
    /// The blobs they name.
    pub blobs: Vec<NewBlob>,
}
