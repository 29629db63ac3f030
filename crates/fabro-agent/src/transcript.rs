use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use fabro_compaction::Files;
use fabro_events::{
    CompletedCompaction, CompletedTool, Event, EventBody, Given, MessagePurpose, Note,
    ShortenedResult,
};
use fabro_llm::{Content, Message, Role, ToolCall};
use fabro_types::{BlobRef, Usage};
use serde::Deserialize;
use serde_json::Value;

use crate::ledger::Totals;
use crate::message::shorten_results;
use crate::prefix::opened;
use crate::repeats::{self, RepeatAction, Repeats};
use crate::subagent_calls::{self, SPAWN, send_arguments};

/// The kind of the warning that an answer is still cut off after all continuations; it follows the
/// answer in the record.
pub const CUT_OFF_WARNING: &str = "cut_off";

/// The result of a call that an answer that was cut off ends in.
pub(crate) const CUT_OFF: &str = "[cut off: the answer reached its limit of tokens before the arguments of \
    this call were whole, so it did not run. Make the call again, with less in it.]";

/// What was recorded of a conversation before.
#[derive(Clone, Debug, Default)]
pub struct Transcript {
    /// What became of messages that were there before the first of these.
    pub(crate) earlier: Earlier,
    /// Results among those messages that were shortened.
    pub(crate) shortened_before: Vec<ShortenedResult>,
    pub(crate) messages: Vec<Arc<Message>>,
    /// The parts of the last answer that were cut off and continued.
    pub(crate) partial_answer: String,
    /// How many answers in a row were cut off, the last one included.
    pub(crate) cuts: u32,
    /// The last answer is still cut off.
    pub(crate) is_cut_off: bool,
    /// The ids of all calls, those that a compaction dropped included.
    pub(crate) ids: HashSet<String>,
    /// The calls of the last answer, while not all their results are known.
    pub(crate) open: Option<OpenCalls>,
    /// What loop detection does about the last turn, unless it was done.
    pub(crate) due: RepeatAction,
    pub(crate) repeats: Repeats,
    pub(crate) totals: Totals,
    pub(crate) files: Files,
    /// What the agent has seen of files.
    pub(crate) files_seen: BTreeMap<String, Option<String>>,
    pub(crate) turns: u32,
    pub(crate) corrections: u32,
    /// What the model got besides the messages, as it was recorded last.
    pub(crate) given: Option<Box<Given>>,
    /// How many agents were begun.
    pub(crate) spawned: u32,
    /// Those that were not closed.
    pub(crate) subagents: BTreeMap<String, OpenSubagent>,
}

/// A subagent of the session that was not closed.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenSubagent {
    /// The arguments of the call that began it.
    pub(crate) spawn: Value,
    pub(crate) transcript: Transcript,
    /// How it ended, if it did and got no message since: an answer, or why there is none.
    pub(crate) end: Option<Result<(), String>>,
    /// The messages that were sent to it.
    pub(crate) inputs: Vec<String>,
    /// How many of those it got.
    pub(crate) delivered: usize,
}

/// An event that is read: of the session, or of one of its subagents.
#[derive(Clone, Copy)]
struct RecordedEvent<'a> {
    body: &'a EventBody,
    session: Option<&'a str>,
    is_own: bool,
}

impl<'a> RecordedEvent<'a> {
    fn new(body: &'a EventBody, session: Option<&'a Arc<str>>, parent: Option<&Arc<str>>) -> Self {
        Self { body, session: session.map(|it| &**it), is_own: parent.is_none() }
    }

    /// The event from the view of this session.
    fn as_read_by(self, session: &str) -> Self {
        Self { is_own: self.session == Some(session), ..self }
    }
}

type ReadBlob<'a, E> = &'a mut dyn FnMut(&BlobRef) -> Result<Value, E>;

/// What a compaction left of the messages before a transcript.
#[derive(Clone, Debug, Default)]
pub(crate) enum Earlier {
    /// They are as they were.
    #[default]
    Whole,
    /// A summary took the place of all but the last ones.
    Last { summary: Arc<Message>, count: usize },
    /// None of them is left.
    Gone,
}

/// Calls of which not all results are known.
#[derive(Clone, Debug)]
pub(crate) struct OpenCalls {
    pub(crate) calls: Vec<ToolCall>,
    pub(crate) results: BTreeMap<String, (String, bool)>,
}

/// Why a conversation cannot be read back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TranscriptError<E: std::error::Error + 'static> {
    /// A blob that it names cannot be read.
    #[error("the conversation names a value that cannot be read: {source}")]
    Blob {
        /// Why.
        source: E,
    },
    /// A recorded message is not a message.
    #[error("the conversation has a record that is not a message: {reason}")]
    Message {
        /// Why.
        reason: String,
    },
}

impl Transcript {
    /// Reads a conversation back from the events of a stage, oldest first; `read_blob` gets the
    /// value that a reference stands for. Conversations of agents that this one began, and that were
    /// not closed, are read with it.
    ///
    /// # Errors
    ///
    /// A blob cannot be read, or a record is not a message.
    pub fn from_events<'a, E: std::error::Error + 'static>(
        events: impl IntoIterator<Item = &'a Event>,
        mut read_blob: impl FnMut(&BlobRef) -> Result<Value, E>,
    ) -> Result<Self, TranscriptError<E>> {
        let notes = events.into_iter().map(|Event { entry, .. }| {
            RecordedEvent::new(
                &entry.body,
                entry.session_id.as_ref(),
                entry.parent_session_id.as_ref(),
            )
        });
        Self::read(notes, &mut read_blob)
    }

    /// The same from notes that a journal was given.
    ///
    /// # Errors
    ///
    /// As [`from_events`](Self::from_events).
    pub fn from_notes<'a, E: std::error::Error + 'static>(
        notes: impl IntoIterator<Item = &'a Note>,
        mut read_blob: impl FnMut(&BlobRef) -> Result<Value, E>,
    ) -> Result<Self, TranscriptError<E>> {
        let notes = notes.into_iter().map(|note| {
            RecordedEvent::new(
                &note.body,
                note.session_id.as_ref(),
                note.parent_session_id.as_ref(),
            )
        });
        Self::read(notes, &mut read_blob)
    }

    /// Whether it has no messages.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty() && matches!(self.earlier, Earlier::Whole)
    }

    /// What the conversation has used, agents that it began included.
    pub fn usage(&self) -> &Usage {
        &self.totals.usage
    }

    /// The system prompt that was recorded last: a text, or a reference to a blob of it.
    pub fn system(&self) -> Option<&Value> {
        self.given.as_ref()?.system.as_deref()
    }

    fn read<'e, E: std::error::Error + 'static>(
        all: impl Iterator<Item = RecordedEvent<'e>>,
        read_blob: ReadBlob<'_, E>,
    ) -> Result<Self, TranscriptError<E>> {
        let mut reader = Reader {
            transcript: Self::default(),
            follows_warning: false,
            of_subagents: BTreeMap::new(),
            read_blob,
        };
        for event in all {
            if event.is_own {
                reader.read_own(event.body)?;
            } else {
                reader.read_of_subagent(event);
            }
        }
        let Reader { mut transcript, mut of_subagents, read_blob, .. } = reader;
        for (id, subagent) in &mut transcript.subagents {
            let events = of_subagents.remove(id.as_str()).unwrap_or_default();
            let all: Box<dyn Iterator<Item = RecordedEvent<'_>>> =
                Box::new(events.into_iter().map(|event| event.as_read_by(id)));
            // What it used and touched counts as the first one's.
            subagent.transcript = Self { totals: Totals::default(), ..Self::read(all, read_blob)? };
        }
        Ok(transcript)
    }

    fn push(&mut self, message: Message) {
        self.is_cut_off = false;
        if message.role != Role::Assistant {
            self.partial_answer.clear();
        }
        self.messages.push(Arc::new(message));
    }

    fn user(&mut self, text: String) {
        self.settle();
        self.cuts = 0;
        self.push(Message::user(text));
    }

    /// Continues the last answer, which was cut off.
    fn continuation(&mut self, message: Message) {
        self.settle();
        let last = self.messages.last().filter(|last| last.role == Role::Assistant);
        self.partial_answer.push_str(&last.map(|last| last.text()).unwrap_or_default());
        self.cuts += 1;
        self.messages.push(Arc::new(message));
    }

    fn answer(&mut self, message: Message) {
        self.settle();
        self.due = RepeatAction::None;
        self.turns += 1;
        let calls: Vec<_> = message.tool_calls().cloned().collect();
        self.ids.extend(calls.iter().map(|call| call.id.clone()));
        self.push(message);
        if !calls.is_empty() {
            self.open = Some(OpenCalls { calls, results: BTreeMap::new() });
        }
    }

    fn result(&mut self, id: &str, text: String, is_error: bool) {
        let Some(open) = &mut self.open else { return };
        open.results.insert(id.to_owned(), (text, is_error));
        if open.missing().next().is_none() {
            self.settle();
        }
    }

    /// Puts the results of the open calls into one message; those without any were interrupted.
    fn settle(&mut self) {
        let Some(open) = self.open.take() else { return };
        let is_cut = open.results.values().any(|(text, is_error)| *is_error && text == CUT_OFF);
        self.cuts = if is_cut { self.cuts + 1 } else { 0 };
        let (message, action) = open.settle(&mut self.repeats);
        self.due = action;
        self.push(message);
    }

    fn compacted(&mut self, done: &CompletedCompaction, summary: String) {
        self.settle();
        let mut shortened = done.shortened_results.clone();
        shorten_results(&mut self.messages, &mut shortened);
        self.shortened_before.extend(shortened);
        if summary.is_empty() {
            // Only results were shortened.
            return;
        }
        let summary = Arc::new(Message::system(summary));
        let kept = usize::try_from(done.preserved_turn_count).unwrap_or(usize::MAX);
        let own = self.messages.len();
        if kept <= own {
            self.messages.splice(..own - kept, [summary]);
            self.earlier = Earlier::Gone;
            return;
        }
        let missing = kept - own;
        match &mut self.earlier {
            Earlier::Last { summary: old, count } => {
                *old = summary;
                *count = missing.min(*count);
            }
            Earlier::Gone => self.messages.insert(0, summary),
            earlier @ Earlier::Whole => *earlier = Earlier::Last { summary, count: missing },
        }
    }
}

impl OpenCalls {
    /// Calls without a result, in order.
    pub(crate) fn missing(&self) -> impl Iterator<Item = &ToolCall> {
        self.calls.iter().filter(|call| !self.results.contains_key(&call.id))
    }

    /// The message of all results, in the order of the calls, and what the turn means.
    pub(crate) fn settle(mut self, repeats: &mut Repeats) -> (Message, RepeatAction) {
        let calls = self.calls.iter();
        let results: Vec<_> = calls
            .map(|call| {
                let (text, is_error) =
                    self.results.remove(&call.id).unwrap_or_else(|| (INTERRUPTED.to_owned(), true));
                Content::ToolResult { id: call.id.clone(), text, is_error }
            })
            .collect();
        let texts = results.iter().filter_map(|content| match content {
            Content::ToolResult { text, .. } => Some(text.as_str()),
            _ => None,
        });
        let action = repeats.observe(&self.calls, texts);
        (Message { role: Role::Tool, content: results }, action)
    }
}

/// What a call without a committed result is shown to have given.
pub(crate) const INTERRUPTED: &str = "[interrupted: the program stopped while this call was \
    running. It is not known whether it ran; check before you repeat it.]";

/// Why a recorded user message was sent. `follows_warning`: a warning that the answer is not what
/// its stage requires was recorded just before it.
///
/// Logs of earlier versions do not mark their messages. Only there, a continuation is recognised by
/// its text, and a correction by the warning before it.
pub fn recorded_purpose(
    mark: Option<MessagePurpose>,
    text: &str,
    follows_warning: bool,
) -> MessagePurpose {
    const UNMARKED_CONTINUATION: &str = "[Your answer reached its limit of tokens and was cut off. \
        Go on exactly where it stopped; do not repeat what you said.]";
    match mark {
        Some(purpose) => purpose,
        None if text == UNMARKED_CONTINUATION => MessagePurpose::Continuation,
        None if follows_warning => MessagePurpose::Correction,
        None => MessagePurpose::Request,
    }
}

/// The kind of warning that was recorded before a correction by versions that did not mark messages.
const UNMARKED_CORRECTION_WARNING: &str = "output_schema";

struct Reader<'a, 'b, E> {
    transcript: Transcript,
    /// The last event was a warning that the answer is not what its stage requires.
    follows_warning: bool,
    /// The events of the subagents that are open, and of those below them.
    of_subagents: BTreeMap<String, Vec<RecordedEvent<'a>>>,
    read_blob: ReadBlob<'b, E>,
}

impl<'a, E: std::error::Error + 'static> Reader<'a, '_, E> {
    fn read_own(&mut self, body: &EventBody) -> Result<(), TranscriptError<E>> {
        self.used(body.request_usage());
        match body {
            EventBody::AgentMessage { role, message: Some(message), given, purpose, .. } => {
                let message = self.message(role, message)?;
                let opening = given.as_ref().and_then(|given| given.opening.as_deref());
                let opening = opening.map(|opening| self.text(opening)).transpose()?;
                self.message_sent(message, *purpose, opening);
                if given.is_some() {
                    self.transcript.given.clone_from(given);
                }
            }
            EventBody::AgentToolCompleted(done) => self.tool(done)?,
            EventBody::AgentCompactionCompleted(done) => {
                let summary = self.text(&done.summary)?;
                self.transcript.compacted(done, summary);
            }
            EventBody::AgentSteered { text, source } => {
                self.transcript.user(text.clone());
                if source == repeats::SOURCE {
                    self.transcript.due = RepeatAction::None;
                }
            }
            EventBody::AgentWarning { kind, .. } if kind == UNMARKED_CORRECTION_WARNING => {
                self.follows_warning = true;
            }
            EventBody::AgentWarning { kind, .. } if kind == CUT_OFF_WARNING => {
                self.transcript.is_cut_off = true;
            }
            EventBody::AgentSubSpawned { agent_id, .. } => {
                self.transcript.spawned += 1;
                // Calls that begin agents run one after the other.
                let mut open = self.transcript.open.iter().flat_map(OpenCalls::missing);
                let call = open.find(|call| call.name == SPAWN);
                let spawn = call.map(|call| call.arguments.clone()).unwrap_or_default();
                let subagent = OpenSubagent { spawn, ..OpenSubagent::default() };
                self.transcript.subagents.insert(agent_id.clone(), subagent);
            }
            EventBody::AgentSubCompleted { agent_id, .. } => self.ended(agent_id, Ok(())),
            EventBody::AgentSubFailed { agent_id, message } => {
                self.ended(agent_id, Err(message.clone()));
            }
            EventBody::AgentSubClosed { agent_id } => {
                self.transcript.subagents.remove(agent_id);
                self.of_subagents.remove(agent_id);
            }
            _ => {}
        }
        Ok(())
    }

    fn ended(&mut self, agent: &str, end: Result<(), String>) {
        if let Some(subagent) = self.transcript.subagents.get_mut(agent) {
            subagent.end = Some(end);
        }
    }

    /// Reads an event of a subagent, or of one below it.
    fn read_of_subagent(&mut self, event: RecordedEvent<'a>) {
        self.used(event.body.request_usage());
        if let EventBody::AgentToolCompleted(done) = event.body
            && !done.is_error
        {
            self.touched(done);
        }
        let Some(session) = event.session else { return };
        let is_of = |id: &str| {
            session.strip_prefix(id).is_some_and(|below| below.is_empty() || below.starts_with('/'))
        };
        let mut open = self.transcript.subagents.iter_mut();
        // Those that were closed do not matter any more.
        let Some((id, subagent)) = open.find(|(id, _)| is_of(id)) else { return };
        if id == session {
            subagent.end = None;
            let is_input = matches!(event.body, EventBody::AgentSteered { source, .. } if source == subagent_calls::SOURCE);
            subagent.delivered += usize::from(is_input);
        }
        self.of_subagents.entry(id.clone()).or_default().push(event);
    }

    fn message_sent(
        &mut self,
        message: Message,
        mark: Option<MessagePurpose>,
        opening: Option<String>,
    ) {
        let transcript = &mut self.transcript;
        match message.role {
            Role::Assistant => transcript.answer(message),
            Role::User => {
                let text = message.text();
                let follows_warning = std::mem::take(&mut self.follows_warning);
                let purpose = recorded_purpose(mark, &text, follows_warning);
                if purpose == MessagePurpose::Continuation {
                    transcript.continuation(message);
                    return;
                }
                transcript.corrections += u32::from(purpose == MessagePurpose::Correction);
                transcript.user(match opening {
                    Some(opening) => opened(&opening, &text),
                    None => text,
                });
                transcript.repeats = Repeats::default();
                transcript.due = RepeatAction::None;
            }
            Role::System | Role::Tool => {
                transcript.settle();
                transcript.push(message);
            }
        }
    }

    fn tool(&mut self, done: &CompletedTool) -> Result<(), TranscriptError<E>> {
        let text = self.text(&done.output)?;
        if !done.is_error {
            let mut open = self.transcript.open.iter().flat_map(OpenCalls::missing);
            let call = open.find(|call| call.id == done.call_id);
            if let Some(sent) = call.and_then(send_arguments)
                && let Some(subagent) = self.transcript.subagents.get_mut(&sent.agent_id)
            {
                subagent.inputs.push(sent.text);
            }
        }
        self.transcript.result(&done.call_id, text, done.is_error);
        self.transcript.files_seen.extend(done.files_seen.clone());
        if !done.is_error {
            let files = &mut self.transcript.files;
            files.read.extend(done.files_read.iter().cloned());
            files.modified.extend(done.files_modified.iter().cloned());
            self.touched(done);
        }
        Ok(())
    }

    fn touched(&mut self, done: &CompletedTool) {
        let totals = &mut self.transcript.totals;
        totals.touched.extend(done.files_modified.iter().cloned());
        if let Some(last) = done.files_modified.last() {
            totals.last_touched = Some(last.clone());
        }
    }

    fn used(&mut self, usage: Option<&Usage>) {
        if let Some(usage) = usage {
            self.transcript.totals.usage.add(usage);
        }
    }

    fn message(&mut self, role: &str, value: &Value) -> Result<Message, TranscriptError<E>> {
        let value = self.value(value)?;
        let reason = |reason: String| TranscriptError::Message { reason };
        match value.as_ref() {
            Value::String(text) => match role {
                "assistant" => Ok(Message::assistant(text)),
                "user" => Ok(Message::user(text)),
                "system" => Ok(Message::system(text)),
                other => Err(reason(format!("there is no role `{other}`"))),
            },
            object => Message::deserialize(object).map_err(|error| reason(error.to_string())),
        }
    }

    fn text(&mut self, value: &Value) -> Result<String, TranscriptError<E>> {
        match self.value(value)?.as_ref() {
            Value::String(text) => Ok(text.clone()),
            other => {
                let reason = format!("a text was expected, not {other:.40}");
                Err(TranscriptError::Message { reason })
            }
        }
    }

    fn value<'v>(
        &mut self,
        value: &'v Value,
    ) -> Result<std::borrow::Cow<'v, Value>, TranscriptError<E>> {
        match BlobRef::from_value(value) {
            None => Ok(std::borrow::Cow::Borrowed(value)),
            Some(blob) => {
                let read = (self.read_blob)(&blob);
                let value = read.map_err(|source| TranscriptError::Blob { source })?;
                Ok(std::borrow::Cow::Owned(value))
            }
        }
    }
}
