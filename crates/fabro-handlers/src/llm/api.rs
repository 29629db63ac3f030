//! The backend `api`: a session of a model behind a provider's API, with its thread and its tools.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use fabro_agent::{Parts, Session, SessionError, Steer, Transcript, TranscriptError};
use fabro_engine::{Message, ReadError, Stage, StageEnd};
use fabro_events::{Event, EventBody, PauseReason};
use fabro_types::{Failure, FailureClass, Fidelity, Outcome};

use super::exchange::{Conversation, NextMessage, NoReply};
use super::interpret::Reply;
use super::journal::StageJournal;
use super::prepare::StageRequest;
use super::settings::warn_of_unknown_price;
use super::{LlmHandler, canceled_with, cannot_record};
use crate::common::{is_damage, session_id, warn};
use crate::files::AgentStatus;
use crate::memory::read_recorded;

/// A session and what belongs to it.
pub(super) struct ApiConversation<'a> {
    handler: &'a LlmHandler,
    session: Session,
    journal: Arc<StageJournal>,
    status: AgentStatus,
    /// An answer had no known price.
    unpriced: Arc<AtomicBool>,
    is_interrupted: bool,
    /// The rest of a retry delay that an earlier driver began.
    retry_in: Duration,
}

impl<'a> ApiConversation<'a> {
    /// The conversation of the stage, with all that was recorded of it and of its thread.
    pub(super) async fn new(
        handler: &'a LlmHandler,
        stage: &Stage,
        request: &StageRequest,
        recorded: &[Event],
    ) -> Result<Self, StageEnd> {
        let journal = Arc::new(StageJournal::new(stage.reporter.clone()));
        let unpriced = Arc::new(AtomicBool::new(false));
        let context = request.tool_context.clone();
        let notes = Transcript::from_notes(&request.notes, read_recorded(stage));
        let notes = notes.map_err(|error| lost(&error))?;
        let own = transcript(stage, recorded)?;
        let mut taken = stage.turns.clone();
        let recorded_turns = notes.usage().requests().saturating_add(own.usage().requests());
        let count = taken.entry(Arc::clone(&stage.at.node)).or_default();
        *count = count.saturating_add(recorded_turns);
        let mut session = Session::new(Parts {
            id: session_id(stage).into(),
            parent: None,
            model: handler.model(stage, &taken),
            tools: request.tools.clone(),
            journal: Arc::clone(&journal) as _,
            settings: handler.settings(stage, request, &unpriced),
            context,
        });
        for transcript in handler.thread(stage).await? {
            session.recall(Arc::unwrap_or_clone(transcript));
        }
        session.restore(notes);
        let is_interrupted = !own.is_empty();
        session.restore(own);
        let since_ms = recorded.first().map(|first| first.ts_ms);
        let status = AgentStatus::before(Path::new(&stage.run.work_dir), since_ms);
        let retry_in = retry_in(stage, recorded);
        Ok(Self { handler, session, journal, status, unpriced, is_interrupted, retry_in })
    }

    /// Whether the conversation was begun before, and resumes now.
    pub(super) fn is_interrupted(&self) -> bool {
        self.is_interrupted
    }

    /// Warns when a price is not known, for the spending limit of the run does not count it.
    pub(super) async fn warn_of_unknown_price(&self, stage: &Stage) {
        if self.unpriced.load(Ordering::Relaxed) {
            let usage = self.session.usage();
            let model = usage.model.as_deref().unwrap_or("the model");
            warn_of_unknown_price(stage, &format!("the price of {model}")).await;
        }
    }

    fn no_reply(&self, error: SessionError) -> NoReply {
        let usage = self.session.usage();
        match error {
            SessionError::Canceled => NoReply::Failed(Box::new(canceled_with(usage))),
            // The conversation resumes when there is more to spend.
            SessionError::Budget => StageEnd::Suspended(PauseReason::Budget).into(),
            SessionError::Journal(error) => cannot_record(error).into(),
            error => NoReply::Failed(Box::new(Outcome {
                usage: Some(usage),
                files_touched: self.session.files_touched(),
                ..Outcome::failed(error.into())
            })),
        }
    }
}

#[async_trait]
impl Conversation for ApiConversation<'_> {
    /// Sends one message; meanwhile, messages to the agent from outside are delivered.
    async fn ask(&mut self, stage: &mut Stage, message: NextMessage) -> Result<Reply, NoReply> {
        let steering = self.session.steering();
        let cancel = stage.cancel.clone();
        let retry_in = std::mem::take(&mut self.retry_in);
        let session = &mut self.session;
        let answer = {
            let mut answering = std::pin::pin!(async {
                // Either way the session runs next, and reports a cancellation itself.
                let _ = tokio::time::timeout(retry_in, cancel.cancelled()).await;
                match message {
                    NextMessage::Request(request) => session.send(request, &cancel).await,
                    NextMessage::Correction { feedback, .. } => {
                        session.correct(feedback, &cancel).await
                    }
                    NextMessage::Resume => session.resume(&cancel).await,
                }
            });
            loop {
                tokio::select! {
                    biased;
                    // Messages that are there already are for the turn that begins.
                    Some((id, message)) = stage.messages.recv() => {
                        if let Message::Steer { text, .. } = message {
                            let ticket = self.journal.ticket(id);
                            let text = self.handler.agents.redactor.redact(&text);
                            // A session that has ended leaves the message to the next agent.
                            let steer = Steer::new(text, "inbox");
                            let _ = steering.send(Steer { ticket: Some(ticket), ..steer });
                        }
                    }
                    answer = &mut answering => break answer,
                }
            }
        };
        let answer = answer.map_err(|error| self.no_reply(error))?;
        match self.handler.agents.toolbox.check(Path::new(&stage.run.work_dir)) {
            Ok(renamed) => {
                for line in renamed.lines() {
                    warn(&stage.reporter, "control_files", line.to_owned()).await;
                }
            }
            Err(failure) => {
                return Err(NoReply::Failed(Box::new(Outcome {
                    usage: Some(answer.usage),
                    files_touched: answer.files_touched,
                    ..Outcome::failed(failure)
                })));
            }
        }
        let last_file = answer.last_file_touched.as_deref();
        Ok(Reply {
            files: self.handler.agent_files(stage, &self.status, last_file).await,
            text: answer.text,
            unredacted: answer.unredacted,
            is_cut_off: answer.is_cut_off,
            is_unchanged: false,
            usage: answer.usage,
            files_touched: answer.files_touched,
        })
    }

    fn corrections(&self) -> u32 {
        self.session.corrections()
    }
}

impl LlmHandler {
    /// The conversations of earlier stages that the stage's conversation continues.
    pub(super) async fn thread(&self, stage: &Stage) -> Result<Vec<Arc<Transcript>>, StageEnd> {
        let thread = stage.at.thread_id.as_ref().filter(|_| stage.at.fidelity == Fidelity::Full);
        let Some(thread) = thread else { return Ok(Vec::new()) };
        let same = stage.history.iter().filter(|it| it.thread_id.as_ref() == Some(thread));
        let mut parts = Vec::new();
        for record in same {
            let part = if let Some(part) = self.threads.get(stage.run_id, record.until_seq) {
                part
            } else {
                let events = stage.recorded_by(record).await?;
                Arc::new(transcript(stage, &events)?)
            };
            parts.push((record.until_seq, part));
        }
        self.threads.keep(stage.run_id, &parts);
        Ok(parts.into_iter().map(|(_, part)| part).collect())
    }
}

/// The rest of a retry delay, if the last recorded event is a failed request that is to be retried.
fn retry_in(stage: &Stage, recorded: &[Event]) -> Duration {
    let own = recorded.iter().rev().find(|event| event.entry.parent_session_id.is_none());
    let Some(Event { ts_ms, entry, .. }) = own else { return Duration::ZERO };
    let EventBody::AgentError { retry_in_ms: Some(wait_ms), .. } = entry.body else {
        return Duration::ZERO;
    };
    let due_ms = ts_ms.saturating_add_unsigned(wait_ms);
    let left_ms = u64::try_from(due_ms.saturating_sub(stage.started_ms)).unwrap_or_default();
    // Bounded, in case the clock was set back.
    Duration::from_millis(left_ms.min(wait_ms))
}

fn transcript(stage: &Stage, events: &[Event]) -> Result<Transcript, StageEnd> {
    Transcript::from_events(events, read_recorded(stage)).map_err(|error| lost(&error))
}

fn lost(error: &TranscriptError<ReadError>) -> StageEnd {
    let message = format!("the conversation is lost: {error}");
    Failure { damage: is_damage(error), ..Failure::new(FailureClass::Structural, message) }.into()
}
