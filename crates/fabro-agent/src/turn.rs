//! One turn of the model: the request and its answer.

use std::borrow::Cow;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use fabro_compaction::{Moment, should_compact};
use fabro_events::{EventBody, MessagePurpose};
use fabro_llm::{
    Content, ErrorKind, Message, ModelError, Part, Progress, Reasoning, Reply, Request, StopReason,
    ToolCall, ask,
};
use fabro_redact::Redactor;
use fabro_types::{FailureClass, Usage};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::ledger::Ledger;
use crate::message::{answer_note, preview, user_note};
use crate::session::{CONTINUE, MAX_CONTINUATIONS, NUDGE, NUDGE_SOURCE};
use crate::transcript::CUT_OFF_WARNING;
use crate::written_calls::{WRITTEN_CALL, is_written_call};
use crate::{LiveAnswer, Parts, Record, Session, SessionError};

impl Session {
    /// Asks for the next answer, which is whole and not empty.
    pub(crate) async fn ask(&mut self, cancel: &CancellationToken) -> Result<Reply, SessionError> {
        let mut was_empty = false;
        let mut retried = false;
        loop {
            let messages = self.messages.catch_up(self.system.as_ref());
            let mut request = self.parts.request(messages);
            request.tools = Arc::clone(&self.specs);
            request.output_schema.clone_from(&self.parts.settings.output_schema);
            let began = self.began.take();
            let so_far = Mutex::default();
            let answer = {
                let reply =
                    self.parts.ask(&self.ledger, request, began, &mut self.pending, &so_far);
                tokio::select! {
                    biased;
                    () = cancel.cancelled() => None,
                    answer = reply => Some(answer),
                }
            };
            let Some(answer) = answer else {
                self.record_canceled(so_far.into_inner()).await;
                return Err(SessionError::Canceled);
            };
            match answer {
                Ok(reply) if !is_empty(&reply) => return Ok(reply),
                Ok(reply) => {
                    if was_empty && self.parts.settings.takes_empty_answers {
                        return Ok(reply);
                    }
                    self.carried.add(&reply.usage);
                    if was_empty {
                        return Err(SessionError::Empty);
                    }
                    was_empty = true;
                    // The parts of an answer that was cut off stay together.
                    if self.partial_answer.is_empty() {
                        self.push_steering(NUDGE.to_owned(), NUDGE_SOURCE);
                    }
                }
                Err(error) => {
                    self.carried.add(&error.usage);
                    if error.kind != ErrorKind::ContextOverflow {
                        return Err(error.into());
                    }
                    let usage = self.window_use();
                    let policy = &self.parts.settings.compaction;
                    let reason = should_compact(policy, Moment::Overflow { retried }, usage).ok();
                    let Some(reason) = reason else { return Err(error.into()) };
                    if !self.shorten(reason, cancel).await? {
                        return Err(error.into());
                    }
                    retried = true;
                }
            }
        }
    }

    /// Records what a request that was canceled used, as far as its provider had said.
    async fn record_canceled(&mut self, so_far: Usage) {
        if so_far.is_nothing() {
            return;
        }
        let mut usage = Usage { failed_requests: 1, ..so_far };
        self.parts.count(&self.ledger, &mut usage);
        let message = "the request was canceled before its answer was complete".to_owned();
        let class = FailureClass::Canceled;
        let usage = Some(usage);
        self.note(EventBody::AgentError { class, message, usage, retry_in_ms: None });
        // The session ends as canceled in any case.
        let _ = self.flush().await;
    }

    /// Records an answer and puts it into the conversation; gives the calls it asks for.
    pub(crate) async fn take_reply(
        &mut self,
        reply: Reply,
    ) -> Result<Vec<RequestedCall>, SessionError> {
        let is_cut = reply.stop == StopReason::MaxTokens;
        let mut usage = std::mem::take(&mut self.carried);
        usage.add(&reply.usage);
        let mut message = reply.into_message();
        // A continued answer includes its earlier parts.
        let is_new = self.partial_answer.is_empty();
        let before = if is_new { Some(String::new()) } else { self.unredacted.take() };
        self.unredacted = before.map(|before| before + &message.text());
        let redactor = &self.parts.settings.redactor;
        self.redact_message(redactor, &mut message);
        let redactor = redactor.clone();
        self.make_unique(&mut message);
        if message.tool_calls().next().is_some() {
            // Some providers refuse messages with an empty text.
            message
                .content
                .retain(|it| !matches!(it, Content::Text { text } if text.trim().is_empty()));
        }
        let calls: Vec<_> =
            tool_calls(&mut message).map(|call| request_call(call, &redactor, is_cut)).collect();
        let given = self.given.take();
        let is_written_call = calls.is_empty() && is_written_call(&message.text(), &self.specs);
        self.note(answer_note(&message, usage, given));
        self.push(Arc::new(message));
        if is_written_call {
            self.warn("tools", WRITTEN_CALL);
        }
        self.turns += 1;
        self.count_cuts(is_cut, &calls)?;
        for RequestedCall { call, .. } in &calls {
            self.note(EventBody::AgentToolStarted {
                call_id: call.id.clone(),
                tool: call.name.clone(),
                arguments: preview(&call.arguments.to_string()),
            });
        }
        let usage = self.window_use();
        self.warn_of(usage);
        self.flush().await?;
        Ok(calls)
    }

    /// Continues answers that were cut off, a limited number of times in a row.
    fn count_cuts(&mut self, is_cut: bool, calls: &[RequestedCall]) -> Result<(), SessionError> {
        let is_cut = is_cut && (calls.is_empty() || calls.iter().any(|call| call.is_cut));
        if !is_cut {
            self.cuts = 0;
            return Ok(());
        }
        self.cuts += 1;
        let is_last = self.cuts > MAX_CONTINUATIONS;
        match (calls.is_empty(), is_last) {
            (true, false) => {
                self.note(user_note(CONTINUE, MessagePurpose::Continuation, None));
                let cut = self.messages.last().map(|last| last.0.text()).unwrap_or_default();
                self.partial_answer.push_str(&cut);
                self.messages.push(Arc::new(Message::user(CONTINUE)));
            }
            (true, true) => {
                self.is_cut_off = true;
                let message = "the answer is still cut off after being continued 3 times: raise \
                    max_tokens, or ask for less";
                self.warn(CUT_OFF_WARNING, message);
            }
            (false, false) => {}
            (false, true) => return Err(SessionError::CutOff { count: self.cuts }),
        }
        Ok(())
    }

    /// Redacts text, and names that the model invents. Signed reasoning stays: its provider requires
    /// it back unchanged.
    fn redact_message(&self, redactor: &Redactor, message: &mut Message) {
        let redact = |text: &mut String| {
            if let Cow::Owned(redacted) = redactor.redact(text) {
                *text = redacted;
            }
        };
        for content in &mut message.content {
            match content {
                Content::Text { text } => redact(text),
                Content::Reasoning(Reasoning { text, signature: None, fields, .. }) => {
                    redact(text);
                    if let Some(fields) = fields {
                        redactor.redact_value(fields);
                    }
                }
                Content::ToolCall(call) => {
                    redact(&mut call.id);
                    if self.tools.get(&call.name).is_none() {
                        redact(&mut call.name);
                    }
                }
                _ => {}
            }
        }
    }

    /// Gives calls that have no id of their own a new one: not all models make them different.
    #[expect(clippy::expect_used, reason = "one number more than there are ids is enough")]
    fn make_unique(&mut self, message: &mut Message) {
        for call in tool_calls(message) {
            if call.id.is_empty() || self.ids.contains(&call.id) {
                let name = if call.id.is_empty() { "call" } else { &call.id };
                let mut new = (self.ids.len()..).map(|number| format!("{name}-{number}"));
                call.id = new.find(|id| !self.ids.contains(id)).expect("numbers do not end");
            }
            self.ids.insert(call.id.clone());
        }
    }
}

/// A call that the model asks for.
#[derive(Clone, Debug)]
pub(crate) struct RequestedCall {
    /// As it is recorded, and as later requests show it: redacted.
    pub(crate) call: ToolCall,
    /// Its arguments before redaction, where they differ: those that the tool gets.
    pub(crate) unredacted: Option<Value>,
    /// The answer ended in the middle of its arguments.
    pub(crate) is_cut: bool,
}

impl Parts {
    /// A request with these messages, as the settings say.
    pub(crate) fn request(&self, messages: impl Into<Arc<Vec<Arc<Message>>>>) -> Request {
        let settings = &self.settings;
        let mut request = Request::new(messages);
        request.model.clone_from(&settings.model);
        request.provider.clone_from(&settings.provider);
        request.reasoning_effort.clone_from(&settings.reasoning_effort);
        request.speed.clone_from(&settings.speed);
        request.max_tokens = settings.max_tokens;
        request.cache_key.clone_from(&settings.cache_key);
        request
    }

    /// Sends a request, with retries and failover. The usage is counted and priced. A failed try that another
    /// one follows is recorded at once, with its usage, after what is pending: the retry may be a minute away.
    /// The usage of the answer, and of the error, is without those. `so_far` is what the request in flight has
    /// used, as far as its provider has said.
    pub(crate) async fn ask(
        &self,
        ledger: &Ledger,
        request: Request,
        began: Option<oneshot::Sender<()>>,
        pending: &mut Record,
        so_far: &Mutex<Usage>,
    ) -> Result<Reply, ModelError> {
        let settings = &self.settings;
        let redact = |text: &str| settings.redactor.redact(text).into_owned();
        let price = |usage: &mut Usage| self.count(ledger, usage);
        // What the recorded tries used, before it was priced.
        let mut recorded = Usage::default();
        let (failures, mut failed) = mpsc::unbounded_channel();
        let mut report = |error: &ModelError, next: String, wait: Option<Duration>| {
            // The next step comes first, as a line for people may be cut.
            let message = redact(&format!("{next}: {error}"));
            let mut usage = (*error.usage).clone();
            recorded.add(&usage);
            price(&mut usage);
            let usage = Some(usage).filter(|usage| !usage.is_nothing());
            // The other end outlives this one.
            let class = error.class();
            let retry_in_ms = wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
            let _ = failures.send(EventBody::AgentError { class, message, usage, retry_in_ms });
        };
        let live = |answer: LiveAnswer<'_>| {
            if let Some(live) = &settings.live {
                live(answer);
            }
        };
        let mut watch = |progress: Progress<'_>| {
            self.journal.touch();
            match progress {
                Progress::Part(Part::Text(text)) => return live(LiveAnswer::Text(text)),
                Progress::Part(Part::Usage(usage)) => {
                    so_far.lock().clone_from(usage);
                    return;
                }
                Progress::Part(Part::Warning(_)) => {}
                Progress::Part(_) => return,
                _ => {
                    // The error has it.
                    *so_far.lock() = Usage::default();
                    live(LiveAnswer::End);
                }
            }
            match progress {
                Progress::Retrying { error, wait, .. } => {
                    let next = format!("asking again in {} s", wait.as_secs_f64().ceil());
                    report(error, next, Some(wait));
                }
                Progress::Failover { to, error } => {
                    report(error, format!("asking {to} instead"), None);
                }
                Progress::Part(Part::Warning(message)) if ledger.is_new_warning(message) => {
                    // As above.
                    let _ = failures.send(EventBody::AgentWarning {
                        kind: "model".to_owned(),
                        message: message.clone(),
                        window: None,
                    });
                }
                _ => {}
            }
        };
        let answer = {
            let reply = pin!(ask(&*self.model, request, &settings.asking, &mut watch));
            self.record_tries(reply, began, &mut failed, pending).await
        };
        live(LiveAnswer::End);
        match answer {
            Ok(mut reply) => {
                reply.usage = reply.usage.without(&recorded);
                price(&mut reply.usage);
                Ok(reply)
            }
            Err(mut error) => {
                *error.usage = error.usage.without(&recorded);
                price(&mut error.usage);
                error.message = redact(&error.message);
                Err(error)
            }
        }
    }

    /// Prices what a request used, and adds it to the session's usage.
    fn count(&self, ledger: &Ledger, usage: &mut Usage) {
        let settings = &self.settings;
        usage.model = usage.model.take().or_else(|| settings.model.clone());
        let redact = |name: String| settings.redactor.redact(&name).into_owned();
        usage.response_model = usage.response_model.take().map(redact);
        if let Some(price) = &settings.price {
            price(usage);
        }
        ledger.add_usage(usage);
    }

    async fn record_tries(
        &self,
        mut reply: Pin<&mut impl Future<Output = Result<Reply, ModelError>>>,
        mut began: Option<oneshot::Sender<()>>,
        tries: &mut UnboundedReceiver<EventBody>,
        pending: &mut Record,
    ) -> Result<Reply, ModelError> {
        let answer = loop {
            tokio::select! {
                biased;
                Some(body) = tries.recv() => {
                    pending.notes.push(self.note(body));
                    let record = std::mem::take(pending);
                    if self.journal.record(record.clone()).await.is_err() {
                        // The record of the answer will fail as well, and is looked at.
                        *pending = record;
                    }
                }
                answer = &mut reply => break answer,
                // It was polled, so the model has the request.
                () = std::future::ready(()), if began.is_some() => {
                    if let Some(began) = began.take() {
                        // The session that began this one may have ended.
                        let _ = began.send(());
                    }
                }
            }
        };
        while let Ok(body) = tries.try_recv() {
            pending.notes.push(self.note(body));
        }
        answer
    }
}

fn tool_calls(message: &mut Message) -> impl Iterator<Item = &mut ToolCall> {
    message.content.iter_mut().filter_map(|content| match content {
        Content::ToolCall(call) => Some(call),
        _ => None,
    })
}

/// The call, with its arguments redacted.
fn request_call(call: &mut ToolCall, redactor: &Redactor, is_cut: bool) -> RequestedCall {
    let is_cut = is_cut && !call.arguments.is_object();
    let arguments = call.arguments.clone();
    redactor.redact_value(&mut call.arguments);
    let unredacted = (arguments != call.arguments).then_some(arguments);
    RequestedCall { call: call.clone(), unredacted, is_cut }
}

/// Whether an answer has neither text nor calls.
fn is_empty(reply: &Reply) -> bool {
    reply.content.iter().all(|content| match content {
        Content::Text { text } => text.trim().is_empty(),
        Content::ToolCall(_) => false,
        _ => true,
    })
}
