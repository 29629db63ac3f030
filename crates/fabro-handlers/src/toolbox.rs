//! The tools of agents on this machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use fabro_config::McpServer;
use fabro_redact::Redactor;
use fabro_sandbox::{Exec, Files, InSandbox, LocalFiles, MarkedExec, Sandbox, WithValues};
use fabro_tools::mcp::{Servers, tool_prefix};
use fabro_tools::{
    Shell, Tool, ToolSet, WorkflowContext, append_workflow_context, file_tools,
    get_workflow_context,
};
use fabro_types::{Failure, Permissions};
use tokio::sync::OnceCell;

use crate::agents::{FailedServer, Offer, Toolbox};
use crate::common::failed;

/// Files, searches, commands and the web, on this machine; MCP servers and the tools of settings.
pub struct LocalToolbox {
    exec: Arc<dyn Exec>,
    env: Vec<(String, String)>,
    redactor: Redactor,
    web: Vec<Arc<dyn Tool>>,
    mcp: BTreeMap<String, McpServer>,
    logins: Option<PathBuf>,
    /// By the working directory, where they run: branches may have one each.
    servers: Mutex<BTreeMap<PathBuf, Arc<OnceCell<Servers>>>>,
    sandbox: Option<Arc<Sandbox>>,
}

impl LocalToolbox {
    /// Commands of agents run by `exec`, and these are all the variables they see.
    pub fn new(exec: Arc<dyn Exec>, env: Vec<(String, String)>, redactor: Redactor) -> Self {
        let web = Vec::new();
        let mcp = BTreeMap::new();
        let servers = Mutex::default();
        Self { exec, env, redactor, web, mcp, logins: None, servers, sandbox: None }
    }

    /// The file tools show what commands in this sandbox see; `exec` is in it.
    #[must_use]
    pub fn in_sandbox(self, sandbox: Option<Arc<Sandbox>>) -> Self {
        Self { sandbox, ..self }
    }

    /// Adds tools that are the same everywhere: `web_fetch`, HTTP tools.
    #[must_use]
    pub fn with_tools(mut self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        self.web.extend(tools);
        self
    }

    /// Adds the tools of these servers, with variables expanded, which start when an agent that may call
    /// them begins. `logins` is the directory of the logins at servers.
    #[must_use]
    pub fn with_servers(self, mcp: BTreeMap<String, McpServer>, logins: Option<PathBuf>) -> Self {
        Self { mcp, logins, ..self }
    }

    async fn servers(&self, work_dir: &Path) -> Arc<OnceCell<Servers>> {
        let connect =
            || Servers::connect(self.mcp.clone(), work_dir, &self.env, self.logins.as_deref());
        let servers = {
            // Every change is whole before the lock is given back.
            let mut all = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(all.entry(work_dir.to_owned()).or_default())
        };
        servers.get_or_init(connect).await;
        servers
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
        let mut tools = vec![get_workflow_context(Arc::clone(&workflow))];
        tools.push(append_workflow_context(Arc::clone(&workflow)));
        let mut warnings = Vec::new();
        let mut failed_servers = Vec::new();
        match LocalFiles::new(work_dir) {
            Ok(files) => {
                let is_full = permissions == Permissions::Full;
                let files = match &self.sandbox {
                    // Its commands cannot change `.git` and `.fabro` either.
                    Some(sandbox) => files.hiding(sandbox.hidden_in(work_dir)),
                    None if is_full => files.with_full_access(),
                    None => files,
                };
                let reads = [workflow.value_dirs(), workflow.artifact_dirs()].concat();
                let files =
                    WithValues::new(files, workflow.value_dirs()).reading(workflow.artifact_dirs());
                let files: Arc<dyn Files> = match &self.sandbox {
                    Some(sandbox) => {
                        let sandbox = Arc::clone(sandbox);
                        let values = workflow.value_dirs();
                        Arc::new(InSandbox::new(files, sandbox, work_dir.to_owned(), values))
                    }
                    None => Arc::new(files),
                };
                tools.extend(file_tools(Arc::clone(&files)));
                let shell = Shell {
                    // Of this agent alone: what its commands leave running ends with its stage.
                    exec: Arc::new(MarkedExec::new(Arc::clone(&self.exec))),
                    files,
                    root: work_dir.to_owned(),
                    env: self.env.clone(),
                    reads,
                    redactor: self.redactor.clone(),
                };
                tools.push(shell.into_tool());
            }
            Err(error) => warnings.push(format!("no tools for files and commands: {error}")),
        }
        tools.extend(self.web.iter().cloned());
        // Agents that may not call them need not wait for them.
        if permissions == Permissions::Full
            && !self.mcp.is_empty()
            && let Some(servers) = self.servers(work_dir).await.get()
        {
            tools.extend(servers.tools());
            // They quote what a server answered, which may be anything.
            let redacted = |text: &str| self.redactor.redact(text).into_owned();
            failed_servers.extend(servers.failed().iter().map(|error| FailedServer {
                name: error.server.clone(),
                tool_prefix: tool_prefix(&error.server),
                problem: redacted(&error.to_string()),
            }));
            warnings.extend(failed_servers.iter().map(|server| server.problem.clone()));
            warnings.extend(servers.warnings().iter().map(|warning| redacted(warning)));
        }
        let empty = ToolSet::new().with_redactor(self.redactor.clone());
        Offer { tools: tools.into_iter().fold(empty, ToolSet::with), warnings, failed_servers }
    }

    fn check(&self, work_dir: &Path) -> Result<String, Failure> {
        let Some(sandbox) = &self.sandbox else { return Ok(String::new()) };
        sandbox.check_again(work_dir).map_err(|error| failed(&error))
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use fabro_sandbox::LocalExec;
    use fabro_tools::{AppendError, Call, ToolContext};
    use serde_json::{Map, Value, json};
    use tokio_util::sync::CancellationToken;

    use super::*;

    struct NoContext;

    #[async_trait]
    impl WorkflowContext for NoContext {
        fn read(&self, _: &[String]) -> Map<String, Value> {
            Map::new()
        }

        async fn append(&self, _: &str) -> Result<(), AppendError> {
            Ok(())
        }
    }

    async fn shell(offer: &Offer, command: &str) -> String {
        let arguments = json!({ "command": command });
        let call = Call {
            id: "1",
            arguments: arguments.as_object().unwrap(),
            context: &ToolContext::default(),
            cancel: &CancellationToken::new(),
            redactor: &Redactor::default(),
        };
        offer.tools.get("shell").unwrap().call(call).await.text
    }

    #[tokio::test]
    async fn what_an_agent_leaves_ends_with_its_stage() {
        let place = tempfile::tempdir().unwrap();
        let env = vec![("PATH".to_owned(), std::env::var("PATH").unwrap())];
        let toolbox = LocalToolbox::new(Arc::new(LocalExec::new()), env, Redactor::default());
        let offer =
            async || toolbox.tools(place.path(), Permissions::Full, Arc::new(NoContext)).await;
        let one = offer().await;
        let other = offer().await;
        let mut left = Vec::new();
        for offer in [&one, &other] {
            let start = "setsid -f sh -c 'echo $$ > new; mv new pid; exec sleep 600' >&- 2>&-; \
                         until test -e pid; do sleep 0.01; done; cat pid; rm pid";
            left.push(shell(offer, start).await);
        }
        let runs = |pid: &str| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
        };
        assert!(left.iter().all(|pid| runs(pid)), "later commands may use it");
        drop(one);
        assert_eq!((runs(&left[0]), runs(&left[1])), (false, true), "another agent's continues");
        drop(other);
        assert!(!runs(&left[1]));
    }
}
