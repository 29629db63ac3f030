//! Sessions on models and journals in memory.

mod agents;
mod compaction;
mod crash;
mod prefix;
mod seen;
mod turns;
mod wires;

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use fabro_events::{EventBody, Note};
use fabro_llm::{
    Content, ErrorKind, Message, Model, ModelError, Part, Request, RequestPolicy, RetryPolicy,
    Role, StopReason, ToolCall, ToolSpec,
};
use fabro_tools::{Call, Output, Tool, ToolContext, ToolSet};
use fabro_types::{BlobRef, Permissions, Usage};
use futures_util::stream::{self, BoxStream, StreamExt};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{Journal, JournalError, MemoryJournal, Parts, Record, Session, Settings, Transcript};

/// What a model does when it is asked.
#[derive(Clone, Debug)]
enum Turn {
    Say(String),
    Call(String, Vec<(&'static str, Value)>),
    Cut(String, Vec<(&'static str, Value)>),
    Fail(ErrorKind),
    /// Never answers.
    Hang,
}

fn say(text: &str) -> Turn {
    Turn::Say(text.to_owned())
}

fn call(name: &'static str, arguments: Value) -> Turn {
    Turn::Call(String::new(), vec![(name, arguments)])
}

type Plays = dyn Fn(u32, &Request) -> Turn + Send + Sync;

/// Answers with a function of the turn's number and the request.
struct Play {
    turn_of: Box<Plays>,
    requests: Mutex<Vec<Request>>,
    /// The number of the next turn.
    next: AtomicU32,
}

impl Play {
    fn new(play: impl Fn(u32, &Request) -> Turn + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            turn_of: Box::new(play),
            requests: Mutex::default(),
            next: AtomicU32::new(0),
        })
    }

    /// Plays a list; its last turn is repeated.
    fn list(turns: Vec<Turn>) -> Arc<Self> {
        Self::new(move |number, _| {
            turns[usize::try_from(number).unwrap().min(turns.len() - 1)].clone()
        })
    }

    /// The transcript, after whose turns the next one comes.
    fn after(&self, transcript: Transcript) -> Transcript {
        self.next.store(transcript.usage().turns, Ordering::SeqCst);
        transcript
    }

    fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

impl Model for Play {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Part, ModelError>> {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        let turn = (self.turn_of)(number, &request);
        self.requests.lock().unwrap().push(request);
        let usage = Usage { input_tokens: 100, output_tokens: 10, ..Usage::default() };
        let calls = |calls: Vec<(&'static str, Value)>| {
            calls.into_iter().enumerate().map(move |(at, (name, arguments))| {
                Part::ToolCall(ToolCall {
                    id: format!("c{number}.{at}"),
                    name: name.to_owned(),
                    arguments,
                })
            })
        };
        let text = |text: String| (!text.is_empty()).then_some(Part::Text(text));
        let (parts, stop): (Vec<_>, _) = match turn {
            Turn::Say(said) => (text(said).into_iter().collect(), StopReason::Complete),
            Turn::Call(said, list) => {
                (text(said).into_iter().chain(calls(list)).collect(), StopReason::ToolCalls)
            }
            Turn::Cut(said, list) => {
                (text(said).into_iter().chain(calls(list)).collect(), StopReason::MaxTokens)
            }
            Turn::Fail(kind) => return stream::iter([Err(ModelError::new(kind))]).boxed(),
            Turn::Hang => return stream::pending().boxed(),
        };
        let parts = parts.into_iter().chain([Part::End { usage, stop }]).map(Ok);
        stream::iter(parts.collect::<Vec<_>>()).boxed()
    }
}

/// `look` reads a file, `change` writes one, `wreck` needs full permissions, `hang` never ends.
struct Fake {
    spec: ToolSpec,
    needs: Permissions,
    at_once: Arc<AtomicUsize>,
    most_at_once: Arc<AtomicUsize>,
}

#[async_trait]
impl Tool for Fake {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn needs(&self) -> Permissions {
        self.needs
    }

    async fn call(&self, call: Call<'_>) -> Output {
        let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_at_once.fetch_max(now, Ordering::SeqCst);
        if self.spec.name == "hang" {
            std::future::pending::<()>().await;
        }
        let file = call.arguments.get("file").and_then(Value::as_str).unwrap_or("f").to_owned();
        let wait = call.arguments.get("ms").and_then(Value::as_u64).unwrap_or(1);
        tokio::time::sleep(Duration::from_millis(wait)).await;
        self.at_once.fetch_sub(1, Ordering::SeqCst);
        let text = call.arguments.get("says").and_then(Value::as_str);
        let text = text.map_or_else(|| format!("{} {file}", self.spec.name), str::to_owned);
        let lines = call.arguments.get("lines").and_then(Value::as_u64).unwrap_or(0);
        let text = text + &"word word\n".repeat(usize::try_from(lines).unwrap());
        match self.spec.name.as_str() {
            "look" => Output { files_read: vec![file], ..Output::ok(text) },
            "change" => Output { files_modified: vec![file], ..Output::ok(text) },
            _ => Output::error(text),
        }
    }
}

#[derive(Clone, Default)]
struct Counts {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

fn tools(counts: &Counts) -> ToolSet {
    let kinds = [
        ("look", Permissions::ReadOnly),
        ("change", Permissions::ReadWrite),
        ("wreck", Permissions::Full),
        ("hang", Permissions::ReadOnly),
    ];
    let tool = |(name, needs): (&str, _)| -> Arc<dyn Tool> {
        Arc::new(Fake {
            spec: ToolSpec {
                name: name.to_owned(),
                description: format!("{name} at a file."),
                parameters: Arc::new(json!({"type": "object"})),
            },
            needs,
            at_once: Arc::clone(&counts.now),
            most_at_once: Arc::clone(&counts.most),
        })
    };
    kinds.map(tool).into_iter().fold(ToolSet::default(), ToolSet::with)
}

fn settings() -> Settings {
    Settings {
        subagent_depth: 0,
        asking: RequestPolicy { retry: RetryPolicy::none(), ..RequestPolicy::default() },
        ..Settings::default()
    }
}

fn parts(model: &Arc<Play>, journal: &Arc<impl Journal + 'static>, settings: Settings) -> Parts {
    model.next.store(0, Ordering::SeqCst);
    Parts {
        id: Arc::from("build@1"),
        parent: None,
        model: Arc::clone(model) as Arc<dyn Model>,
        tools: tools(&Counts::default()),
        journal: Arc::clone(journal) as Arc<dyn Journal>,
        settings,
        context: ToolContext::default(),
    }
}

fn session(model: &Arc<Play>, settings: Settings) -> (Session, Arc<MemoryJournal>) {
    let journal = Arc::new(MemoryJournal::default());
    (Session::new(parts(model, &journal, settings)), journal)
}

fn never() -> CancellationToken {
    CancellationToken::new()
}

fn no_blobs(blob: &BlobRef) -> Result<Value, Infallible> {
    panic!("{blob} is read")
}

/// Notes on a line each, records parted by `--`.
fn notes_of(records: &[Record]) -> String {
    let mut text = String::new();
    for (at, record) in records.iter().enumerate() {
        if at > 0 {
            text.push_str("--\n");
        }
        for note in &record.notes {
            let _ = writeln!(text, "{}", line(note));
        }
    }
    text
}

fn line(note: &Note) -> String {
    let sub = if note.parent_session_id.is_some() { "  " } else { "" };
    let line = match &note.body {
        EventBody::AgentMessage { role, text, usage, .. } => {
            let turns = usage.as_ref().map(|usage| format!(" ({} turns)", usage.turns));
            format!("{role}: {text}{}", turns.unwrap_or_default())
        }
        EventBody::AgentToolStarted { call_id, tool, arguments } => {
            format!("start {call_id} {tool} {arguments}")
        }
        EventBody::AgentToolCompleted(done) => {
            let error = if done.is_error { " failed" } else { "" };
            format!("end {} {}{error}: {}", done.call_id, done.tool, done.output)
        }
        EventBody::AgentSteered { text, source } => format!("{source}: {text:.40}"),
        EventBody::AgentWarning { kind, message, .. } => format!("warning {kind}: {message}"),
        EventBody::AgentError { class, message, .. } => format!("error {class}: {message}"),
        EventBody::AgentCompactionStarted { .. } => "compaction started".to_owned(),
        EventBody::AgentCompactionCompleted(done) => {
            format!("compaction {} {}+{}", done.reason, done.replaced(), done.preserved_turn_count)
        }
        EventBody::AgentSubSpawned { agent_id, task } => format!("spawned {agent_id}: {task}"),
        EventBody::AgentSubCompleted { agent_id, text } => format!("completed {agent_id}: {text}"),
        EventBody::AgentSubFailed { agent_id, message } => format!("failed {agent_id}: {message}"),
        EventBody::AgentSubClosed { agent_id } => format!("closed {agent_id}"),
        other => format!("{other:?}"),
    };
    format!("{sub}{line}")
}

/// The conversation, a message a line.
fn conversation(session: &Session) -> String {
    let lines = session.messages().map(|message| shown(message));
    lines.collect::<Vec<_>>().join("\n")
}

fn shown(message: &Message) -> String {
    let role = match message.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    let parts = message.content.iter().map(|content| match content {
        Content::Text { text } => text.clone(),
        Content::ToolCall(call) => format!("[{} {}]", call.id, call.name),
        Content::ToolResult { id, text, .. } => format!("[{id} -> {text}]"),
        other => format!("{other:?}"),
    });
    format!("{role}: {}", parts.collect::<Vec<_>>().join(" "))
}
