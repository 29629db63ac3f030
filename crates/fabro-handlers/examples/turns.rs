//! What a turn of an agent costs beside its model and its tools, in a whole run: on the store in
//! memory, or on the one in a directory.
//! `cargo run --release -p fabro-handlers --example turns -- 1000 [DIR]`.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use fabro_engine::{Input, Machine, NewRun, Plan, RunEnd, RunState, World, begin, drive};
use fabro_events::{Event, EventSink};
use fabro_gate::AutoApprove;
use fabro_graph::Workflow;
use fabro_handlers::{Agents, ModelDefaults, NoChildren, Offer, Registry, Services, Toolbox};
use fabro_llm::{Model, ModelError, Part, Request, StopReason, ToolCall, ToolSpec};
use fabro_store::{Batch, MemoryStore, SqliteStore, Store};
use fabro_tools::{Call, Output, Tool, ToolSet, WorkflowContext};
use fabro_types::{Permissions, RunId, RunStatus, Usage};
use futures_util::stream::{self, BoxStream, StreamExt};
use serde_json::json;

/// Calls a tool in every turn but the last, and keeps when it was asked.
struct Worker {
    turns: usize,
    asked: Mutex<Vec<Instant>>,
}

impl Model for Worker {
    fn stream(&self, _: Request) -> BoxStream<'static, Result<Part, ModelError>> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.push(Instant::now());
        let number = asked.len();
        let mut parts = vec![Part::Text("The next file is of interest, too.".to_owned())];
        if number < self.turns {
            let arguments = json!({"file_path": format!("src/file{number}.rs")});
            let id = format!("call-{number}");
            parts.push(Part::ToolCall(ToolCall { id, name: "look".to_owned(), arguments }));
        }
        parts.push(Part::End { usage: Usage::default(), stop: StopReason::Complete });
        stream::iter(parts.into_iter().map(Ok)).boxed()
    }
}

/// Gives the same 25 lines for every request.
struct Look(ToolSpec);

#[async_trait]
impl Tool for Look {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn needs(&self) -> Permissions {
        Permissions::ReadOnly
    }

    async fn call(&self, _: Call<'_>) -> Output {
        Output::ok("let it = \"a line of code, as they are\";\n".repeat(25))
    }
}

struct OneTool;

#[async_trait]
impl Toolbox for OneTool {
    async fn tools(&self, _: &Path, _: Permissions, _: Arc<dyn WorkflowContext>) -> Offer {
        let look = Look(ToolSpec {
            name: "look".to_owned(),
            description: "Shows a file.".to_owned(),
            parameters: Arc::new(json!({"type": "object"})),
        });
        Offer { tools: ToolSet::default().with(Arc::new(look)), ..Offer::default() }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let turns: usize = arguments.next().map_or(Ok(1_000), |text| text.parse())?;
    let model = Arc::new(Worker { turns, asked: Mutex::default() });
    let store: Arc<dyn Store> = match arguments.next() {
        Some(dir) => Arc::new(SqliteStore::open(Path::new(&dir))?),
        None => Arc::new(MemoryStore::default()),
    };
    let started = Instant::now();
    let end = run(&model, store).await?;
    let took = started.elapsed();
    if end != RunEnd::Over(RunStatus::Succeeded, None) {
        return Err(format!("the run ended otherwise: {end:?}").into());
    }
    let asked = model.asked.lock().unwrap_or_else(PoisonError::into_inner);
    let each: Vec<_> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let tenth = each.len() / 10;
    let early = median(&each[..tenth]);
    let late = median(&each[each.len() - tenth..]);
    let out = &mut std::io::stdout();
    writeln!(out, "turns: {turns}\nwhole: {} ns", took.as_nanos())?;
    writeln!(out, "early: {} ns\nlate: {} ns", early.as_nanos(), late.as_nanos())?;
    writeln!(out, "peak: {} KiB", peak())?;
    Ok(())
}

async fn run(
    model: &Arc<Worker>,
    store: Arc<dyn Store>,
) -> Result<RunEnd, Box<dyn std::error::Error>> {
    let source = format!(
        "digraph turns {{ start -> work -> exit; work [prompt=\"Work.\", max_turns={}] }}",
        model.turns
    );
    let workflow = Workflow::from_source("turns", &source).map_err(|error| error.message)?;
    let plan = Arc::new(Plan::compile(workflow)?);
    let run_id = RunId::from_parts(1_700_000_000_000, 1);
    let dirs = tempfile::tempdir()?;
    let work_dir = dirs.path().to_string_lossy().into_owned();
    let new = NewRun { work_dir, ..NewRun::default() };
    let created = begin(run_id, 0, &plan, new);
    let batch = Batch { events: &created.events, blobs: &created.blobs, consumed: &[] };
    store.append(run_id, 0, &batch).await?;
    let sink: Arc<dyn EventSink> = Arc::new(|_: &Event| {});
    let worker = Arc::clone(model);
    let handler = Registry::new(Services {
        exec: None,
        env: Vec::new(),
        models: Arc::new(move |_| Arc::clone(&worker) as _),
        defaults: ModelDefaults::default(),
        agents: Agents { toolbox: Arc::new(OneTool), ..Agents::default() },
        interviewer: Arc::new(AutoApprove),
        user: "demo".to_owned(),
        children: Arc::new(NoChildren),
        sink: Arc::clone(&sink),
        artifacts: None,
        clock: Arc::new(|| 0),
    });
    let state = RunState::replay(run_id, &created.events);
    let machine = Machine::new(plan, state);
    let world = World {
        store,
        handler,
        sink,
        clock: Arc::new(|| 0),
        run_dir: dirs.path().join("run"),
        stop: tokio_util::sync::CancellationToken::new(),
    };
    Ok(drive(machine, Input::Start, world).await?)
}

fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// The most memory that the process has taken, in KiB; 0 where that cannot be known.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|text| text.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}
