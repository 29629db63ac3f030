use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use fabro_llm::ToolSpec;
use fabro_types::Permissions;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::call::{arguments, spec, unless_canceled};
use crate::limit::end_of;
use crate::tool::{Call, Output, Tool};

/// How much of a value is shown when all are asked for, in characters of its JSON.
const VALUE: usize = 2_000;

/// The longest note, in characters.
const NOTE: usize = 4_000;

/// The context of a workflow, as its agents may see it.
///
/// Implement it under `#[async_trait]`, of the crate `async-trait` 0.1.
#[async_trait]
pub trait WorkflowContext: Send + Sync {
    /// The values of these keys; without any, of all keys that may be shown. Keys that are not there,
    /// or may not be shown, are left out.
    fn read(&self, keys: &[String]) -> Map<String, Value>;

    /// Adds a note for later stages.
    ///
    /// # Errors
    ///
    /// It cannot be stored.
    async fn append(&self, text: &str) -> Result<(), AppendError>;

    /// The absolute directories of the files with large values, which agents may read: see
    /// [`WithValues`](fabro_sandbox::WithValues). Empty by default.
    fn value_dirs(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// The absolute directories with the artifacts of earlier stages, which agents may read. Empty by
    /// default.
    fn artifact_dirs(&self) -> Vec<PathBuf> {
        Vec::new()
    }
}

/// A note that the workflow did not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the workflow did not take the note: {reason}")]
pub struct AppendError {
    /// Why.
    pub reason: String,
}

/// The tool `get_workflow_context`.
pub fn get_workflow_context(context: Arc<dyn WorkflowContext>) -> Arc<dyn Tool> {
    let description = "Tells what the workflow around you knows: a summary of its earlier turns, \
        the most recent turns, how many there were, and its context values. Long values are cut \
        unless you ask for them by their keys.";
    let properties = json!({
        "keys": {
            "type": "array", "items": { "type": "string" }, "maxItems": 100,
            "description": "The context keys to give, whole. Default: all, long ones cut."
        }
    });
    Arc::new(Get { spec: spec("get_workflow_context", description, &properties, &[]), context })
}

/// The tool `append_workflow_context`.
pub fn append_workflow_context(context: Arc<dyn WorkflowContext>) -> Arc<dyn Tool> {
    let description = "Leaves a note for the stages of the workflow that come after you: a \
        decision, a finding, what is still to do. At most 4,000 characters.";
    let properties = json!({
        "text": { "type": "string", "minLength": 1, "maxLength": NOTE, "description": "The note." }
    });
    let spec = spec("append_workflow_context", description, &properties, &["text"]);
    Arc::new(Append { spec, context })
}

struct Get {
    spec: ToolSpec,
    context: Arc<dyn WorkflowContext>,
}

#[derive(Deserialize)]
struct GetArguments {
    #[serde(default)]
    keys: Vec<String>,
}

#[async_trait]
impl Tool for Get {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn needs(&self) -> Permissions {
        Permissions::ReadOnly
    }

    async fn call(&self, call: Call<'_>) -> Output {
        let GetArguments { keys } = match arguments(&call) {
            Ok(arguments) => arguments,
            Err(problem) => return Output::error(problem),
        };
        let mut values = self.context.read(&keys);
        if keys.is_empty() {
            values.values_mut().for_each(cut);
        }
        let answer = json!({
            "workflow_summary": call.context.workflow_summary,
            "recent_turns": call.context.recent_turns,
            "round": call.context.round,
            "context": values,
        });
        // Pretty, so that a cut of the output falls between lines.
        Output::ok(format!("{answer:#}"))
    }
}

/// Replaces a value that is too long by the start of its JSON.
fn cut(value: &mut Value) {
    let text = match &*value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let end = end_of(&text, VALUE);
    if end < text.len() {
        let omitted = text[end..].chars().count();
        *value = Value::String(format!("{} [… {omitted} more characters]", &text[..end]));
    }
}

struct Append {
    spec: ToolSpec,
    context: Arc<dyn WorkflowContext>,
}

#[derive(Deserialize)]
struct AppendArguments {
    text: String,
}

#[async_trait]
impl Tool for Append {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn needs(&self) -> Permissions {
        Permissions::ReadWrite
    }

    async fn call(&self, call: Call<'_>) -> Output {
        let append = async {
            let AppendArguments { text } = arguments(&call)?;
            self.context.append(&text).await.map_err(|error| error.to_string())?;
            Ok::<_, String>(Output::ok("noted"))
        };
        unless_canceled(call.cancel, async { append.await.unwrap_or_else(Output::error) }).await
    }
}
