//! The context of a workflow, for an agent that is a program of its own: an MCP server with one tool, on a file.

use std::path::{Path, PathBuf};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, ListToolsResult, PaginatedRequestParams, ServerCapabilities,
    ServerConfig as McpConfig, Tool, ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler, ServiceExt as _};
use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::mcp::{McpError, WorkflowContext, cut, parse, schema};

const NAME: &str = "get_workflow_context";

const DESCRIPTION: &str = "Tells what the workflow around you knows: a summary of its earlier turns, the most recent \
    turns, how many there were, and its context values. Long values are cut unless you ask for them by their keys.";

/// Serves the tool `get_workflow_context` to an agent, until it closes its end. The file is one that the driver of the
/// run wrote for the agent's stage.
///
/// # Errors
///
/// The client does not speak the protocol, or ends in the middle of it.
pub async fn serve_context(
    file: &Path,
    (input, output): (
        impl AsyncRead + Send + Unpin + 'static,
        impl AsyncWrite + Send + Unpin + 'static,
    ),
) -> Result<(), McpError> {
    let context = Context { file: file.to_owned() };
    let service = context.serve((input, output)).await.map_err(McpError::of)?;
    service.waiting().await.map_err(McpError::of)?;
    Ok(())
}

struct Context {
    file: PathBuf,
}

impl Context {
    fn read(&self, arguments: Map<String, Value>) -> Result<String, String> {
        let WorkflowContext { keys } = parse(arguments).map_err(|problem| problem.to_string())?;
        let unreadable = |error: &dyn std::fmt::Display| format!("the context is gone: {error}");
        let text = std::fs::read(&self.file).map_err(|error| unreadable(&error))?;
        let mut shown: Value = serde_json::from_slice(&text).map_err(|error| unreadable(&error))?;
        if let Some(values) = shown["context"].as_object_mut() {
            if keys.is_empty() {
                values.values_mut().for_each(cut);
            } else {
                values.retain(|key, _| keys.contains(key));
            }
        }
        Ok(format!("{shown:#}"))
    }
}

impl ServerHandler for Context {
    fn get_info(&self) -> McpConfig {
        McpConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("fabro", env!("CARGO_PKG_VERSION")))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tool = Tool::new(NAME, DESCRIPTION, schema::<WorkflowContext>());
        let tools = vec![tool.annotate(ToolAnnotations::new().read_only(true))];
        Ok(ListToolsResult { tools, ..ListToolsResult::default() })
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if request.name != NAME {
            let message = format!("there is no tool `{}`", request.name.escape_debug());
            return Err(ErrorData::invalid_params(message, None));
        }
        let result = match self.read(request.arguments.unwrap_or_default()) {
            Ok(text) => CallToolResult::success(vec![ContentBlock::text(text)]),
            Err(text) => CallToolResult::error(vec![ContentBlock::text(text)]),
        };
        Ok(result.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn an_agent_reads_the_context_of_its_stage() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("1.json");
        let long = "x".repeat(3_000);
        let shown = json!({"workflow_summary": "", "recent_turns": ["plan (llm): Two steps."],
            "round": 1, "context": {"a": 1, "long": long}});
        std::fs::write(&file, shown.to_string()).unwrap();
        let (near, far) = tokio::io::duplex(1 << 16);
        tokio::spawn(async move { serve_context(&file, tokio::io::split(far)).await });
        let client = ().serve(tokio::io::split(near)).await.unwrap();
        let call = async |arguments: Value| -> Value {
            let Value::Object(arguments) = arguments else { panic!("an object") };
            let request = CallToolRequestParams::new(NAME).with_arguments(arguments);
            let result = client.call_tool(request).await.unwrap();
            serde_json::from_str(&result.content[0].as_text().unwrap().text).unwrap()
        };
        let all = call(json!({})).await;
        assert_eq!(all["recent_turns"], shown["recent_turns"]);
        assert_eq!(all["context"]["a"], 1);
        assert!(all["context"]["long"].as_str().unwrap().contains("cut; name its key"));
        let one = call(json!({"keys": ["long", "none"]})).await;
        assert_eq!(one["context"], json!({"long": long}));
    }
}
