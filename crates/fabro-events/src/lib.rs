//! The events of a run: one enum, one JSON shape, and the sink they go to.
//!
//! A run is an append-only log of these; everything else (context, status, lists, reports) is
//! computed from them. Names and fields are listed in `docs/events.md`.
//!
//! ```
//! use fabro_events::{Entry, Event, EventBody};
//! use fabro_types::RunId;
//!
//! let entry = Entry::new(EventBody::RunStarted {});
//! let event = Event { run_id: RunId::from_parts(0, 7), seq: 2, ts_ms: 1_500, entry };
//! let json = event.to_json();
//! assert_eq!(json["event"], "run.started");
//! assert_eq!(json["ts"], "1970-01-01T00:00:01.500Z");
//! assert_eq!(json["id"], format!("{}-2", event.run_id));
//! ```
//!
//! Limits: an event whose name is not known here does not parse, so a log is read by the version
//! that wrote it or a later one. Times are whole milliseconds.

mod body;
mod edge_choice;
mod gate_options;
mod parent;
mod retry_point;
mod spent;
mod stage_failure;
pub mod stage_name;
mod worktree;

use std::sync::Arc;

pub use body::{
    AnsweredBy, CapturedArtifact, CompletedCompaction, CompletedStage, CompletedTool, CreatedRun,
    EndedByParent, EventBody, ForEach, ForkPoint, GateOption, Given, MessagePurpose, PauseReason,
    PlannedBranch, QuestionType, ShortenedResult, ShownText, WindowUse,
};
pub use edge_choice::{Candidate, EdgeChoice, FailureHandling, Tier};
use fabro_types::{BranchPath, RunId, is_node_id};
pub use gate_options::{default_option, gate_options};
pub use parent::ParentStage;
pub use retry_point::RetryPoint;
use serde::{Deserialize, Serialize};
pub use spent::Spent;
pub use stage_failure::{OverriddenCheck, StageFailure};
pub use worktree::{BranchWorktrees, RunWorktree};

/// One committed event: an [`Entry`] with its place in the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The run it belongs to.
    pub run_id: RunId,
    /// Its place in the run's log, from 1, without gaps.
    pub seq: u64,
    /// When it was decided, in milliseconds since 1970.
    pub ts_ms: i64,
    /// What happened, and to which stage.
    pub entry: Entry,
}

/// What happened, before it has a place in a log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The event's name and properties.
    #[serde(flatten)]
    pub body: EventBody,
    /// The node it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<Arc<str>>,
    /// That node's label, when it has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_label: Option<Arc<str>>,
    /// Which visit of the node, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visit: Option<u32>,
    /// The branch of a fan-out it happened in; absent on the main line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<Arc<str>>,
    /// The agent session it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<Arc<str>>,
    /// The session that spawned that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_session_id: Option<Arc<str>>,
    /// By how many milliseconds the clock of [`Event::ts_ms`] was set forward (back, when negative) since the
    /// driver's event before this one; absent when it was not set. Time in which the machine slept counts too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_set_ms: Option<i64>,
    /// The sum of [`Entry::clock_set_ms`] since the run was created or forked, in milliseconds; absent while it
    /// is 0, and in events that no driver wrote. The time since then is that of [`Event::ts_ms`] without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_set_total_ms: Option<i64>,
}

impl Entry {
    /// An entry that concerns no node.
    pub fn new(body: EventBody) -> Self {
        Self {
            body,
            node_id: None,
            node_label: None,
            visit: None,
            branch: None,
            session_id: None,
            parent_session_id: None,
            clock_set_ms: None,
            clock_set_total_ms: None,
        }
    }
}

impl Entry {
    /// Validates the names that become path components: the node, its branch, the stage of a parent
    /// run, and a captured file. Prevents path traversal by a forged log.
    ///
    /// # Errors
    ///
    /// The invalid field and its value.
    pub fn check_names(&self) -> Result<(), (&'static str, String)> {
        let id = |field, id: Option<&Arc<str>>| match id {
            Some(id) if !is_node_id(id) => Err((field, id.to_string())),
            _ => Ok(()),
        };
        let branch = |branch: Option<&Arc<str>>| match branch {
            Some(branch) if !BranchPath::new(branch).is_valid() => {
                Err(("branch", branch.to_string()))
            }
            _ => Ok(()),
        };
        id("node_id", self.node_id.as_ref())?;
        branch(self.branch.as_ref())?;
        match &self.body {
            EventBody::RunCreated(created) => {
                let parent = created.parent.as_ref();
                id("parent.node_id", parent.map(|parent| &parent.node_id))?;
                branch(parent.and_then(|parent| parent.branch.as_ref()))
            }
            EventBody::ArtifactCaptured(kept) => {
                let is_part = |part: &str| !matches!(part, "" | "." | "..");
                let is_below = kept.file.split('/').all(is_part);
                if is_below { Ok(()) } else { Err(("file", kept.file.to_string())) }
            }
            _ => Ok(()),
        }
    }
}

/// An event of a stage, before the engine adds which stage it is. Its JSON is that of an [`Entry`] with the same fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Note {
    /// What happened.
    #[serde(flatten)]
    pub body: EventBody,
    /// The agent session it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<Arc<str>>,
    /// The session that spawned that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_session_id: Option<Arc<str>>,
}

impl From<EventBody> for Note {
    fn from(body: EventBody) -> Self {
        Self { body, session_id: None, parent_session_id: None }
    }
}

/// The published shape: what `--json` prints and what [`Event::to_json`] gives.
#[derive(Serialize)]
struct Published<'a> {
    id: String,
    ts: String,
    run_id: RunId,
    seq: u64,
    #[serde(flatten)]
    entry: &'a Entry,
}

impl Event {
    /// The event's id: the run's id and the place in its log, unique everywhere.
    pub fn id(&self) -> String {
        format!("{}-{}", self.run_id, self.seq)
    }

    /// The time as RFC 3339 text in UTC, with milliseconds.
    pub fn ts(&self) -> String {
        timestamp(self.ts_ms)
    }

    /// The published JSON object.
    #[expect(
        clippy::expect_used,
        clippy::missing_panics_doc,
        reason = "it cannot fail: every key is a string"
    )]
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self.published()).expect("an event has only string keys")
    }

    /// The published JSON object on one line.
    #[expect(
        clippy::expect_used,
        clippy::missing_panics_doc,
        reason = "it cannot fail: every key is a string"
    )]
    pub fn to_json_line(&self) -> String {
        serde_json::to_string(&self.published()).expect("an event has only string keys")
    }

    fn published(&self) -> Published<'_> {
        Published {
            id: self.id(),
            ts: self.ts(),
            run_id: self.run_id,
            seq: self.seq,
            entry: &self.entry,
        }
    }
}

/// Milliseconds since 1970 as RFC 3339 text in UTC; times outside the years −9999 to 9999 are
/// clamped to them.
pub fn timestamp(unix_ms: i64) -> String {
    let time = jiff::Timestamp::from_millisecond(unix_ms).unwrap_or(if unix_ms < 0 {
        jiff::Timestamp::MIN
    } else {
        jiff::Timestamp::MAX
    });
    format!("{time:.3}")
}

/// Where committed events go: a terminal, a pipe, a test's list.
pub trait EventSink: Send + Sync {
    /// Takes one event, after it is on stable storage.
    fn event(&self, event: &Event);
}

impl<F: Fn(&Event) + Send + Sync> EventSink for F {
    fn event(&self, event: &Event) {
        self(event);
    }
}

/// Passes each event to several sinks, in order.
impl EventSink for Vec<Arc<dyn EventSink>> {
    fn event(&self, event: &Event) {
        for sink in self {
            sink.event(event);
        }
    }
}

#[cfg(test)]
mod tests;
