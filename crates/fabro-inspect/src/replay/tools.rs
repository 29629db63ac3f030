//! Tools that give the results that were recorded, and do nothing.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use fabro_config::AgentSettings;
use fabro_handlers::{Offer, Toolbox};
use fabro_llm::ToolSpec;
use fabro_redact::Redactor;
use fabro_sandbox::MemoryFiles;
use fabro_tools::web::HttpToolCall;
use fabro_tools::{
    Call, Output, Tool, ToolSet, WorkflowContext, append_workflow_context, file_tools,
    get_workflow_context,
};
use fabro_types::Permissions;
use serde_json::{Value, json};

use crate::replay::model::Recorded;

/// Tools that sessions bring themselves.
const OWN: [&str; 4] = ["spawn_agent", "send_input", "wait", "close_agent"];

/// The tools that agents of a run were offered, as far as that is known.
pub(crate) struct RecordedTools {
    pub(crate) recorded: Recorded,
    pub(crate) settings: AgentSettings,
}

#[async_trait]
impl Toolbox for RecordedTools {
    async fn tools(&self, _: &Path, _: Permissions, workflow: Arc<dyn WorkflowContext>) -> Offer {
        let append = append_workflow_context(Arc::clone(&workflow));
        let mut known = file_tools(Arc::new(MemoryFiles::default()));
        known.push(get_workflow_context(workflow));
        // What was called stands for the rest: shell, the web, MCP servers.
        let called =
            self.recorded.attempt.called.iter().filter(|name| !OWN.contains(&name.as_str()));
        let others = called.map(|name| Named::tool(name));
        let mut set = others.fold(ToolSet::new(), |set, tool| set.with(self.recorded(tool, None)));
        for tool in &self.settings.tools {
            // A tool that could not be set up was not offered either.
            let call = HttpToolCall::new(tool.clone(), &[].into(), Redactor::default());
            if let Ok(call) = call {
                set = set.with(self.recorded(Arc::new(call), None));
            }
        }
        for tool in known {
            set = set.with(self.recorded(tool, None));
        }
        // What an agent puts down is part of its stage's outcome, not of the world.
        let set = set.with(self.recorded(Arc::clone(&append), Some(append)));
        Offer { tools: set, warnings: Vec::new() }
    }
}

impl RecordedTools {
    fn recorded(&self, like: Arc<dyn Tool>, done: Option<Arc<dyn Tool>>) -> Arc<dyn Tool> {
        Arc::new(RecordedTool { like, done, recorded: self.recorded.clone() })
    }
}

struct RecordedTool {
    /// Has its name, its schema, its permissions.
    like: Arc<dyn Tool>,
    /// Is called all the same.
    done: Option<Arc<dyn Tool>>,
    recorded: Recorded,
}

#[async_trait]
impl Tool for RecordedTool {
    fn spec(&self) -> &ToolSpec {
        self.like.spec()
    }

    fn needs(&self) -> Permissions {
        self.like.needs()
    }

    fn instructions(&self) -> Option<&str> {
        self.like.instructions()
    }

    async fn call(&self, call: Call<'_>) -> Output {
        let id = call.id;
        if let Some(tool) = &self.done {
            tool.call(call).await;
        }
        let Some((seq, done)) = self.recorded.attempt.result(id, &self.spec().name) else {
            if self.recorded.attempt.is_of_sub(id) {
                return Output::error("nothing was recorded");
            }
            // The recorded run ends in the middle of it.
            self.recorded.silent.notify_one();
            return std::future::pending().await;
        };
        self.recorded.turnstile.pass(&self.recorded.key, seq).await;
        let text = match &*done.output {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        Output {
            text,
            is_error: done.is_error,
            files_read: done.files_read,
            files_modified: done.files_modified,
            files_seen: done.files_seen,
        }
    }
}

/// A tool of which nothing is known but its name.
struct Named(ToolSpec);

impl Named {
    fn tool(name: &str) -> Arc<dyn Tool> {
        let parameters = Arc::new(json!({"type": "object"}));
        Arc::new(Self(ToolSpec { name: name.to_owned(), description: String::new(), parameters }))
    }
}

#[async_trait]
impl Tool for Named {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn needs(&self) -> Permissions {
        Permissions::ReadOnly
    }

    async fn call(&self, _: Call<'_>) -> Output {
        Output::default()
    }
}
