//! The tools of agents that work on this machine.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use fabro_mcp::{Server, Servers};
use fabro_redact::Redactor;
use fabro_sandbox::{Exec, Files, LocalFiles, Protected};
use fabro_tools::{
    Shell, Tool, ToolSet, WorkflowContext, append_workflow_context, file_tools,
    get_workflow_context,
};
use fabro_types::Permissions;
use tokio::sync::OnceCell;

use crate::agents::{Offer, Toolbox};

/// Files, searches, commands and the web, on this machine; MCP servers and the tools of settings.
pub struct LocalToolbox {
    exec: Arc<dyn Exec>,
    env: Vec<(String, String)>,
    redactor: Redactor,
    web: Vec<Arc<dyn Tool>>,
    mcp: Vec<Server>,
    servers: OnceCell<Servers>,
}

impl LocalToolbox {
    /// Commands of agents run by `exec`, and these are all the variables they see.
    pub fn new(exec: Arc<dyn Exec>, env: Vec<(String, String)>, redactor: Redactor) -> Self {
        let (web, mcp, servers) = (Vec::new(), Vec::new(), OnceCell::new());
        Self { exec, env, redactor, web, mcp, servers }
    }

    /// Adds tools that work the same everywhere: `web_fetch`, HTTP tools.
    #[must_use]
    pub fn with_tools(mut self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        self.web.extend(tools);
        self
    }

    /// Adds the tools of these servers, which start when an agent that may call them begins.
    #[must_use]
    pub fn with_servers(self, mcp: Vec<Server>) -> Self {
        Self { mcp, ..self }
    }

    async fn servers(&self, work_dir: &Path) -> &Servers {
        let connect = || Servers::connect(self.mcp.clone(), work_dir, &self.env);
        self.servers.get_or_init(connect).await
    }
}

#[async_trait]
impl Toolbox for LocalToolbox {
    async fn tools(
        &self,
        work_dir: &Path,
        permissions: Permissions,
        workflow: Arc<dyn WorkflowContext>,
    ) -> Offer {
        let mut tools =
            vec![get_workflow_context(Arc::clone(&workflow)), append_workflow_context(workflow)];
        let mut warnings = Vec::new();
        match LocalFiles::new(work_dir) {
            Ok(files) => {
                let files: Arc<dyn Files> = Arc::new(Protected::new(files));
                tools.extend(file_tools(Arc::clone(&files)));
                let shell = Shell {
                    exec: Arc::clone(&self.exec),
                    files,
                    root: work_dir.to_owned(),
                    env: self.env.clone(),
                    redactor: self.redactor.clone(),
                };
                tools.push(shell.into_tool());
            }
            Err(error) => warnings.push(format!("no tools for files and commands: {error}")),
        }
        tools.extend(self.web.iter().cloned());
        // Agents that may not call them need not wait for them.
        if permissions == Permissions::Full && !self.mcp.is_empty() {
            let servers = self.servers(work_dir).await;
            tools.extend(servers.tools());
            // They quote what a server said, and a server may say anything.
            let said = servers.failed().iter().map(ToString::to_string);
            warnings.extend(said.map(|said| self.redactor.redact(&said).into_owned()));
        }
        let empty = ToolSet::new().with_redactor(self.redactor.clone());
        Offer { tools: tools.into_iter().fold(empty, ToolSet::with), warnings }
    }
}
