//! The loop over a model: ask, validate the answer, ask for a correction, and again until the
//! answer is valid or the corrections are used up. It is the same for every backend.

use async_trait::async_trait;
use fabro_engine::{Stage, StageEnd};
use fabro_redact::Unredacted;
use fabro_types::Outcome;

use super::interpret::{Interpretation, Reply, invalid_outcome};

/// Who answers: a model behind an API, or another program.
#[async_trait]
pub(crate) trait Conversation: Send {
    /// Sends the next message and waits for its answer.
    async fn ask(&mut self, stage: &mut Stage, message: NextMessage) -> Result<Reply, NoReply>;

    /// How many corrections were sent, those before an interruption included.
    fn corrections(&self) -> u32;
}

/// The next message of a conversation.
pub(crate) enum NextMessage {
    /// The stage's request.
    Request(String),
    /// The same answer is asked for again.
    Correction {
        /// What is wrong.
        feedback: String,
        /// The invalid answer.
        answer: String,
    },
    /// None: the conversation resumes where it was interrupted.
    Resume,
}

/// Why there is no valid reply.
pub(crate) enum NoReply {
    /// The stage fails, or was canceled, with this outcome.
    Failed(Box<Outcome>),
    /// The stage pauses, or cannot be recorded.
    End(StageEnd),
}

impl From<StageEnd> for NoReply {
    fn from(end: StageEnd) -> Self {
        Self::End(end)
    }
}

/// A valid reply.
pub(crate) struct ValidReply {
    pub(crate) text: String,
    pub(crate) outcome: Outcome,
}

/// Asks until the reply is valid by `interpret`, with at most `max_corrections` corrections.
pub(crate) async fn ask_until_valid(
    conversation: &mut dyn Conversation,
    stage: &mut Stage,
    first: NextMessage,
    max_corrections: u32,
    interpret: &(dyn Fn(&Reply) -> Interpretation + Sync),
) -> Result<ValidReply, NoReply> {
    let mut message = first;
    let mut corrected: Option<Unredacted> = None;
    loop {
        let mut reply = conversation.ask(stage, message).await?;
        reply.is_unchanged =
            corrected.as_ref().is_some_and(|corrected| corrected.expose() == reply.checked_text());
        match interpret(&reply) {
            Interpretation::Valid { mut outcome, notices } => {
                for notice in notices {
                    // Nothing is lost when the driver is ending: the stage runs again.
                    let _ = stage.reporter.report(notice).await;
                }
                outcome.usage = Some(reply.usage);
                outcome.files_touched = reply.files_touched;
                return Ok(ValidReply { text: reply.text, outcome: *outcome });
            }
            Interpretation::Invalid { problem, .. }
                if conversation.corrections() >= max_corrections =>
            {
                let outcome = invalid_outcome(&stage.at.node, &reply, max_corrections, problem);
                return Err(NoReply::Failed(Box::new(outcome)));
            }
            Interpretation::Invalid { feedback, .. } => {
                corrected = Some(Unredacted::new(reply.checked_text()));
                message = NextMessage::Correction { feedback, answer: reply.text };
            }
        }
    }
}
