use std::sync::Arc;

use async_trait::async_trait;
use fabro_llm::ToolSpec;
use fabro_preamble::memory::ToolContext;
use fabro_redact::Redactor;
use fabro_sandbox::{FileHashes, KnownFiles};
use fabro_types::Permissions;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

/// Something that an agent may call.
///
/// Implement it under `#[async_trait]`, of the crate `async-trait` 0.1.
#[async_trait]
pub trait Tool: Send + Sync {
    /// Its name, description and parameters for the model.
    fn spec(&self) -> &ToolSpec;

    /// The least permissions under which an agent may call it.
    fn needs(&self) -> Permissions {
        Permissions::Full
    }

    /// How to use it, for the prompt of an agent that has it; `None` when its description says all.
    fn instructions(&self) -> Option<&str> {
        None
    }

    /// Whether its calls may run in parallel, because they change nothing. By default when it needs no
    /// more than to read.
    fn only_reads(&self) -> bool {
        self.needs() == Permissions::ReadOnly
    }

    /// Whether a canceled call still needs time, at most one second, for example to notify a server.
    fn ends_slowly(&self) -> bool {
        false
    }

    /// The same tool for an agent that has read these files; `None` when it is the same for all.
    fn with_known_files(&self, _: &KnownFiles) -> Option<Arc<dyn Tool>> {
        None
    }

    /// Runs one call to its end. A failure is an [`Output`] too, for the model to read.
    /// When `call.cancel` fires the tool ends its processes and searches; dropping the future leaves
    /// nothing running.
    async fn call(&self, call: Call<'_>) -> Output;
}

/// Is asked before each call of the tools of an agent, and told of its end.
///
/// Implement it under `#[async_trait]`, of the crate `async-trait` 0.1.
#[async_trait]
pub trait CallGuard: Send + Sync {
    /// Why this tool may not be called so, for the model; `None` when it may.
    async fn refusal(&self, tool: &str, call: Call<'_>) -> Option<String>;

    /// A call has ended, or was refused. The model gets the output when this returns.
    async fn ended(&self, _tool: &str, _call: Call<'_>, _output: &Output) {}
}

/// One call of a tool.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Names the call within its conversation.
    pub id: &'a str,
    /// The arguments, which match the schema of the tool.
    pub arguments: &'a Map<String, Value>,
    /// The workflow that the agent works in.
    pub context: &'a ToolContext,
    /// Fires when the call is to end.
    pub cancel: &'a CancellationToken,
    /// What the output will be redacted by. A tool that cuts a text itself redacts it before: of a secret that
    /// was cut through, the rest would stay.
    pub redactor: &'a Redactor,
}

/// The result of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// What the model gets to read.
    pub text: String,
    /// The call failed; the text says why and what to do.
    pub is_error: bool,
    /// Files it read, relative to the working directory.
    pub files_read: Vec<String>,
    /// Files it wrote, changed or removed, relative to the working directory.
    pub files_modified: Vec<String>,
    /// The state of the files that the agent has read by it, as far as that allows it to
    /// [change](crate::file_tools) them.
    pub files_seen: FileHashes,
}

impl Output {
    /// A call that did what it was asked to.
    pub fn ok(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A call that failed.
    pub fn error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::ok(text) }
    }
}
