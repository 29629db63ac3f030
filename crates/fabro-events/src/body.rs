use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use fabro_types::{
    BlobRef, ContextPatch, Failure, FailureClass, Fidelity, NodeKind, Outcome, RunId, StageTrees,
    Status, Usage,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    Candidate, EdgeChoice, OverriddenCheck, ParentStage, RetryPoint, RunWorktree, Spent,
    StageFailure,
};

/// Every kind of event, with its properties.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", content = "properties")]
#[non_exhaustive]
pub enum EventBody {
    /// The run exists; nothing has been executed.
    #[serde(rename = "run.created")]
    RunCreated(Arc<CreatedRun>),
    /// A driver begins.
    #[serde(rename = "run.started")]
    RunStarted {},
    /// A driver resumes the run after a pause or a crash.
    #[serde(rename = "run.resumed")]
    RunResumed {
        /// A new spending limit in US dollars.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_cost: Option<f64>,
    },
    /// The run cannot continue for now.
    #[serde(rename = "run.paused")]
    RunPaused {
        /// What it waits for.
        reason: PauseReason,
        /// The same for people, with what to do.
        message: String,
        /// Gates that are open.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        gates: Vec<Arc<str>>,
        /// The stages for which no model or agent is available.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unavailable: Vec<StageFailure>,
        /// How many requests to models failed for them, by branch; the main line's under the empty
        /// name. A model script does not give these turns again.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        failed_turns: BTreeMap<Arc<str>, u32>,
        /// What these requests used, by branch. It is part of no stage's own usage.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        used: BTreeMap<Arc<str>, Usage>,
        /// What unfinished sub-workflows have spent. No stage usage contains it yet.
        #[serde(default, skip_serializing_if = "Spent::is_nothing")]
        sub_workflows: Spent,
    },
    /// The exit was reached.
    #[serde(rename = "run.completed")]
    RunCompleted {
        /// `succeeded`, or `partially_succeeded` with failures that nothing handled.
        status: Status,
        /// Model usage of the whole run.
        usage: Usage,
        /// How many values were offloaded to blobs.
        artifact_count: u64,
        /// The failures that nothing handled, the first cause first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unhandled: Vec<StageFailure>,
        /// The failed checks that a person has overridden at a gate.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        overridden: Vec<OverriddenCheck>,
    },
    /// The run ended without reaching its exit.
    #[serde(rename = "run.failed")]
    RunFailed {
        /// Why.
        failure: Failure,
        /// The stage failure that it began with; absent when no stage failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<Box<StageFailure>>,
        /// Model usage of the whole run.
        usage: Usage,
        /// The edges that its last stage could not leave by, in file order: where it ended because
        /// no edge could be followed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        candidates: Vec<Candidate>,
        /// The failed checks that a person has overridden at a gate.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        overridden: Vec<OverriddenCheck>,
    },
    /// The run was canceled.
    #[serde(rename = "run.canceled")]
    RunCanceled {
        /// Who or what asked for it.
        reason: String,
        /// Why the stage of a sub-workflow ended it; absent for every other cancellation.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by_parent: Option<EndedByParent>,
    },
    /// A stage begins its first attempt.
    #[serde(rename = "stage.started")]
    StageStarted {
        /// Order of scheduling; names the stage's directory.
        rank: u32,
        /// Which handler runs it.
        handler: NodeKind,
        /// How much the preamble contains.
        #[serde(default, skip_serializing_if = "is_compact")]
        fidelity: Fidelity,
        /// The shared conversation, under fidelity `full`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thread_id: Option<Arc<str>>,
    },
    /// An attempt failed and another will follow.
    #[serde(rename = "stage.retrying")]
    StageRetrying {
        /// The attempt that failed, from 1.
        attempt: u32,
        /// How long the next one waits, in milliseconds.
        delay_ms: u64,
        /// Why it failed.
        failure: Failure,
        /// What the failed attempt used.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// A stage ended and did not fail.
    #[serde(rename = "stage.completed")]
    StageCompleted(Arc<CompletedStage>),
    /// A stage ended as failed.
    #[serde(rename = "stage.failed")]
    StageFailed(Arc<CompletedStage>),
    /// The outgoing edge was chosen. The entry's node is where it starts.
    #[serde(rename = "edge.selected")]
    EdgeSelected(EdgeChoice),
    /// A `loop_restart` edge was taken: the context is fresh.
    #[serde(rename = "loop.restart")]
    LoopRestart {
        /// Where the run starts again.
        to: Arc<str>,
    },
    /// A fan-out begins.
    #[serde(rename = "parallel.started")]
    ParallelStarted {
        /// Its branches, in order.
        branches: Vec<PlannedBranch>,
        /// The node where they join; absent when they never do.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        join: Option<Arc<str>>,
        /// How many run at a time.
        max_parallel: u32,
        /// The list that it goes through, with a branch for each element.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        for_each: Option<Arc<ForEach>>,
        /// Each branch has a git worktree of its own.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        isolated: bool,
    },
    /// A branch begins. The entry's branch says which.
    #[serde(rename = "parallel.branch.started")]
    BranchStarted {},
    /// A branch ended.
    #[serde(rename = "parallel.branch.completed")]
    BranchCompleted {
        /// How.
        status: Status,
        /// Why, when it failed, or when it was canceled because its fan-out failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<Failure>,
        /// It was canceled early: the join no longer needed it, or the fan-out failed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        canceled: bool,
        /// The edges that its last stage could not leave by, in file order: where it ended because
        /// no edge could be followed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        candidates: Vec<Candidate>,
    },
    /// A fan-out ended.
    #[serde(rename = "parallel.completed")]
    ParallelCompleted {
        /// By the join policy.
        status: Status,
    },
    /// A person is asked.
    #[serde(rename = "gate.asked")]
    GateAsked {
        /// The question.
        question: String,
        /// How it is asked.
        question_type: QuestionType,
        /// What can be chosen, in the order of the edges.
        options: Vec<GateOption>,
        /// Free text is taken too.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        freeform: bool,
        /// The edge for free text, when there is one; its key is empty where only the text chooses it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text_option: Option<GateOption>,
        /// The option that is taken when the gate times out, by its target, key or label.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        default_choice: Option<Arc<str>>,
        /// When the gate gives up, in milliseconds since 1970.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline_ms: Option<i64>,
        /// The list element that it asks about, shortened to one line.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        item: Option<String>,
        /// The texts that are displayed with the question.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        show: Vec<ShownText>,
    },
    /// A person answered.
    #[serde(rename = "gate.answered")]
    GateAnswered {
        /// The accelerator, or `freeform`.
        selected: String,
        /// The label of the option, without its accelerator.
        label: String,
        /// The free text, when there was some.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// `terminal`, `answers`, `cli`, `http`, `page`, `mcp`, `auto`, `timeout`, ….
        source: String,
        /// Who answered; absent after a timeout and in older logs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<AnsweredBy>,
    },
    /// A context update was not allowed.
    #[serde(rename = "context.refused")]
    ContextRefused {
        /// The key.
        key: String,
        /// Why.
        reason: String,
    },
    /// The log before this was copied from, or rewound to, an earlier point.
    #[serde(rename = "checkpoint.forked")]
    CheckpointForked(Box<ForkPoint>),
    /// A message of an agent's conversation: what it was asked, told or shown, or its answer.
    #[serde(rename = "agent.message")]
    AgentMessage {
        /// `assistant`, `user` or `system`.
        role: String,
        /// The first 200 characters of its text.
        text: String,
        /// The whole of it: a message object, a plain text, or a reference to a blob of either.
        /// Absent where only the text was of interest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<Arc<Value>>,
        /// What an answer cost: its turn, and those before it that failed and are not recorded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        /// What the model is given besides the messages, from this one on. Absent where that is
        /// what it was given before, or nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        given: Option<Box<Given>>,
        /// Why a user message was sent. Absent in other messages, and in logs of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        purpose: Option<MessagePurpose>,
    },
    /// An agent's tool begins.
    #[serde(rename = "agent.tool.started")]
    AgentToolStarted {
        /// The call, as the answer before it names it.
        call_id: String,
        /// The tool.
        tool: String,
        /// The first 200 characters of its arguments.
        arguments: String,
    },
    /// An agent's tool ended.
    #[serde(rename = "agent.tool.completed")]
    AgentToolCompleted(Box<CompletedTool>),
    /// An agent's conversation is about to be shortened.
    #[serde(rename = "agent.compaction.started")]
    AgentCompactionStarted {
        /// What the conversation is estimated to take, in tokens.
        estimated_tokens: u64,
        /// What the model takes, in tokens; absent when it is not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        context_window_size: Option<u64>,
    },
    /// An agent's conversation was shortened.
    #[serde(rename = "agent.compaction.completed")]
    AgentCompactionCompleted(Box<CompletedCompaction>),
    /// An agent started another one.
    #[serde(rename = "agent.sub.spawned")]
    AgentSubSpawned {
        /// The new session.
        agent_id: String,
        /// What it is to do: the first 200 characters.
        task: String,
    },
    /// An agent that another one started has answered.
    #[serde(rename = "agent.sub.completed")]
    AgentSubCompleted {
        /// Its session.
        agent_id: String,
        /// The first 200 characters of its answer.
        text: String,
    },
    /// An agent that another one started has failed.
    #[serde(rename = "agent.sub.failed")]
    AgentSubFailed {
        /// Its session.
        agent_id: String,
        /// Why.
        message: String,
    },
    /// An agent that another one started was closed.
    #[serde(rename = "agent.sub.closed")]
    AgentSubClosed {
        /// Its session.
        agent_id: String,
    },
    /// A message was sent to a running agent.
    #[serde(rename = "agent.steered")]
    AgentSteered {
        /// What.
        text: String,
        /// `inbox`, or `loop_detection`, ….
        source: String,
    },
    /// A file that an attempt left was kept.
    #[serde(rename = "artifact.captured")]
    ArtifactCaptured(Box<CapturedArtifact>),
    /// A problem in an agent stage that continued.
    #[serde(rename = "agent.warning")]
    AgentWarning {
        /// A stable word: `directive`, `context_window`, ….
        kind: String,
        /// What happened.
        message: String,
        /// Of `context_window`: how full the model's window is.
        #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
        window: Option<WindowUse>,
    },
    /// Something failed inside an agent stage.
    #[serde(rename = "agent.error")]
    AgentError {
        /// Its class.
        class: FailureClass,
        /// What happened.
        message: String,
        /// What a failed request to a model used. Absent where no other request follows: what the last one
        /// used is part of the stage's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        /// The delay before the next request, in milliseconds: the provider's `Retry-After`, else a
        /// backoff. A driver that resumes the stage waits for the rest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_in_ms: Option<u64>,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if passes &T")]
fn is_compact(fidelity: &Fidelity) -> bool {
    *fidelity == Fidelity::Compact
}

/// A file that an attempt left and that was kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapturedArtifact {
    /// Its path, relative to the working directory.
    pub path: String,
    /// How many bytes it has.
    pub size: u64,
    /// The SHA-256 of its bytes, as hexadecimal digits.
    pub sha256: String,
    /// What it is, by its extension.
    pub media_type: String,
    /// The attempt that left it, from 1.
    pub attempt: u32,
    /// Where it is kept, below the directory of the run.
    pub file: Arc<str>,
}

/// How a run begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CreatedRun {
    /// The workflow's name.
    pub workflow: String,
    /// The goal, rendered; empty when there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub goal: String,
    /// The inputs.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub inputs: Map<String, Value>,
    /// Decides every random choice of the run.
    pub seed: u64,
    /// The working directory.
    pub work_dir: String,
    /// Source, files and settings, all that the run depends on.
    pub bundle: BlobRef,
    /// The context the run starts with, `graph.*` among it.
    #[serde(default, skip_serializing_if = "ContextPatch::is_empty")]
    pub context: ContextPatch,
    /// The spending limit in US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<f64>,
    /// The stage of another run that this is the sub-workflow of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentStage>,
    /// Nothing is executed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// The git worktree that the working directory is in, where the run has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree: Option<RunWorktree>,
    /// The revision of the engine's rules that the run started with; 0 in logs of earlier versions.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rules: u32,
}

/// Why the stage of a sub-workflow ended it before its own end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedByParent {
    /// Its stop condition holds.
    StopCondition,
    /// It took longer than `max_cycles` × `poll_interval`.
    TimeLimit,
    /// No model or agent is available in it, and its parent handles that as a failure.
    Unavailable,
}

/// Where a fork or a rewind took its state from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForkPoint {
    /// The run it was taken from; for a rewind, the run itself.
    pub from_run: RunId,
    /// The last event of that run that counts.
    pub from_seq: u64,
    /// True for a rewind: events of this log after `from_seq` and before this one do not count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_place: bool,
    /// The stage whose end it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<Arc<str>>,
    /// Changes made to the context there.
    #[serde(default, skip_serializing_if = "ContextPatch::is_empty")]
    pub set: ContextPatch,
    /// Set for a retry: a rewind that discards only some of the events after `from_seq`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPoint>,
}

/// What a pause waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PauseReason {
    /// An answer.
    Human,
    /// A larger budget.
    Budget,
    /// A model or an agent that can be asked: a valid key, a reachable provider, an installed program.
    Unavailable,
}

/// The end of a stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompletedStage {
    /// Order of scheduling; the same as when it started.
    pub rank: u32,
    /// How many attempts there were.
    pub attempts: u32,
    /// What it came to.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The prompt a model was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<BlobRef>,
    /// The script as it ran, where that differs from the node's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<Arc<str>>,
    /// The variables that the node gave its script, where a template filled them in.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// Why a user message of a conversation was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MessagePurpose {
    /// A task or a question.
    Request,
    /// To continue an answer that reached its token limit.
    Continuation,
    /// To ask again, because the answer did not match what its stage requires.
    Correction,
}

/// What a model is given besides the messages of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Given {
    /// The system prompt: a text, or a reference to a blob of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<Arc<Value>>,
    /// The definitions of its tools: a list of objects `{name, description, parameters}`, or a
    /// reference to a blob of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Arc<Value>>,
    /// What stands before the text of the message, with a blank line between them: a text, or a reference
    /// to a blob of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opening: Option<Arc<Value>>,
}

/// The end of a tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompletedTool {
    /// The call.
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// It failed, and the output says why.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// What the model gets to read: a text, or a reference to a blob of it.
    pub output: Arc<Value>,
    /// Files the call read, relative to the working directory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files_read: Vec<String>,
    /// Files the call wrote, changed or removed, relative to the working directory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files_modified: Vec<String>,
    /// What the agent has seen of files by the call, by their paths: the SHA-256 of the content, in
    /// hexadecimal digits; null of a file that it removed. For changing them after a resume.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files_seen: BTreeMap<String, Option<String>>,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
}

/// A conversation that was shortened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompletedCompaction {
    /// What made it necessary: `threshold`, `overflow` or `manual`.
    pub reason: String,
    /// Messages of the whole conversation before; in logs of earlier versions those that were
    /// replaced.
    pub original_turn_count: u64,
    /// The last messages, which stayed.
    pub preserved_turn_count: u64,
    /// What the summary is estimated to take, in tokens.
    pub summary_token_estimate: u64,
    /// Files whose use the summary tells.
    pub tracked_file_count: u64,
    /// Messages of the conversation before.
    #[serde(rename = "messagesBefore")]
    pub messages_before: u64,
    /// Messages of the conversation after.
    #[serde(rename = "messagesAfter")]
    pub messages_after: u64,
    /// What the conversation was estimated to take before, in tokens.
    #[serde(rename = "tokensBefore")]
    pub tokens_before: u64,
    /// The message that took the place of the old ones: its text, or a reference to a blob of it.
    /// Empty when none were replaced.
    pub summary: Arc<Value>,
    /// Results of tools among the messages that stayed, which were shortened for lack of room.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shortened_results: Vec<ShortenedResult>,
    /// What making the summary cost, where a model made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

impl CompletedCompaction {
    /// How many messages the summary replaced.
    pub fn replaced(&self) -> u64 {
        if self.summary.as_str() == Some("") {
            return 0;
        }
        // The summary is one of those after it.
        self.messages_before.saturating_add(1).saturating_sub(self.messages_after)
    }
}

/// A result of a tool of which only the beginning and the end stay in a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShortenedResult {
    /// The call that it is the result of.
    pub call_id: String,
    /// What stays of its beginning, in characters.
    pub head: u64,
    /// What stays of its end, in characters.
    pub tail: u64,
}

/// How full a model's window is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowUse {
    /// What the conversation is estimated to take, in tokens.
    pub estimated_tokens: u64,
    /// What the model takes, in tokens.
    pub context_window_size: u64,
    /// The first as a part of the second, in percent.
    pub usage_percent: u64,
}

impl EventBody {
    /// The commit of the git worktree of its line that has the files as a stage left them.
    pub fn git_sha(&self) -> Option<&str> {
        match self {
            Self::StageCompleted(end) | Self::StageFailed(end) => end.outcome.git_sha.as_deref(),
            _ => None,
        }
    }

    /// The files before and after a stage, in a run without a git worktree.
    pub fn trees(&self) -> Option<&StageTrees> {
        match self {
            Self::StageCompleted(end) | Self::StageFailed(end) => end.outcome.trees.as_ref(),
            _ => None,
        }
    }

    /// What the requests to a model used that this event records, each of them recorded once: an answer's, a failed
    /// one's, or that of a summary.
    pub fn request_usage(&self) -> Option<&Usage> {
        match self {
            Self::AgentMessage { usage, .. } | Self::AgentError { usage, .. } => usage.as_ref(),
            Self::AgentCompactionCompleted(done) => done.usage.as_ref(),
            _ => None,
        }
    }

    /// The stage failures that the end of a run, or its pause, names, the first cause first.
    pub fn causes(&self) -> &[StageFailure] {
        match self {
            Self::RunCompleted { unhandled, .. } => unhandled,
            Self::RunPaused { unavailable, .. } => unavailable,
            Self::RunFailed { cause: Some(cause), .. } => std::slice::from_ref(cause),
            _ => &[],
        }
    }

    /// The failed checks that a person has overridden, at the end of a run.
    pub fn overridden(&self) -> &[OverriddenCheck] {
        match self {
            Self::RunCompleted { overridden, .. } | Self::RunFailed { overridden, .. } => {
                overridden
            }
            _ => &[],
        }
    }

    /// Whether `fabro compact` may have appended it to the log of a run that has no driver. The state
    /// of such a run is in the last event that is not one of these.
    pub fn is_of_compaction(&self) -> bool {
        matches!(
            self,
            Self::AgentToolCompleted(_)
                | Self::AgentCompactionStarted { .. }
                | Self::AgentCompactionCompleted(_)
        )
    }
}

/// A branch of a fan-out before it starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedBranch {
    /// The branch's name in events.
    pub branch: Arc<str>,
    /// Its first node.
    pub target: Arc<str>,
    /// Which of the node's outgoing edges leads there, counted from 0 in file order; absent where
    /// the target tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge: Option<u32>,
}

/// The list that a fan-out goes through, as it was when the fan-out began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForEach {
    /// The context key that an element has in its branch.
    #[serde(rename = "as")]
    pub name: Arc<str>,
    /// The elements, in the order of the branches: of a long list, large ones are references to blobs.
    pub items: Vec<Arc<Value>>,
    /// The one element is assumed: this is a dry run, in which nothing makes the list.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub assumed: bool,
}

/// How a gate asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, strum::EnumString)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum QuestionType {
    /// Yes or no.
    YesNo,
    /// Continue or not.
    Confirmation,
    /// One of the options.
    #[default]
    MultipleChoice,
    /// Any number of the options.
    MultiSelect,
    /// Free text.
    Freeform,
}

/// A text that a gate displays with its question, truncated to a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownText {
    /// The stage that produced it, as `[BRANCH/]NODE@VISIT`; absent for a context value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// The context key; absent for the gate's own text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The text, truncated.
    pub text: String,
    /// The number of characters omitted at the end.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: usize,
    /// The full text, if it was truncated and is stored as a blob.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<BlobRef>,
}

fn is_zero<T: Default + PartialEq>(count: &T) -> bool {
    *count == T::default()
}

/// Who answered a gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnsweredBy {
    /// The name of a server token, of the user named by a trusted proxy, or of the operating system
    /// user.
    pub name: String,
    /// How the answer was given: `terminal`, `answers`, `cli`, `http`, `page`, `mcp`, `auto`, ….
    pub channel: String,
    /// The command-line process that gave the answer, and its parents: they reveal an answer given by
    /// an agent. Absent for other channels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
}

impl AnsweredBy {
    /// The answer of `name` through `channel`.
    pub fn new(name: impl Into<String>, channel: impl Into<String>) -> Self {
        Self { name: name.into(), channel: channel.into(), process: None }
    }

    /// Whether a person gave the answer, as opposed to a file or a setting.
    pub fn is_person(&self) -> bool {
        !matches!(self.channel.as_str(), "answers" | "auto")
    }
}

impl fmt::Display for AnsweredBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.channel)
    }
}

/// One way out of a gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateOption {
    /// The key that selects it: the label's accelerator, a free letter or a number.
    pub key: String,
    /// The label without its accelerator.
    pub label: String,
    /// The node it leads to.
    pub to: Arc<str>,
    /// Why it cannot be chosen: the condition of its edge does not hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
}
