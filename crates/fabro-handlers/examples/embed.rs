//! Runs a workflow inside another program: `cargo run -p fabro-handlers --example embed`.

use std::io::Write;
use std::sync::Arc;

use fabro_engine::{Input, Machine, NewRun, RunState, World, begin, drive};
use fabro_events::{Event, EventSink};
use fabro_gate::AutoApprove;
use fabro_handlers::{
    Agents, Bundle, BundledChildren, Limits, ModelDefaults, Registry, RunSettings, Services,
};
use fabro_llm::ScriptedModel;
use fabro_sandbox::LocalExec;
use fabro_store::{Batch, MemoryStore, RunLog};
use fabro_types::RunId;

const WORKFLOW: &str = r#"digraph greet {
    start -> who -> greet; greet [shape=tab, prompt="Greet {{ context.command.output }}."]
    who [shape=parallelogram, script="id -un"]
    greet -> greet [condition="friendly=false && internal.node_visit_count < 3"]
    greet -> exit
}"#;

const MODEL: &str = r#"{"greet": [
    {"text": "You. {\"context_updates\": {\"friendly\": false}}"},
    {"text": "Hello! {\"context_updates\": {\"friendly\": true}}"}
]}"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bundle = Bundle {
        name: "greet".into(),
        file: "greet.fabro".into(),
        source: WORKFLOW.into(),
        base: String::new(),
        files: [].into(),
        settings: RunSettings::default(),
    };
    let plan = Arc::new(bundle.plan()?);
    let run_id = RunId::from_parts(1_700_000_000_000, 1);
    let dirs = tempfile::tempdir()?;
    let work_dir = dirs.path().to_string_lossy().into_owned();
    let new = NewRun { work_dir, bundle: bundle.to_bytes(), ..NewRun::default() };
    let created = begin(run_id, 0, &plan, new);
    let store = Arc::new(MemoryStore::default());
    let batch = Batch { events: &created.events, blobs: &created.blobs, consumed: &[] };
    store.append(run_id, 0, &batch).await?;

    let sink: Arc<dyn EventSink> = Arc::new(|event: &Event| {
        // Nobody reads on when the pipe is closed.
        let _ = writeln!(std::io::stdout(), "{}", event.to_json_line());
    });
    let handler = Registry::new(Services {
        exec: Some(Arc::new(LocalExec::new())),
        env: Vec::new(),
        model: Arc::new(ScriptedModel::from_json(MODEL)?),
        defaults: ModelDefaults::default(),
        agents: Agents::default(),
        limits: Limits::default(),
        interviewer: Arc::new(AutoApprove),
        children: Arc::new(BundledChildren),
        sink: Arc::clone(&sink),
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
    let end = drive(machine, Input::Start, world).await?;
    writeln!(std::io::stdout(), "{end:?}")?;
    Ok(())
}
