use std::sync::Arc;

use fabro_types::RunId;
use serde::Serialize;

/// The result of a replay.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The run.
    pub run_id: RunId,
    /// How many recorded events were compared.
    pub compared: u64,
    /// The record has an end: the run succeeded or failed. Without one it is compared up to its last
    /// event.
    pub is_whole: bool,
    /// The run was forked or rewound, and its record is compared from there on.
    pub since_fork: bool,
    /// The two sides follow different revisions of the engine's rules ([`fabro_engine::RULES`]), so a difference may
    /// come from a changed rule.
    pub rules_changed: bool,
    /// The differences, in the order of the record.
    pub differences: Vec<Difference>,
    /// Stages that could not continue, because their input was not recorded.
    pub unanswered: Vec<String>,
}

impl Report {
    /// The replay is the same as the record.
    pub fn is_same(&self) -> bool {
        self.differences.is_empty() && self.unanswered.is_empty()
    }
}

/// A difference between record and replay.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Difference {
    /// What differs.
    pub aspect: Aspect,
    /// The branch of a fan-out; `None` on the main line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<Arc<str>>,
    /// The stage, as `NODE@VISIT`; `None` for the run itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// The event's place in the recorded log; `None` where the record has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The recorded text; `None` without one.
    pub recorded: Option<String>,
    /// The replayed text; `None` without one.
    pub replayed: Option<String>,
    /// Of texts of several lines: the lines that differ, as in a unified diff.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

/// What may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Aspect {
    /// Another event: another stage, one more, one less.
    Event,
    /// The edge after a stage.
    Edge,
    /// A prompt.
    Prompt,
    /// An answer of a model.
    Answer,
    /// The start of a stage: its handler, its fidelity, its thread.
    Start,
    /// The outcome of a stage or an attempt.
    Outcome,
    /// The context updates of a stage.
    Context,
    /// The question of a gate, or its answer.
    Gate,
    /// The branches of a fan-out, or how they ended.
    FanOut,
    /// How the run ended.
    Run,
    /// The inputs of the run.
    Inputs,
}

impl Aspect {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Edge => "edge",
            Self::Prompt => "prompt",
            Self::Answer => "answer",
            Self::Start => "start",
            Self::Outcome => "outcome",
            Self::Context => "context",
            Self::Gate => "gate",
            Self::FanOut => "fan_out",
            Self::Run => "run",
            Self::Inputs => "inputs",
        }
    }
}
