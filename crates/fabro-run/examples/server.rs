//! What a server does with a run: `cargo run -p fabro-run --example server`.

use std::io::Write as _;
use std::sync::Arc;

use fabro_events::Event;
use fabro_run::{AnsweredBy, DriveResult, LoadedWorkflow, Run, RunServices, RunSpec, answer};
use fabro_store::SqliteStore;

const WORKFLOW: &str = r#"digraph release {
    start -> check -> ship; check [shape=parallelogram, script="true"]
    ship [shape=hexagon, label="Ship it?"]
    ship -> exit [label="[Y] Yes"]; ship -> check [label="[N] No"]
}"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let store = Arc::new(SqliteStore::open(&dir.path().join("store"))?);
    let spec = RunSpec::new(LoadedWorkflow::parse("release", WORKFLOW)?, dir.path());
    let runs_dir = store.runs_dir();
    let run = Run::create(store.clone(), &runs_dir, spec).await?;
    let id = run.id();
    // Without a person at hand the run pauses at the gate.
    let DriveResult::Paused { gates, .. } = run.drive(services()).await? else {
        return Err("the run did not pause".into());
    };
    for gate in &gates {
        writeln!(std::io::stdout(), "{} {}", gate.node, gate.question)?;
    }
    answer(&*store, id, None, "y", AnsweredBy::new("ann", "http"), None).await?;
    let run = Run::open(store, &runs_dir, id).await?;
    writeln!(std::io::stdout(), "{:?}", run.drive(services()).await?)?;
    Ok(())
}

fn services() -> RunServices {
    let print = |event: &Event| {
        // A closed pipe is not an error here.
        let _ = writeln!(std::io::stdout(), "{}", event.to_json_line());
    };
    RunServices { sink: Arc::new(print), ..RunServices::default() }
}
