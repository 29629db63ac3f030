//! Keeps the conversation within the model's window.

use std::sync::Arc;

use async_trait::async_trait;
use fabro_compaction::{
    Compaction, CompactionOutcome, Moment, Overrides, Policy, Reason, Report, Summarize,
    SummarizeError, SummaryRequest, WindowUse, should_compact,
};
use fabro_events::{CompletedCompaction, EventBody, Note, ShortenedResult};
use fabro_llm::{Message, ModelError, Reply};
use fabro_types::{FailureClass, Usage};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::ledger::Ledger;
use crate::prefix::meter;
use crate::{JournalError, Parts, Record, Session, SessionError};

impl Session {
    /// Shortens the conversation now, where calls of an earlier process count as interrupted, with what `overrides` say in the place of the session's own
    /// settings. `None` when there is nothing old in it, or nothing to gain; a summary that fails
    /// is an `agent.error` note and changes nothing.
    ///
    /// # Errors
    ///
    /// [`SessionError::Canceled`] and [`SessionError::Journal`].
    pub async fn compact(
        &mut self,
        overrides: &Overrides,
        cancel: &CancellationToken,
    ) -> Result<Option<Report>, SessionError> {
        self.settle();
        let policy = self.parts.settings.compaction.with(overrides);
        self.shorten_with(&policy, Reason::Manual, cancel).await
    }

    /// Shortens the conversation when the policy says so.
    pub(crate) async fn make_room(
        &mut self,
        cancel: &CancellationToken,
    ) -> Result<(), SessionError> {
        let usage = self.window_use();
        self.warn_of(usage);
        let Some(reason) = self.is_due(usage) else { return Ok(()) };
        let mut policy = self.parts.settings.compaction;
        let wait = Some(self.shorten_from).filter(|from| self.turns < *from);
        if wait.is_some() {
            if self.is_stuck || !is_over(usage) {
                return Ok(());
            }
            // It has to fit, so that not every turn asks for a summary.
            policy.generate_summary = false;
        }
        let is_shorter = self.shorten_with(&policy, reason, cancel).await?.is_some();
        let fixed = meter(&self.parts.settings, &self.specs).tokens();
        let fixed = WindowUse { estimated_tokens: fixed, ..usage };
        if let Some(from) = wait {
            self.shorten_from = from;
        } else if is_shorter && self.is_due(fixed).is_some() {
            // It is always due: the system prompt and the tools alone reach the threshold.
            self.wait_for_more();
        }
        self.is_stuck = is_over(self.window_use());
        Ok(())
    }

    /// Why a conversation of this size is to be shortened before the next request.
    fn is_due(&self, usage: WindowUse) -> Option<Reason> {
        let policy = &self.parts.settings.compaction;
        // Results belong to the answer that asked for them, so "after an answer" is here, too.
        should_compact(policy, Moment::AfterAnswer, usage)
            .or_else(|_| should_compact(policy, Moment::BeforeCall, usage))
            .ok()
    }

    fn wait_for_more(&mut self) {
        // A turn is two messages, as a rule.
        let keep = u32::try_from(self.parts.settings.compaction.keep_recent).unwrap_or(u32::MAX);
        self.shorten_from = self.turns.saturating_add(keep.div_ceil(2).max(1));
    }

    /// Shortens the conversation; true when it is shorter now.
    pub(crate) async fn shorten(
        &mut self,
        reason: Reason,
        cancel: &CancellationToken,
    ) -> Result<bool, SessionError> {
        let policy = self.parts.settings.compaction;
        Ok(self.shorten_with(&policy, reason, cancel).await?.is_some())
    }

    pub(crate) fn window_use(&mut self) -> WindowUse {
        self.compactor.window_use(&self.messages)
    }

    /// Warns the user, once, that the window is nearly full.
    pub(crate) fn warn_of(&mut self, usage: WindowUse) {
        let Some(warning) = usage.warning() else {
            self.is_tight = false;
            return;
        };
        if std::mem::replace(&mut self.is_tight, true) {
            return;
        }
        let percent = warning.usage_percent;
        self.note(EventBody::AgentWarning {
            kind: "context_window".to_owned(),
            message: format!("the conversation takes {percent} % of the model's context window"),
            window: Some(fabro_events::WindowUse {
                estimated_tokens: warning.estimated_tokens,
                context_window_size: warning.context_window_size,
                usage_percent: warning.usage_percent,
            }),
        });
    }

    async fn shorten_with(
        &mut self,
        policy: &Policy,
        reason: Reason,
        cancel: &CancellationToken,
    ) -> Result<Option<Report>, SessionError> {
        let size = self.window_use();
        let parts = Arc::clone(&self.parts);
        let started = parts.note(EventBody::AgentCompactionStarted {
            estimated_tokens: size.estimated_tokens,
            context_window_size: size.context_window_size,
        });
        let mut record = std::mem::take(&mut self.pending);
        record.notes.push(started);
        let writer = SummaryWriter::new(&parts, &self.ledger, record);
        self.compactor.policy = *policy;
        let outcome = {
            let done = self.compactor.prepare(&self.messages, reason, Some(&writer));
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(SessionError::Canceled),
                outcome = done => outcome,
            }
        };
        let progress = writer.progress.into_inner();
        if let Some(error) = progress.lost {
            return Err(error.into());
        }
        if let Some(record) = progress.record {
            self.pending = record;
            if !matches!(outcome, Ok(CompactionOutcome::Compacted(_))) {
                // There was no request, so nothing has started.
                self.pending.notes.pop();
            }
        }
        self.pending.notes.extend(progress.failed);
        match outcome {
            Ok(CompactionOutcome::Compacted(done)) => {
                if let Some(error) = &done.report.summary_error {
                    let class = progress.class.unwrap_or(FailureClass::TransientInfra);
                    let message = format!("{error}; a summary without a model takes its place");
                    self.note(EventBody::AgentError {
                        class,
                        message,
                        usage: None,
                        retry_in_ms: None,
                    });
                }
                Ok(Some(self.shortened(&done, progress.usage).await?))
            }
            Ok(_) => {
                if let Some(usage) = progress.usage {
                    self.carried.add(&usage);
                    let message = "a summary would not be shorter than the messages it replaces: \
                        the conversation stays as it is";
                    self.warn("compaction", message);
                }
                // The same messages would have the same result.
                self.wait_for_more();
                Ok(None)
            }
            Err(error) => {
                self.carried.add(&progress.usage.unwrap_or_default());
                let class = progress.class.unwrap_or(FailureClass::TransientInfra);
                let message = error.to_string();
                self.note(EventBody::AgentError { class, message, usage: None, retry_in_ms: None });
                self.flush().await?;
                Ok(None)
            }
        }
    }

    async fn shortened(
        &mut self,
        done: &Compaction,
        usage: Option<Usage>,
    ) -> Result<Report, SessionError> {
        done.apply(self.messages.change(), &mut self.compactor.meter);
        self.is_tight = false;
        self.shorten_from = 0;
        let body = EventBody::AgentCompactionCompleted(Box::new(completed(done, usage)));
        self.note(body);
        self.flush().await?;
        Ok(done.report.clone())
    }
}

fn is_over(usage: WindowUse) -> bool {
    usage.context_window_size.is_some_and(|window| usage.estimated_tokens > window)
}

/// Requests summaries from the session's own model.
struct SummaryWriter<'a> {
    parts: &'a Parts,
    ledger: &'a Ledger,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    /// What is to be recorded before the request; `None` when it has been.
    record: Option<Record>,
    /// The usage of the request, if there was one.
    usage: Option<Usage>,
    /// Failed tries that are still to be recorded.
    failed: Vec<Note>,
    /// How the last failure is to be treated.
    class: Option<FailureClass>,
    /// The record could not be made.
    lost: Option<JournalError>,
}

impl<'a> SummaryWriter<'a> {
    fn new(parts: &'a Parts, ledger: &'a Ledger, record: Record) -> Self {
        let progress = Mutex::new(Progress { record: Some(record), ..Progress::default() });
        Self { parts, ledger, progress }
    }

    async fn ask(&self, request: SummaryRequest) -> Result<Reply, ModelError> {
        let messages = vec![
            Arc::new(Message::system(request.instructions)),
            Arc::new(Message::user(request.conversation)),
        ];
        let mut pending = Record::default();
        let mut request = self.parts.request(messages);
        request.streams = false;
        let answer =
            self.parts.ask(self.ledger, request, None, &mut pending, &Mutex::default()).await;
        self.progress.lock().failed = pending.notes;
        answer
    }
}

#[async_trait]
impl Summarize for SummaryWriter<'_> {
    async fn summarize(&self, request: SummaryRequest) -> Result<String, SummarizeError> {
        let record = self.progress.lock().record.take();
        if let Some(record) = record
            && let Err(error) = self.parts.journal.record(record).await
        {
            self.progress.lock().lost = Some(error.clone());
            return Err(error.into());
        }
        match self.ask(request).await {
            Ok(reply) => {
                self.progress.lock().usage = Some(reply.usage.clone());
                let text = with_stage(reply.text(), &self.parts.settings.opening);
                Ok(self.parts.settings.redactor.redact(&text).into_owned())
            }
            Err(error) => {
                let mut progress = self.progress.lock();
                progress.usage = Some((*error.usage).clone());
                progress.class = Some(error.class());
                Err(error.into())
            }
        }
    }
}

/// The summary with the stage that the first message named, where the model has not kept it.
fn with_stage(mut summary: String, opening: &str) -> String {
    let stage = opening.lines().next().unwrap_or_default();
    if !stage.is_empty() && !summary.trim().is_empty() && !summary.contains(stage) {
        summary.push_str("\n\n## Stage\n");
        summary.push_str(stage);
    }
    summary
}

fn completed(done: &Compaction, usage: Option<Usage>) -> CompletedCompaction {
    let Compaction { cuts, report, .. } = done;
    let shortened = cuts.iter().map(|cut| ShortenedResult {
        call_id: cut.id.clone(),
        head: cut.head as u64,
        tail: cut.tail as u64,
    });
    CompletedCompaction {
        reason: report.reason.as_str().to_owned(),
        original_turn_count: report.original_turn_count as u64,
        preserved_turn_count: report.preserved_turn_count as u64,
        summary_token_estimate: report.summary_token_estimate,
        tracked_file_count: report.tracked_file_count as u64,
        messages_before: report.messages_before as u64,
        messages_after: report.messages_after as u64,
        tokens_before: report.tokens_before,
        summary: Arc::new(report.summary.as_str().into()),
        shortened_results: shortened.collect(),
        usage,
    }
}
