use std::collections::BTreeSet;
use std::sync::Arc;

use fabro_events::{ForEach, ShownText};
use fabro_types::{Fidelity, NodeKind, Usage};

/// A running stage.
#[derive(Clone, Debug, PartialEq)]
pub struct ActiveStage {
    /// The node.
    pub node: Arc<str>,
    /// The handler.
    pub handler: NodeKind,
    /// Which visit.
    pub visit: u32,
    /// Order of scheduling.
    pub rank: u32,
    /// When its first attempt began, in milliseconds since 1970, by a clock that was never
    /// [set](crate::RunState::clock_set_ms).
    pub started_ms: i64,
    /// The `undriven_ms` of the run when the stage started.
    pub(crate) undriven_ms: u64,
    /// When this attempt began, or its retry delay; same clock as `started_ms`.
    pub attempt_ms: i64,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// How many attempts there were before the run paused because no model or agent was available:
    /// after the resume the count for the retry limit starts at 0.
    pub attempts_before: u32,
    /// How long this attempt waits before it starts, in milliseconds.
    pub delay_ms: u64,
    /// How much the preamble tells.
    pub fidelity: Fidelity,
    /// The shared conversation.
    pub thread_id: Option<Arc<str>>,
    /// When the gate was asked, if it was, in milliseconds since 1970.
    pub gate_asked_ms: Option<i64>,
    /// The texts that the gate displays with its question; `None` until it is asked.
    pub gate_show: Option<Arc<[ShownText]>>,
    /// The answer to the gate, if there is one. A driver that died between the answer and the end
    /// of the stage leaves it for the next one.
    pub gate_answer: Option<RecordedAnswer>,
    /// The place in the log where this attempt began.
    pub since_seq: u64,
    /// The sequence number of the last rewind or retry before it started, or 0. The same node and
    /// visit may have run before it.
    pub rewound_seq: u64,
    /// A conversation with a model is recorded of this attempt.
    pub talked: bool,
    /// What that conversation cost so far.
    pub spent: Usage,
    /// Model turns that the node used before this visit.
    pub turns_before: u32,
    /// The artifacts of all its attempts, as paths below the run's directory.
    pub artifacts: BTreeSet<Arc<str>>,
    /// Of a fan-out that goes through a list: the list, from its first attempt on.
    pub for_each: Option<Arc<ForEach>>,
}

/// An answer to a gate as the log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedAnswer {
    /// The keys of the options, or `freeform`.
    pub selected: Arc<str>,
    /// The free text, which may be empty.
    pub text: Option<Arc<str>>,
}

impl ActiveStage {
    /// The first attempt of the first visit of a node.
    pub(crate) fn new(node: Arc<str>, handler: NodeKind) -> Self {
        Self {
            node,
            handler,
            visit: 1,
            rank: 1,
            started_ms: 0,
            undriven_ms: 0,
            attempt_ms: 0,
            attempt: 1,
            attempts_before: 0,
            delay_ms: 0,
            fidelity: Fidelity::default(),
            thread_id: None,
            gate_asked_ms: None,
            gate_show: None,
            gate_answer: None,
            since_seq: 0,
            rewound_seq: 0,
            talked: false,
            spent: Usage::default(),
            turns_before: 0,
            artifacts: BTreeSet::new(),
            for_each: None,
        }
    }

    /// Starts another attempt of the stage. `seq` is the sequence number of its event, and
    /// `steady_ms` the time of that event on the monotonic clock.
    pub(crate) fn retry(&mut self, attempt: u32, delay_ms: u64, (seq, steady_ms): (u64, i64)) {
        self.attempt_ms = steady_ms;
        self.attempt = attempt;
        self.delay_ms = delay_ms;
        self.gate_asked_ms = None;
        self.gate_show = None;
        self.gate_answer = None;
        self.since_seq = seq;
        self.talked = false;
        self.spent = Usage::default();
    }
}
