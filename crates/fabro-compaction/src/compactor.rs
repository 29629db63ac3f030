use fabro_tokens::{CharsPerFour, CountTokens};
use thiserror::Error;

use crate::draft::Draft;
use crate::request::Request;
use crate::{
    CompactionOutcome, Files, Meter, Moment, NotDue, Policy, Reason, Report, Summarize,
    SummarizeError, Turn, WindowUse, should_compact,
};

/// Keeps a conversation below the window of its model.
///
/// One compactor belongs to one conversation: it counts each message once.
#[derive(Clone, Debug)]
pub struct Compactor<C = CharsPerFour> {
    /// When and how to compact.
    pub policy: Policy,
    /// The model's context window, in tokens; `None` when it is not known.
    pub window: Option<u64>,
    /// The files used so far, for the section File Operations. Those that an earlier summary lists
    /// are added.
    pub files: Files,
    /// The size of the conversation. A system prompt that is none of the messages is set here.
    pub meter: Meter<C>,
}

impl Compactor {
    /// A compactor that estimates a token for every four characters.
    pub fn new(policy: Policy, window: impl Into<Option<u64>>) -> Self {
        Self::with_counter(policy, window, CharsPerFour)
    }
}

impl<C: CountTokens> Compactor<C> {
    /// A compactor with a token counter of the caller's.
    pub fn with_counter(policy: Policy, window: impl Into<Option<u64>>, counter: C) -> Self {
        let meter = Meter::new(counter);
        Self { policy, window: window.into(), files: Files::default(), meter }
    }

    /// How full the window is with these messages.
    pub fn window_use<T: Turn>(&mut self, messages: &[T]) -> WindowUse {
        self.meter.track(messages);
        WindowUse { estimated_tokens: self.meter.tokens(), context_window_size: self.window }
    }

    /// Compacts the messages when the policy requires it at this moment: the old ones become one
    /// message with a summary, written by the model or, without one, deterministically. Unless the
    /// result is [`CompactionResult::Compacted`], nothing has changed.
    ///
    /// # Errors
    ///
    /// When the model fails, or its summary is empty, and the moment is not an overflow. Nothing
    /// has changed then.
    pub async fn compact<T: Turn + Sync>(
        &mut self,
        messages: &mut Vec<T>,
        moment: Moment,
        model: Option<&dyn Summarize>,
    ) -> Result<CompactionResult, CompactError> {
        let usage = self.window_use(messages);
        let reason = match should_compact(&self.policy, moment, usage) {
            Ok(reason) => reason,
            Err(why) => return Ok(CompactionResult::NotDue(why)),
        };
        Ok(match self.prepare(messages, reason, model).await? {
            CompactionOutcome::Compacted(compaction) => {
                compaction.apply(messages, &mut self.meter);
                CompactionResult::Compacted(compaction.report)
            }
            CompactionOutcome::NothingOld => CompactionResult::NothingOld,
            CompactionOutcome::NotSmaller { tokens_before, tokens_after } => {
                CompactionResult::NotSmaller { tokens_before, tokens_after }
            }
        })
    }

    /// The first half of [`compact`](Self::compact), without the threshold: plan and summary. The
    /// messages change with [`Compaction::apply`](crate::Compaction::apply), so a caller can record the report before.
    ///
    /// The new message is the [`SUMMARY_TAG`](crate::SUMMARY_TAG), the summary, and a section File
    /// Operations with the files of the compactor and of earlier summaries. That section is never
    /// the model's: one in its reply is removed. A goal that is missing in its reply is taken from
    /// the conversation.
    ///
    /// After an overflow a model that fails, or whose summary is not smaller than what it replaces,
    /// is not the end: the summary is deterministic then, and [`Report::summary_error`] says why.
    ///
    /// # Errors
    ///
    /// When the model fails, or its summary is empty, and the reason is not an overflow.
    pub async fn prepare<T: Turn + Sync>(
        &mut self,
        messages: &[T],
        reason: Reason,
        model: Option<&dyn Summarize>,
    ) -> Result<CompactionOutcome, CompactError> {
        self.meter.track(messages);
        let request = Request::new(&self.policy, reason, self.window, &self.files);
        let draft = match Draft::new(messages, &self.meter, &request) {
            Ok(draft) => draft,
            Err(outcome) => return Ok(*outcome),
        };
        let Some(model) = model.filter(|_| self.policy.generate_summary) else {
            return Ok(draft.finish_without_model(&self.meter, None));
        };
        let reply = model.summarize(draft.summary_request(&self.meter)).await;
        let summary = match reply {
            Ok(reply) => draft.clean(&reply).ok_or(CompactError::EmptySummary),
            Err(error) => Err(CompactError::Summarize(error)),
        };
        match summary {
            Ok(summary) => match draft.finish(&summary, &self.meter) {
                CompactionOutcome::NotSmaller { .. } if reason == Reason::Overflow => {
                    let why = "the model's summary is not smaller than the messages it replaces";
                    Ok(draft.finish_without_model(&self.meter, Some(why.to_owned())))
                }
                outcome => Ok(outcome),
            },
            // The call after an overflow is lost unless the conversation becomes smaller.
            Err(error) if reason == Reason::Overflow => {
                Ok(draft.finish_without_model(&self.meter, Some(error.to_string())))
            }
            Err(error) => Err(error),
        }
    }
}

/// The result of [`Compactor::compact`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompactionResult {
    /// The conversation has become smaller.
    Compacted(Report),
    /// The policy does not compact at this moment.
    NotDue(NotDue),
    /// As [`CompactionOutcome::NothingOld`].
    NothingOld,
    /// As [`CompactionOutcome::NotSmaller`].
    NotSmaller {
        /// What the conversation takes, in tokens.
        tokens_before: u64,
        /// What it would take with the summary, in tokens.
        tokens_after: u64,
    },
}

impl CompactionResult {
    /// The report, when the conversation has become smaller.
    pub fn report(self) -> Option<Report> {
        match self {
            Self::Compacted(report) => Some(report),
            Self::NotDue(_) | Self::NothingOld | Self::NotSmaller { .. } => None,
        }
    }
}

/// Why a compaction failed. The conversation is unchanged; a retry may succeed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CompactError {
    /// The model call failed.
    #[error("the summary call failed: {0}")]
    Summarize(#[source] SummarizeError),
    /// The model's reply is empty.
    #[error("the summary call failed: the model's summary is empty")]
    EmptySummary,
}
