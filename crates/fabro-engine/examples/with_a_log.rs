//! A run whose log is kept: its driver is stopped in the middle of a stage, and the run resumes from
//! the log. `cargo run -p fabro-engine --example with_a_log`.

use std::io::Write;
use std::sync::Arc;

use async_trait::async_trait;
use fabro_engine::{
    Handler, Input, Machine, NewRun, Plan, RunState, Stage, StageEnd, World, begin, drive, read_all,
};
use fabro_events::Event;
use fabro_graph::Workflow;
use fabro_store::{Batch, MemoryStore, RunLog};
use fabro_types::{Outcome, RunId};
use tokio_util::sync::CancellationToken;

/// Succeeds at once; stops the driver during the stage `second` if it has something to stop it by.
struct Worker(Option<CancellationToken>);

#[async_trait]
impl Handler for Worker {
    async fn execute(&self, stage: Stage) -> StageEnd {
        if let Some(stop) = self.0.as_ref().filter(|_| &*stage.at.node == "second") {
            stop.cancel();
            std::future::pending::<()>().await;
        }
        Outcome::succeeded().into()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let source = "digraph { start -> first -> second -> exit }";
    let workflow = Workflow::from_source("log", source).map_err(|finding| finding.message)?;
    let plan = Arc::new(Plan::compile(workflow)?);
    let id = RunId::from_parts(1_700_000_000_000, 1);
    // A store that outlives the process is `SqliteStore` of fabro-store, or one of your own.
    let store = Arc::new(MemoryStore::default());
    let created = begin(id, 0, &plan, NewRun::default());
    let batch = Batch { events: &created.events, blobs: &created.blobs, consumed: &[] };
    store.append(id, 0, &batch).await?;

    let stop = CancellationToken::new();
    let machine = Machine::new(plan.clone(), RunState::replay(id, &created.events));
    let stopped = drive(machine, Input::Start, world(&store, Some(stop))).await?;
    writeln!(std::io::stdout(), "{stopped:?}")?;

    // `first` is in the log as completed, so only `second` runs again.
    let state = RunState::replay(id, &read_all(&*store, id).await?);
    let machine = Machine::new(plan, state);
    let end = drive(machine, Input::Resume { max_cost: None }, world(&store, None)).await?;
    writeln!(std::io::stdout(), "{end:?}")?;
    Ok(())
}

fn world(store: &Arc<MemoryStore>, stop: Option<CancellationToken>) -> World {
    let print = |event: &Event| {
        // A closed pipe is not an error here.
        let _ = writeln!(std::io::stdout(), "{}", event.to_json_line());
    };
    World {
        store: Arc::clone(store) as _,
        handler: Arc::new(Worker(stop.clone())),
        sink: Arc::new(print),
        clock: Arc::new(|| 0),
        run_dir: std::env::temp_dir(),
        stop: stop.unwrap_or_default(),
    }
}
