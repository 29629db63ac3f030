//! What a turn costs beside the model and its tools: at the beginning of a conversation, and after
//! many turns.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use divan::Bencher;
use divan::counter::ItemsCount;
use fabro_agent::{
    Journal, JournalError, MemoryJournal, Parts, Record, Session, Settings, Transcript,
};
use fabro_events::Note;
use fabro_llm::{Model, ModelError, Part, Request, StopReason, ToolCall, ToolSpec};
use fabro_tools::{Call, Output, Tool, ToolContext, ToolSet};
use fabro_types::{Permissions, Usage};
use futures_util::stream::{self, BoxStream, StreamExt};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

/// How many turns one measurement has.
const TURNS: u32 = 100;

/// Calls a tool in every turn but the last of a measurement.
#[derive(Default)]
struct Worker {
    /// How many requests there were.
    count: AtomicU32,
}

impl Model for Worker {
    fn stream(&self, _: Request) -> BoxStream<'static, Result<Part, ModelError>> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let part = if number % TURNS == TURNS - 1 {
            Part::Text("That is all.".to_owned())
        } else {
            let arguments = json!({"file_path": format!("src/file{number}.rs")});
            let id = format!("call-{number}");
            Part::ToolCall(ToolCall { id, name: "read_file".to_owned(), arguments })
        };
        let end = Part::End { usage: Usage::default(), stop: StopReason::Complete };
        stream::iter([Ok(part), Ok(end)]).boxed()
    }
}

struct ReadFile {
    spec: ToolSpec,
    text: String,
}

#[async_trait]
impl Tool for ReadFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn needs(&self) -> Permissions {
        Permissions::ReadOnly
    }

    async fn call(&self, _: Call<'_>) -> Output {
        Output::ok(self.text.clone())
    }
}

/// Forgets.
struct Nowhere;

#[async_trait]
impl Journal for Nowhere {
    async fn record(&self, record: Record) -> Result<(), JournalError> {
        divan::black_box(record);
        Ok(())
    }
}

fn session(journal: Arc<dyn Journal>) -> Session {
    let spec = ToolSpec {
        name: "read_file".to_owned(),
        description: "Reads a file.".to_owned(),
        parameters: Arc::new(json!({"type": "object"})),
    };
    let read_file = ReadFile { spec, text: "let it = \"a line of code\";\n".repeat(80) };
    Session::new(Parts {
        id: Arc::from("work@1"),
        parent: None,
        model: Arc::new(Worker::default()),
        tools: ToolSet::default().with(Arc::new(read_file)),
        journal,
        settings: Settings {
            max_turns: u32::MAX,
            window: Some(100_000_000),
            ..Settings::default()
        },
        context: ToolContext::default(),
    })
}

#[expect(clippy::unwrap_used, reason = "a benchmark that cannot run should say so")]
fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

/// Has the session answer so many times, a hundred turns each.
#[expect(clippy::unwrap_used, reason = "a benchmark that cannot run should say so")]
fn run(runtime: &Runtime, session: &mut Session, times: u32) {
    runtime.block_on(async {
        for at in 0..times {
            session.send(format!("Part {at}"), &CancellationToken::new()).await.unwrap();
        }
    });
}

#[expect(clippy::unwrap_used, reason = "a benchmark that cannot run should say so")]
fn read(notes: &[Note]) -> Transcript {
    let no_blob = |_: &_| -> Result<Value, Infallible> { Ok(Value::Null) };
    Transcript::from_notes(notes, no_blob).unwrap()
}

/// What a session records in so many turns.
fn notes(turns: u32) -> Vec<Note> {
    let journal = Arc::new(MemoryJournal::default());
    let mut session = session(Arc::clone(&journal) as Arc<dyn Journal>);
    run(&runtime(), &mut session, turns / TURNS);
    journal.notes()
}

#[divan::bench(args = [0, 1_000, 10_000])]
fn hundred_turns_after(bencher: Bencher<'_, '_>, turns: u32) {
    let transcript = read(&notes(turns));
    let runtime = runtime();
    bencher
        .counter(ItemsCount::new(TURNS))
        .with_inputs(|| {
            let mut session = session(Arc::new(Nowhere));
            session.restore(transcript.clone());
            session
        })
        .bench_local_values(|mut session| {
            run(&runtime, &mut session, 1);
            // Dropping it is not the turns' cost.
            session
        });
}

#[divan::bench]
fn read_a_thousand_turns_back(bencher: Bencher<'_, '_>) {
    let notes = notes(1_000);
    bencher.bench_local(|| read(&notes));
}

fn main() {
    divan::main();
}
