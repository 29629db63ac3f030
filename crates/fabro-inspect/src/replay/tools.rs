//! The tools that agents of a recorded run were offered, as far as a prompt tells of them.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use fabro_config::AgentSettings;
use fabro_handlers::{Offer, Toolbox};
use fabro_redact::Redactor;
use fabro_sandbox::MemoryFiles;
use fabro_tools::web::HttpToolCall;
use fabro_tools::{
    ToolSet, WorkflowContext, append_workflow_context, file_tools, get_workflow_context,
};
use fabro_types::Permissions;

/// Offers tools for their instructions; none is called.
pub(crate) struct RecordedTools {
    pub(crate) settings: AgentSettings,
}

#[async_trait]
impl Toolbox for RecordedTools {
    async fn tools(&self, _: &Path, _: Permissions, workflow: Arc<dyn WorkflowContext>) -> Offer {
        let mut set = ToolSet::new();
        for tool in &self.settings.tools {
            // A tool that could not be set up was not offered either.
            if let Ok(tool) = HttpToolCall::new(tool.clone(), &[].into(), Redactor::default()) {
                set = set.with(Arc::new(tool));
            }
        }
        for tool in file_tools(Arc::new(MemoryFiles::default())) {
            set = set.with(tool);
        }
        let set = set.with(get_workflow_context(Arc::clone(&workflow)));
        Offer { tools: set.with(append_workflow_context(workflow)), ..Offer::default() }
    }
}
