//! What a log says that each attempt of each stage was given and came to.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use fabro_agent::recorded_purpose;
use fabro_blob::BlobStore;
use fabro_context::keys;
use fabro_engine::{ReadError, Stage, read_blob};
use fabro_events::{CompletedStage, CompletedTool, Entry, Event, EventBody, MessagePurpose};
use fabro_llm::{Message, Reply, Role, StopReason};
use fabro_types::{BlobRef, Failure, Outcome, Status, Usage};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::replay::ReplayError;
use crate::replay::turnstile::Resumption;

/// One attempt of one stage.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) branch: Arc<str>,
    pub(crate) node: Arc<str>,
    pub(crate) visit: u32,
    pub(crate) attempt: u32,
}

impl Key {
    pub(crate) fn of(stage: &Stage) -> Self {
        Self {
            branch: stage.branch.clone().unwrap_or_default(),
            node: Arc::clone(&stage.at.node),
            visit: stage.at.visit,
            attempt: stage.at.attempt,
        }
    }
}

/// A run's record, by attempts.
#[derive(Default)]
pub(crate) struct Record {
    attempts: BTreeMap<Key, Arc<Attempt>>,
    pub(crate) resumptions: Vec<Resumption>,
    /// The run came to its end.
    pub(crate) is_whole: bool,
}

/// What an attempt was given, and how it ended.
#[derive(Default)]
pub(crate) struct Attempt {
    /// With the event's place in the log.
    pub(crate) end: Option<(u64, End)>,
    pub(crate) answer: Option<(u64, GateAnswer)>,
    /// Of its agents, by session: taken as they are given out.
    talks: Mutex<BTreeMap<Arc<str>, Talk>>,
    /// By call and tool.
    tools: Mutex<BTreeMap<(String, String), Results>>,
    /// Where calls by which agents deal with others ended that did nothing before, by session and
    /// call.
    held: BTreeMap<(Arc<str>, String), u64>,
    /// Sessions that began another agent by a call without a result yet.
    spawning: BTreeSet<Arc<str>>,
    /// The tools that were called.
    pub(crate) called: Vec<String>,
    /// What agents were asked to begin others for.
    tasks: BTreeSet<String>,
    /// The calls of those others, by id.
    sub_calls: BTreeSet<String>,
}

/// The tool by which agents begin others.
const SPAWN: &str = "spawn_agent";

/// Those by which they deal with them, besides waiting, which is done again.
const HELD: [&str; 3] = [SPAWN, "send_input", "close_agent"];

/// What calls came to, with their places in the log.
type Results = VecDeque<(u64, CompletedTool)>;

#[derive(Clone)]
pub(crate) enum End {
    /// It failed, and another attempt followed.
    Retried { failure: Failure, usage: Option<Usage> },
    /// It was the last one.
    Over(Arc<CompletedStage>),
}

/// What a person chose.
pub(crate) struct GateAnswer {
    pub(crate) key: String,
    pub(crate) label: String,
    pub(crate) text: Option<String>,
}

/// A conversation.
#[derive(Default)]
struct Talk {
    /// Another agent began it.
    is_sub: bool,
    /// The place in the log at which that was.
    spawned: u64,
    /// The beginning of its task.
    task: String,
    /// What it was told first.
    first: Option<String>,
    answers: VecDeque<Answer>,
    /// Its first answer was given out, or asked for where there is none.
    has_begun: bool,
    /// The last answer that was given out.
    last: Option<Said>,
    /// What was said to that.
    correction: Option<String>,
    /// The last thing that was said asks for an answer.
    is_open: bool,
}

/// An answer, with its place in the log.
struct Answer {
    seq: u64,
    reply: Reply,
    /// What was said to it, where it was the last one of its turn.
    correction: Option<String>,
}

/// What tells an answer from others: its text and the ids of its calls.
type Said = (String, Vec<String>);

/// What a conversation has to say next.
pub(crate) enum Next {
    /// An answer, by its conversation and its place in the log.
    Answer { talk: Arc<str>, seq: u64 },
    /// Nothing more, of the stage's own agent or of one that it began; `was_asked` when the record has
    /// the question.
    Nothing { is_sub: bool, was_asked: bool },
}

impl Record {
    /// Reads the events that count, oldest first.
    pub(crate) fn read(events: &[&Event], blobs: &dyn BlobStore) -> Result<Self, ReplayError> {
        let mut reader = Reader { blobs, attempts: BTreeMap::new(), current: BTreeMap::new() };
        let mut resumptions = Vec::new();
        for event in events {
            if let EventBody::RunResumed { max_cost } = &event.entry.body {
                resumptions.push(Resumption { seq: event.seq, max_cost: *max_cost });
            } else {
                reader.take(event)?;
            }
        }
        let attempts = reader.attempts.into_iter().map(|(key, it)| (key, Arc::new(it))).collect();
        let is_whole = events.last().is_some_and(|event| {
            matches!(event.entry.body, EventBody::RunCompleted { .. } | EventBody::RunFailed { .. })
        });
        Ok(Self { attempts, resumptions, is_whole })
    }

    pub(crate) fn attempt(&self, key: &Key) -> Option<&Arc<Attempt>> {
        self.attempts.get(key)
    }
}

impl End {
    pub(crate) fn is_failure(&self) -> bool {
        match self {
            Self::Retried { .. } => true,
            Self::Over(done) => done.outcome.status == Status::Failed,
        }
    }

    /// Directives that come to this end; the status alone is one only where there had to be some.
    fn directives(&self, was_asked: bool) -> Option<Value> {
        let (status, outcome, failure) = match self {
            Self::Retried { failure, .. } => (Status::Failed, None, Some(failure)),
            Self::Over(done) => {
                (done.outcome.status, Some(&done.outcome), done.outcome.failure.as_ref())
            }
        };
        if failure.is_some_and(|failure| !failure.stated) {
            return None;
        }
        let mut found = Map::new();
        let mut say = |field: &str, said: Option<Value>| {
            found.extend(said.map(|said| (field.to_owned(), said)));
        };
        let word = outcome.and_then(|outcome| outcome.word.as_deref());
        let status = (was_asked || status != Status::Succeeded).then(|| status.as_str());
        say("outcome", word.or(status).map(Value::from));
        say("failure_reason", failure.map(|failure| failure.message.as_str().into()));
        if let Some(outcome) = outcome {
            let Outcome { notes, preferred_label, suggested_next_ids, context_updates, .. } =
                outcome;
            if failure.is_none() {
                say("failure_reason", notes.as_deref().map(Value::from));
            }
            say("preferred_next_label", preferred_label.as_deref().map(Value::from));
            let ids = suggested_next_ids;
            say("suggested_next_ids", (!ids.is_empty()).then(|| Value::from(ids.clone())));
            // The others are not the agent's.
            let updates = context_updates.iter().filter(|(key, _)| keys::refusal(key).is_none());
            let updates: Map<_, _> =
                updates.map(|(key, value)| (key.clone(), Value::clone(value))).collect();
            say("context_updates", (!updates.is_empty()).then_some(Value::Object(updates)));
        }
        (!found.is_empty()).then_some(Value::Object(found))
    }
}

impl Attempt {
    /// The next answer of the conversation that these messages belong to. It stays the next one until
    /// it is [taken](Self::take).
    pub(crate) fn next(&self, messages: &[Arc<Message>]) -> Next {
        let mut talks = self.talks.lock().unwrap_or_else(PoisonError::into_inner);
        // The summary of the workflow's turns is asked for before anything else.
        let is_summary =
            |id: &str, talk: &Talk| id.ends_with("/summary") && !talk.answers.is_empty();
        let summary = talks.iter().find(|(id, talk)| is_summary(id, talk)).map(|(id, _)| id);
        // Only who has been answered begins others.
        let is_underway = talks.values().any(|talk| !talk.is_sub && talk.has_begun);
        let sub = || self.sub(&talks, messages).filter(|_| is_underway);
        let id = match summary.or_else(sub) {
            Some(id) => Arc::clone(id),
            // An agent of whose conversation nothing was recorded.
            None if is_underway && self.is_task(messages) => {
                return Next::Nothing { is_sub: true, was_asked: false };
            }
            None => match talks.iter().find(|(_, talk)| !talk.is_sub) {
                Some((id, _)) => Arc::clone(id),
                None => return Next::Nothing { is_sub: false, was_asked: false },
            },
        };
        let talk = talks.entry(Arc::clone(&id)).or_default();
        talk.has_begun |= talk.answers.is_empty();
        match talk.answers.front() {
            Some(answer) => Next::Answer { talk: id, seq: answer.seq },
            None => Next::Nothing { is_sub: talk.is_sub, was_asked: talk.is_open },
        }
    }

    /// The conversation of an agent of agents that these messages belong to. Of those with one task
    /// each request that begins one takes the next; the others go by the last answer.
    fn sub<'a>(
        &self,
        talks: &'a BTreeMap<Arc<str>, Talk>,
        messages: &[Arc<Message>],
    ) -> Option<&'a Arc<str>> {
        let first = first_words(messages)?;
        let last = messages.iter().rfind(|message| message.role == Role::Assistant);
        let last = last.map(|message| said(message));
        let is_told = |talk: &Talk| match &talk.first {
            Some(told) => *told == first,
            // It was ended before its first answer; with that its task would have been recorded.
            None => self.tasks.contains(&first) && first.starts_with(&talk.task),
        };
        let subs = talks.iter().filter(|(_, talk)| talk.is_sub && is_told(talk));
        let fits = |talk: &Talk| match &last {
            None => !talk.has_begun,
            last => talk.last == *last,
        };
        let fitting = subs.filter(|(_, talk)| fits(talk));
        fitting.min_by_key(|(_, talk)| talk.spawned).map(|(id, _)| id)
    }

    fn is_task(&self, messages: &[Arc<Message>]) -> bool {
        first_words(messages).is_some_and(|first| self.tasks.contains(&first))
    }

    /// The next answer of this conversation.
    pub(crate) fn take(&self, talk: &str) -> Option<Reply> {
        let mut talks = self.talks.lock().unwrap_or_else(PoisonError::into_inner);
        let talk = talks.get_mut(talk)?;
        let Answer { reply, correction, .. } = talk.answers.pop_front()?;
        (talk.has_begun, talk.last) = (true, Some(said(&reply.message())));
        talk.correction = correction;
        Some(reply)
    }

    /// What the files of the stage's agent made of the last answer, which has no directives itself:
    /// a text with those of the recorded outcome, or what the agent was told. `was_asked` when the
    /// recorded answer had to have some.
    pub(crate) fn left_in_files(&self, was_asked: bool) -> Option<Result<String, String>> {
        let talks = self.talks.lock().unwrap_or_else(PoisonError::into_inner);
        let is_own = |id: &str, talk: &Talk| !talk.is_sub && !id.ends_with("/summary");
        let (_, own) = talks.iter().find(|(id, talk)| is_own(id, talk))?;
        if let Some(told) = &own.correction {
            return was_asked.then(|| Err(told.clone()));
        }
        let (_, end) = self.end.as_ref().filter(|_| own.answers.is_empty())?;
        end.directives(was_asked).map(|found| Ok(found.to_string()))
    }

    /// Where a call ended by which an agent deals with others, if it did nothing before.
    pub(crate) fn held(&self, session: &str, call: &str) -> Option<u64> {
        self.held.get(&(Arc::from(session), call.to_owned())).copied()
    }

    /// What a call of a tool came to, and where in the log.
    pub(crate) fn result(&self, call: &str, tool: &str) -> Option<(u64, CompletedTool)> {
        let mut tools = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        tools.get_mut(&(call.to_owned(), tool.to_owned()))?.pop_front()
    }

    /// Whether a call is one of an agent that another began. Such an agent may have ended before its
    /// result came, while the stage went on.
    pub(crate) fn is_of_sub(&self, call: &str) -> bool {
        self.sub_calls.contains(call)
    }
}

struct Reader<'a> {
    blobs: &'a dyn BlobStore,
    attempts: BTreeMap<Key, Attempt>,
    /// The attempt that each stage is at.
    current: BTreeMap<(Arc<str>, Arc<str>, u32), u32>,
}

impl Reader<'_> {
    fn take(&mut self, event: &Event) -> Result<(), ReplayError> {
        let (entry, seq) = (&event.entry, event.seq);
        let Some((node, visit)) = entry.node_id.clone().zip(entry.visit) else { return Ok(()) };
        let branch = entry.branch.clone().unwrap_or_default();
        let stage = (branch, node, visit);
        if matches!(entry.body, EventBody::StageStarted { .. }) {
            self.current.insert(stage.clone(), 1);
        }
        let attempt = self.current.get(&stage).copied().unwrap_or(1);
        let (branch, node, visit) = stage.clone();
        let of_attempt = self.attempts.entry(Key { branch, node, visit, attempt }).or_default();
        match &entry.body {
            EventBody::StageRetrying { attempt, failure, usage, .. } => {
                let end = End::Retried { failure: failure.clone(), usage: usage.clone() };
                of_attempt.end = Some((seq, end));
                self.current.insert(stage, attempt.saturating_add(1));
            }
            EventBody::StageCompleted(done) | EventBody::StageFailed(done) => {
                of_attempt.end = Some((seq, End::Over(Arc::clone(done))));
            }
            EventBody::GateAnswered { selected, label, text, .. } => {
                let (key, label, text) = (selected.clone(), label.clone(), text.clone());
                of_attempt.answer = Some((seq, GateAnswer { key, label, text }));
            }
            EventBody::AgentSubSpawned { agent_id, task } => {
                of_attempt.spawning.extend(entry.session_id.clone());
                of_attempt.spawned(agent_id, seq, task);
            }
            EventBody::AgentToolCompleted(done) => {
                of_attempt.ended(entry, seq, done);
                of_attempt.tool(self.blobs, seq, done)?;
            }
            EventBody::AgentMessage { role, message: Some(message), usage, purpose, .. } => {
                let said = spoken(self.blobs, role, message, seq)?;
                of_attempt.said(entry, seq, said, *purpose, usage.as_ref());
            }
            _ => {}
        }
        Ok(())
    }
}

impl Attempt {
    fn tool(
        &mut self,
        blobs: &dyn BlobStore,
        seq: u64,
        done: &CompletedTool,
    ) -> Result<(), ReplayError> {
        let output = Arc::new(resolved(blobs, &done.output)?);
        let tools = self.tools.get_mut().unwrap_or_else(PoisonError::into_inner);
        let calls = tools.entry((done.call_id.clone(), done.tool.clone())).or_default();
        calls.push_back((seq, CompletedTool { output, ..done.clone() }));
        self.called.push(done.tool.clone());
        Ok(())
    }

    /// A call has ended. Those by which an agent begins others come one after the other.
    fn ended(&mut self, entry: &Entry, seq: u64, done: &CompletedTool) {
        let Some(session) = &entry.session_id else { return };
        let is_done = done.tool == SPAWN && self.spawning.remove(session);
        if !is_done && HELD.contains(&done.tool.as_str()) {
            self.held.insert((Arc::clone(session), done.call_id.clone()), seq);
        }
    }

    fn spawned(&mut self, agent: &str, seq: u64, told: &str) {
        let talks = self.talks.get_mut().unwrap_or_else(PoisonError::into_inner);
        let talk = talks.entry(Arc::from(agent)).or_default();
        (talk.is_sub, talk.spawned, talk.task) = (true, seq, told.to_owned());
    }

    fn said(
        &mut self,
        entry: &Entry,
        seq: u64,
        said: Message,
        purpose: Option<MessagePurpose>,
        usage: Option<&Usage>,
    ) {
        let talks = self.talks.get_mut().unwrap_or_else(PoisonError::into_inner);
        let talk = talks.entry(entry.session_id.clone().unwrap_or_default()).or_default();
        talk.is_sub = entry.parent_session_id.is_some();
        talk.is_open = said.role != Role::Assistant;
        if said.role == Role::Assistant {
            if talk.is_sub {
                self.sub_calls.extend(said.tool_calls().map(|call| call.id.clone()));
            }
            let spawns = said.tool_calls().filter(|call| call.name == SPAWN);
            let told = spawns.filter_map(|call| call.arguments["task"].as_str());
            self.tasks.extend(told.map(str::to_owned));
            let calls = said.tool_calls().next().is_some();
            let stop = if calls { StopReason::ToolCalls } else { StopReason::Complete };
            let usage = usage.cloned().unwrap_or_default();
            let reply = Reply { content: said.content, usage, stop };
            talk.answers.push_back(Answer { seq, reply, correction: None });
            return;
        }
        let text = said.text();
        if let Some(last) = talk.answers.back_mut() {
            if recorded_purpose(purpose, &text, false) == MessagePurpose::Continuation {
                last.reply.stop = StopReason::MaxTokens;
            } else {
                last.correction = Some(text.clone());
            }
        }
        talk.first.get_or_insert(text);
    }
}

fn first_words(messages: &[Arc<Message>]) -> Option<String> {
    messages.iter().find(|message| message.role == Role::User).map(|message| message.text())
}

fn said(message: &Message) -> Said {
    let ids = message.tool_calls().map(|call| call.id.clone()).collect();
    (message.text().trim().to_owned(), ids)
}

/// A recorded message: a whole one, or a plain text of that role; itself, or as a blob.
pub(crate) fn spoken(
    blobs: &dyn BlobStore,
    role: &str,
    message: &Value,
    seq: u64,
) -> Result<Message, ReplayError> {
    match resolved(blobs, message)? {
        Value::String(text) if role == "assistant" => Ok(Message::assistant(text)),
        Value::String(text) if role == "system" => Ok(Message::system(text)),
        Value::String(text) => Ok(Message::user(text)),
        whole => Message::deserialize(whole)
            .map_err(|error| ReplayError::Message { seq, reason: error.to_string() }),
    }
}

/// The value, or what it refers to.
pub(crate) fn resolved(blobs: &dyn BlobStore, value: &Value) -> Result<Value, ReadError> {
    match BlobRef::from_value(value) {
        Some(blob) => read_blob(blobs, &blob),
        None => Ok(value.clone()),
    }
}
