use std::borrow::Cow;
use std::sync::Arc;

use crate::tool::{Call, Output, Tool};
use async_trait::async_trait;
use fabro_llm::ToolSpec;
use fabro_preamble::memory::ToolContext;
use rmcp::model::{CallToolRequestParams, MetaObject, RequestMetaObject};
use serde_json::{Value, json};

use crate::call::unless_canceled;
use crate::mcp::link::Link;
use crate::schema::Schema;

/// A tool of a server.
pub(crate) struct McpTool {
    spec: ToolSpec,
    link: Arc<Link>,
    /// What the server calls it.
    name: Cow<'static, str>,
    repeatable: bool,
    instructions: Option<String>,
    /// The schema of its structured results.
    output: Option<Schema>,
}

impl McpTool {
    /// The tool `offered`, which the model calls `name`.
    pub(crate) fn new(
        name: String,
        offered: rmcp::model::Tool,
        link: Arc<Link>,
        instructions: Option<String>,
    ) -> Self {
        let hints = offered.annotations.unwrap_or_default();
        let repeatable = hints.read_only_hint == Some(true) || hints.idempotent_hint == Some(true);
        let description = match (offered.description, offered.title) {
            (Some(description), _) => description.into_owned(),
            (None, Some(title)) => title,
            (None, None) => format!("`{}` of the MCP server `{}`", offered.name, link.name),
        };
        let schema = Arc::unwrap_or_clone(offered.input_schema);
        let parameters = Arc::new(Value::Object(schema));
        // One that is not valid says nothing about results.
        let output = offered.output_schema.map(Arc::unwrap_or_clone).map(Value::Object);
        let output = output.and_then(|schema| Schema::compile(&schema).ok());
        let spec = ToolSpec { name, description, parameters };
        Self { spec, link, name: offered.name, repeatable, instructions, output }
    }
}

#[async_trait]
impl Tool for McpTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn instructions(&self) -> Option<&str> {
        self.instructions.as_deref()
    }

    fn ends_slowly(&self) -> bool {
        true
    }

    async fn call(&self, call: Call<'_>) -> Output {
        let mut params =
            CallToolRequestParams::new(self.name.clone()).with_arguments(call.arguments.clone());
        if self.link.settings.context {
            params.meta = Some(meta(call.context));
        }
        // The future of a call is large.
        let call_server = Box::pin(self.link.call(params, self.repeatable, self.output.as_ref()));
        let output = unless_canceled(call.cancel, call_server).await;
        if call.cancel.is_cancelled() {
            self.link.notices_sent().await;
        }
        output
    }
}

fn meta(context: &ToolContext) -> RequestMetaObject {
    let memory = json!({
        "workflow_summary": context.workflow_summary,
        "recent_turns": context.recent_turns,
        "round": context.round,
    });
    RequestMetaObject(MetaObject([("fabro/context".to_owned(), memory)].into_iter().collect()))
}
