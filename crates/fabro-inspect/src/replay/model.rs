//! A model that says what was recorded, and a person who does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use fabro_events::GateOption;
use fabro_gate::{AskError, Interviewer, Question, Reply as Answered, match_answer};
use fabro_llm::{Content, ErrorKind, Model, ModelError, Part, Reply, Request};
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use tokio::sync::Notify;

use crate::replay::record::{Attempt, GateAnswer, Key, Next};
use crate::replay::turnstile::Turnstile;

/// Answers for one attempt of one stage.
#[derive(Clone)]
pub(crate) struct Recorded {
    pub(crate) key: Key,
    pub(crate) attempt: Arc<Attempt>,
    pub(crate) turnstile: Arc<Turnstile>,
    /// Told when there is nothing more to answer.
    pub(crate) silent: Arc<Notify>,
    /// The record says that the model failed, or may have.
    pub(crate) may_fail: bool,
    /// Set when it did.
    pub(crate) has_failed: Arc<AtomicBool>,
}

impl Model for Recorded {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Part, ModelError>> {
        let own = self.clone();
        let answer = async move {
            match own.answer(request).await {
                Ok(reply) => parts(reply),
                Err(error) => vec![Err(error)],
            }
        };
        stream::once(answer).flat_map(stream::iter).boxed()
    }
}

impl Recorded {
    async fn answer(&self, request: Request) -> Result<Reply, ModelError> {
        let failed = || ModelError::new(ErrorKind::Script).with_message("nothing was recorded");
        match self.attempt.next(&request.messages) {
            Next::Answer { talk, seq } => {
                self.turnstile.pass(&self.key, seq).await;
                self.attempt.take(&talk).ok_or_else(failed)
            }
            Next::Nothing { is_sub: true, .. } => Err(failed()),
            Next::Nothing { was_asked: true, .. } if self.may_fail => {
                self.has_failed.store(true, Ordering::Relaxed);
                Err(failed())
            }
            Next::Nothing { .. } => {
                self.silent.notify_one();
                std::future::pending().await
            }
        }
    }
}

fn parts(reply: Reply) -> Vec<Result<Part, ModelError>> {
    let content = reply.content.into_iter().filter_map(|content| match content {
        Content::Text { text } => Some(Part::Text(text)),
        Content::Reasoning(thought) => Some(Part::Reasoning(thought)),
        Content::ToolCall(call) => Some(Part::ToolCall(call)),
        _ => None,
    });
    content.chain([Part::End { usage: reply.usage, stop: reply.stop }]).map(Ok).collect()
}

#[async_trait]
impl Interviewer for Recorded {
    async fn ask(&self, question: &Question) -> Result<Answered, AskError> {
        let answer = self.attempt.answer.as_ref();
        let answer = answer.and_then(|(seq, answer)| Some((*seq, choice(answer, question)?)));
        let Some((seq, text)) = answer else {
            self.silent.notify_one();
            return std::future::pending().await;
        };
        self.turnstile.pass(&self.key, seq).await;
        Ok(Answered::Answer { text, source: "replay" })
    }
}

/// What to answer so that the same is chosen; `None` where it cannot be chosen any more.
fn choice(answer: &GateAnswer, question: &Question) -> Option<String> {
    let same = |option: &&GateOption| option.label == answer.label;
    let labelled = question.options.iter().find(same);
    let both = |option: &&GateOption| same(option) && option.key == answer.key;
    let exact = question.options.iter().find(both);
    let text = match (&answer.text, exact.or(labelled)) {
        (Some(text), _) => text.clone(),
        (None, Some(option)) => option.key.clone(),
        // Several at once.
        (None, None) => answer.key.clone(),
    };
    let Question { options, freeform, question_type, .. } = question;
    match_answer(options, *freeform, *question_type, &text).is_ok().then_some(text)
}
