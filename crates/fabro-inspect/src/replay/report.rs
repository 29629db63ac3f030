use std::sync::Arc;

use fabro_types::RunId;
use serde::Serialize;

/// What a replay came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The run.
    pub run_id: RunId,
    /// How many recorded events were compared.
    pub compared: u64,
    /// The record has an end: the run succeeded or failed. Without one it is compared as far as it
    /// came.
    pub is_whole: bool,
    /// Where something else came out, in the order of the record.
    pub differences: Vec<Difference>,
    /// Stages that could not go on, for what they needed was not recorded.
    pub unanswered: Vec<String>,
}

impl Report {
    /// The same came out.
    pub fn is_same(&self) -> bool {
        self.differences.is_empty() && self.unanswered.is_empty()
    }
}

/// A place where something else came out.
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
    /// What was recorded; `None` when nothing was.
    pub recorded: Option<String>,
    /// What came out; `None` when nothing did.
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
    /// The way on from a stage.
    Edge,
    /// What a model was asked.
    Prompt,
    /// What a model answered.
    Answer,
    /// How a stage began: its handler, how much it is told, its thread.
    Start,
    /// How a stage or an attempt ended.
    Outcome,
    /// What a stage wrote into the context.
    Context,
    /// The question of a gate, or its answer.
    Gate,
    /// The branches of a fan-out, or how they ended.
    FanOut,
    /// How the run ended.
    Run,
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
        }
    }
}
