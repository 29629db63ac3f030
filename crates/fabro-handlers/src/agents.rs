//! The services and settings of agents.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use fabro_config::AgentSettings;
use fabro_engine::Stage;
use fabro_llm::{Catalog, RequestPolicy};
use fabro_redact::Redactor;
use fabro_sandbox::Sandbox;
use fabro_tools::{CallGuard, ToolSet, WorkflowContext};
use fabro_types::{Failure, Permissions};

/// What the agents of a run are given and may do, where their nodes do not say.
#[derive(Clone)]
pub struct Agents {
    /// Limits, permissions, compaction, project documents.
    pub settings: AgentSettings,
    /// Windows and prices of models.
    pub catalog: Arc<Catalog>,
    /// How often a model is asked again, and who is asked instead; `None` where the first answer is
    /// final, as that of a script.
    pub asking: Option<RequestPolicy>,
    /// Knows the secrets that must not be recorded.
    pub redactor: Redactor,
    /// Is asked before stages begin and tools are called.
    pub guard: Option<Arc<dyn Guard>>,
    /// Gives them their tools.
    pub toolbox: Arc<dyn Toolbox>,
    /// The environment of agents that are other programs.
    pub backend_env: Vec<(String, String)>,
    /// Variables of the providers of models, of which each of those gets its own.
    pub backend_keys: Vec<(String, String)>,
    /// What confines those agents.
    pub sandbox: Option<Arc<Sandbox>>,
    /// The `fabro` program, which serves the context of the workflow to them as `mcp context FILE`; `None` where
    /// there is none.
    pub context_program: Option<String>,
}

impl Default for Agents {
    /// No tools, no other programs, one try a request.
    fn default() -> Self {
        Self {
            settings: AgentSettings::default(),
            catalog: Arc::new(Catalog::builtin()),
            asking: None,
            redactor: Redactor::default(),
            guard: None,
            toolbox: Arc::new(NoTools),
            backend_env: Vec::new(),
            backend_keys: Vec::new(),
            sandbox: None,
            context_program: None,
        }
    }
}

/// Is asked before something happens that it may forbid.
#[async_trait]
pub trait Guard: Send + Sync {
    /// Asks whether a stage of any kind may do its work.
    ///
    /// # Errors
    ///
    /// It may not: the failure that it ends with.
    async fn stage(&self, stage: &Stage) -> Result<(), Failure>;

    /// What is asked before the calls of tools of this stage's agent; `None` when they need not be.
    fn calls(&self, stage: &Stage) -> Option<Arc<dyn CallGuard>>;
}

/// Puts together the tools of an agent.
#[async_trait]
pub trait Toolbox: Send + Sync {
    /// All tools of an agent with this working directory; it is offered those that its node names
    /// and its permissions allow.
    async fn tools(
        &self,
        work_dir: &Path,
        permissions: Permissions,
        workflow: Arc<dyn WorkflowContext>,
    ) -> Offer;

    /// Checks the working directory when an agent has answered. Returns a line for each file that was renamed, because
    /// later runs would obey it.
    ///
    /// # Errors
    ///
    /// Such files may be left by its commands: the failure of the stage.
    fn check(&self, _work_dir: &Path) -> Result<String, Failure> {
        Ok(String::new())
    }
}

/// What an agent could be given.
#[derive(Clone, Debug, Default)]
pub struct Offer {
    /// The tools, whether or not it may call them.
    pub tools: ToolSet,
    /// What is missing, for the user.
    pub warnings: Vec<String>,
    /// The servers whose tools are missing because they cannot be used.
    pub failed_servers: Vec<FailedServer>,
}

/// A server of tools that cannot be used.
#[derive(Clone, Debug)]
pub struct FailedServer {
    /// Its name in the settings.
    pub name: String,
    /// What the names of its tools begin with.
    pub tool_prefix: String,
    /// Why, for the user.
    pub problem: String,
}

/// No tools at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTools;

#[async_trait]
impl Toolbox for NoTools {
    async fn tools(&self, _: &Path, _: Permissions, _: Arc<dyn WorkflowContext>) -> Offer {
        Offer::default()
    }
}
