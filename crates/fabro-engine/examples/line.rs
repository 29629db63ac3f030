//! What the engine itself costs a stage: a loop of two nodes whose handler does nothing, on the
//! store in memory. `cargo run --release -p fabro-engine --example line -- 10000`.

use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use fabro_engine::{
    Handler, Input, Machine, NewRun, Plan, RunEnd, RunState, Stage, StageEnd, World, begin, drive,
};
use fabro_events::Event;
use fabro_graph::Workflow;
use fabro_store::{Batch, MemoryStore, RunLog};
use fabro_types::{Outcome, RunId, RunStatus};

/// Succeeds at once with one value, as a short command would.
struct Nothing;

#[async_trait]
impl Handler for Nothing {
    async fn execute(&self, stage: Stage) -> StageEnd {
        Outcome::succeeded().with_update("visit", stage.at.visit).into()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let stages: u32 = std::env::args().nth(1).map_or(Ok(1_000), |text| text.parse())?;
    let source = format!(
        "digraph line {{
            start -> a -> b
            b -> a [condition=\"internal.node_visit_count < {0}\"]
            b -> exit [condition=\"internal.node_visit_count >= {0}\"]
        }}",
        stages / 2
    );
    let workflow = Workflow::from_source("line", &source).map_err(|finding| finding.message)?;
    let plan = Arc::new(Plan::compile(workflow)?);
    let run_id = RunId::from_parts(1_700_000_000_000, 1);
    let created = begin(run_id, 0, &plan, NewRun::default());
    let store = Arc::new(MemoryStore::default());
    let batch = Batch { events: &created.events, blobs: &created.blobs, consumed: &[] };
    store.append(run_id, 0, &batch).await?;

    let started = Instant::now();
    let state = RunState::replay(run_id, &created.events);
    let world = World {
        store: Arc::clone(&store) as _,
        handler: Arc::new(Nothing),
        sink: Arc::new(|_: &Event| {}),
        clock: Arc::new(|| 0),
        run_dir: std::env::temp_dir(),
        stop: tokio_util::sync::CancellationToken::new(),
    };
    let end = drive(Machine::new(plan, state), Input::Start, world).await?;
    let took = started.elapsed();
    if end != RunEnd::Over(RunStatus::Succeeded, None) {
        return Err(format!("the run ended otherwise: {end:?}").into());
    }
    let each = took.as_nanos() / u128::from(stages.max(1));
    writeln!(std::io::stdout(), "{stages} stages in {} ns, {each} ns a stage", took.as_nanos())?;
    Ok(())
}
