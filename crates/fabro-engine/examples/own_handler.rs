//! A workflow without any model, run with a handler of your own:
//! `cargo run -p fabro-engine --example own_handler`.

use std::io::Write;

use async_trait::async_trait;
use fabro_engine::{Handler, Stage, StageEnd, run_in_memory};
use fabro_types::{ContextPatch, Failure, FailureClass, Outcome};

const WORKFLOW: &str = r#"digraph orders {
    start -> fetch -> check
    fetch [max_retries=2, retry_policy=standard]
    check -> fetch [label="more", condition="rows < 3"]
    check -> exit
}"#;

/// Fetches a row at a time; only the second attempt of the first visit succeeds.
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
    let (end, state) = run_in_memory(WORKFLOW, Orders, ContextPatch::new()).await?;
    let rows = state.main().and_then(|main| main.context.get("rows").cloned());
    writeln!(std::io::stdout(), "{end:?} with {} rows", rows.unwrap_or_default())?;
    Ok(())
}
