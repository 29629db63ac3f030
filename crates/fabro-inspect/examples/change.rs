//! What would a change of a prompt have changed? `cargo run -p fabro-inspect --example change`.

use std::io::Write;
use std::sync::Arc;

use fabro_engine::{Input, Machine, NewRun, RunState, World, begin, drive};
use fabro_events::Event;
use fabro_gate::AutoApprove;
use fabro_handlers::{Agents, ModelDefaults, Registry, Services};
use fabro_inspect::replay::{Replay, replay};
use fabro_llm::Script;
use fabro_run::{Bundle, BundledChildren, RunSettings};
use fabro_store::{Batch, MemoryStore, RunLog};
use fabro_types::RunId;

const WORKFLOW: &str = r#"digraph greet {
    start -> greet -> check -> exit
    greet [shape=tab, prompt="Greet the world.\nBe friendly."]
    check [shape=tab, prompt="Was that friendly?"]
}"#;

const MODEL: &str = r#"{"greet": [{"text": "Hello!"}], "check": [{"text": "Yes."}]}"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Arc::new(MemoryStore::default());
    let run = RunId::from_parts(1, 1);
    record(&store, run).await?;

    let mut what = Replay::new(store, run);
    let report = replay(what.clone()).await?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{} events, the same: {}", report.compared, report.is_same())?;

    what.workflow = Some(bundle(&WORKFLOW.replace("Be friendly.", "Be brief.")));
    for difference in replay(what).await?.differences {
        let stage = difference.stage.unwrap_or_default();
        writeln!(out, "{} of {stage}", difference.aspect.as_str())?;
        writeln!(out, "{}", difference.diff.unwrap_or_default())?;
    }
    Ok(())
}

fn bundle(source: &str) -> Bundle {
    Bundle {
        name: "greet".into(),
        file: "greet.fabro".into(),
        source: source.into(),
        base: String::new(),
        files: [].into(),
        settings: RunSettings::default(),
        constants: None,
    }
}

async fn record(store: &Arc<MemoryStore>, run: RunId) -> Result<(), Box<dyn std::error::Error>> {
    let bundle = bundle(WORKFLOW);
    let plan = Arc::new(bundle.plan()?);
    let dirs = tempfile::tempdir()?;
    let work_dir = dirs.path().to_string_lossy().into_owned();
    let new = NewRun { work_dir, bundle: bundle.to_bytes(), ..NewRun::default() };
    let created = begin(run, 0, &plan, new);
    let batch = Batch { events: &created.events, blobs: &created.blobs, consumed: &[] };
    store.append(run, 0, &batch).await?;
    let script = Script::from_json(MODEL)?;
    let handler = Registry::new(Services {
        exec: None,
        env: Vec::new(),
        models: Arc::new(move |stage| Arc::new(script.model_of(stage))),
        defaults: ModelDefaults::default(),
        agents: Agents::default(),
        interviewer: Arc::new(AutoApprove),
        user: "demo".to_owned(),
        children: Arc::new(BundledChildren),
        sink: Arc::new(|_: &Event| {}),
        artifacts: None,
        clock: Arc::new(|| 0),
    });
    let state = RunState::replay(run, &created.events);
    let machine = Machine::new(plan, state);
    let world = World {
        store: Arc::clone(store) as _,
        handler,
        sink: Arc::new(|_: &Event| {}),
        clock: Arc::new(|| 0),
        run_dir: dirs.path().join("run"),
        stop: tokio_util::sync::CancellationToken::new(),
    };
    drive(machine, Input::Start, world).await?;
    Ok(())
}
