//! A workflow without any model, driven with a handler of one's own:
//! `cargo run -p fabro-engine --example own_handler`.

use std::io::Write;
use std::sync::Arc;

use async_trait::async_trait;
use fabro_engine::{
    Handler, Input, Machine, NewRun, Plan, RunState, Stage, StageEnd, World, begin, drive,
};
use fabro_events::{Event, EventBody};
use fabro_graph::Workflow;
use fabro_store::{Batch, MemoryStore, RunLog};
use fabro_types::{Failure, FailureClass, Outcome, RunId};

const WORKFLOW: &str = r#"digraph orders {
    start -> fetch -> check
    fetch [max_retries=2, retry_policy=standard]
    check -> fetch [label="more", condition="rows < 3"]
    check -> exit
}"#;

/// Fetches a row at a time; the second attempt of the first visit is the one that works.
struct Orders;

#[async_trait]
impl Handler for Orders {
    async fn execute(&self, stage: Stage) -> StageEnd {
        let rows = stage.context.get("rows").and_then(serde_json::Value::as_u64).unwrap_or(0);
        match &*stage.at.node {
            "fetch" if stage.at.visit == 1 && stage.at.attempt == 1 => {
                Failure::new(FailureClass::TransientInfra, "the server is away").into()
            }
            "fetch" => Outcome::succeeded().with_update("rows", rows + 1).into(),
            _ => Outcome::succeeded().into(),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (workflow, _) =
        Workflow::from_source("orders", WORKFLOW).map_err(|finding| finding.message)?;
    let plan = Arc::new(Plan::compile(workflow)?);
    let run_id = RunId::from_parts(1_700_000_000_000, 1);
    let created = begin(run_id, 0, &plan, NewRun::default());
    let store = Arc::new(MemoryStore::default());
    let batch = Batch { events: &created.events, blobs: &created.blobs, consumed: &[] };
    store.append(run_id, 0, &batch).await?;

    let state = RunState::replay(run_id, &created.events);
    let machine = Machine::new(plan, state);
    let world = World {
        store: Arc::clone(&store) as _,
        handler: Arc::new(Orders),
        sink: Arc::new(tell),
        clock: Arc::new(|| 0),
        run_dir: std::env::temp_dir(),
        stop: tokio_util::sync::CancellationToken::new(),
    };
    let end = drive(machine, Input::Start, world).await?;
    // The log is all there is: any reader comes to the same state.
    let events = store.read(run_id, 0, usize::MAX).await?;
    let state = RunState::replay(run_id, &events);
    let rows = state.main().and_then(|main| main.context.get("rows").cloned());
    writeln!(std::io::stdout(), "{end:?} with {} rows", rows.unwrap_or_default())?;
    Ok(())
}

/// Is told of an event once it is recorded.
fn tell(event: &Event) {
    let node = event.entry.node_id.as_deref().unwrap_or_default();
    let line = match &event.entry.body {
        EventBody::StageRetrying { failure, delay_ms, .. } => {
            format!("{node} again in {delay_ms} ms: {failure}")
        }
        EventBody::StageCompleted(end) => format!("{node} {}", end.outcome.status),
        EventBody::EdgeSelected(choice) => format!("  -> {} ({})", choice.to, choice.tier.as_str()),
        _ => return,
    };
    // Nobody reads on when the pipe is closed.
    let _ = writeln!(std::io::stdout(), "{line}");
}
