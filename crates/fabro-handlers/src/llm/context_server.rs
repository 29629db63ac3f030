//! `get_workflow_context` for agents that are other programs: an MCP server that they start, on a file of the stage.

use std::io;

use fabro_engine::{ContextTool, Stage};
use fabro_external_agents::ContextServer;
use fabro_tools::WorkflowContext as _;
use serde_json::{Value, json};

use super::LlmHandler;
use super::prepare::StageRequest;
use crate::common::warn;

const TOOL: &str = "get_workflow_context";

/// The server for a stage's agent; `None` where the tool is turned off, or could not be reached.
pub(super) async fn of(
    handler: &LlmHandler,
    stage: &Stage,
    request: &StageRequest,
) -> Option<ContextServer> {
    let agents = &handler.agents;
    let program = agents.context_program.as_ref()?;
    let agent = stage.spec().agent()?;
    let context = request.context.as_ref()?;
    let is_off = agent.context_tool == ContextTool::Off || !agent.may_use(TOOL);
    // A sandbox hides the program and the directory of the run.
    if is_off || stage.run.dry_run || agents.sandbox.is_some() {
        return None;
    }
    let mut shown = json!(request.tool_context);
    shown["context"] = Value::Object(context.read(&[]));
    match write(stage, &shown) {
        Ok(file) => Some(ContextServer::new(program.clone(), ["mcp", "context", "--", &file])),
        Err(error) => {
            let warning = format!("the agent has no {TOOL}: its file cannot be written: {error}");
            warn(&stage.reporter, "backend", warning).await;
            None
        }
    }
}

/// Writes what the agent may see into the directory of the run.
fn write(stage: &Stage, shown: &Value) -> io::Result<String> {
    let dir = std::path::Path::new(&stage.run_dir).join("runtime/context");
    std::fs::create_dir_all(&dir)?;
    let stage_dir = stage.dir();
    let name = stage_dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let file = dir.join(format!("{name}.json"));
    std::fs::write(&file, shown.to_string())?;
    file.into_os_string()
        .into_string()
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidFilename, "its path is not UTF-8"))
}
