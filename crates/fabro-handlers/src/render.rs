//! Templates over what a stage can see.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fabro_context::Context;
use fabro_engine::{Stage, read_blob};
use fabro_events::CreatedRun;
use fabro_store::Store;
use fabro_template::{Mode, RenderError, Template, Vars};
use fabro_types::{BlobRef, Failure, FailureClass};
use serde_json::Value;

use crate::blobs::{local_path, read_inner};

/// What in a text is to be rendered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syntax {
    /// Tags of ours; everything else is text.
    Tags,
    /// All of Jinja: the text of a `.j2` file.
    Jinja,
}

/// The prompt of the stage's node, or its label when it has none.
pub(crate) fn render_prompt(stage: &Stage) -> Result<String, Failure> {
    let node = stage.node();
    let file = node.attrs.get("prompt").and_then(|attr| attr.file.as_deref());
    let is_jinja = file.is_some_and(|file| Path::new(file).extension().is_some_and(|e| e == "j2"));
    let syntax = if is_jinja { Syntax::Jinja } else { Syntax::Tags };
    let text = node.attrs.text("prompt").unwrap_or_else(|| node.label());
    render(stage, text, syntax, Mode::Prompt)
}

/// Renders a prompt or a script. In a dry run, where no stage writes what its handler would, a
/// text that lacks a context key stays as it is written.
pub(crate) fn render(
    stage: &Stage,
    text: &str,
    syntax: Syntax,
    mode: Mode,
) -> Result<String, Failure> {
    let failed = |message: String| Failure::new(FailureClass::Deterministic, message);
    let template = match syntax {
        Syntax::Tags => Template::parse(text),
        Syntax::Jinja => Template::parse_jinja(text),
    };
    let template = template.map_err(|error| failed(error.to_string()))?;
    match template.render(Arc::new(StageVars::of(stage)), mode) {
        Err(RenderError::MissingContext { .. }) if stage.run.dry_run => Ok(text.to_owned()),
        rendered => rendered.map_err(|error| failed(error.to_string())),
    }
}

struct StageVars {
    run: Arc<CreatedRun>,
    context: Context,
    store: Arc<dyn Store>,
    run_dir: PathBuf,
}

impl StageVars {
    fn of(stage: &Stage) -> Self {
        Self {
            run: Arc::clone(&stage.run),
            context: stage.context.clone(),
            store: Arc::clone(&stage.store),
            run_dir: stage.run_dir.clone(),
        }
    }
}

impl Vars for StageVars {
    fn goal(&self) -> &str {
        &self.run.goal
    }

    fn input(&self, name: &str) -> Option<Value> {
        self.run.inputs.get(name).cloned()
    }

    fn context(&self, key: &str) -> Result<Option<Arc<Value>>, String> {
        let Some(value) = self.context.get_shared(key) else { return Ok(None) };
        let mut read = match BlobRef::from_value(&value) {
            Some(blob) => {
                Arc::new(read_blob(&*self.store, &blob).map_err(|error| error.to_string())?)
            }
            None => value,
        };
        if read.is_array() || read.is_object() {
            // The results of branches hold references of their own.
            read_inner(Arc::make_mut(&mut read), &*self.store);
        }
        Ok(Some(read))
    }

    fn path(&self, key: &str) -> Option<String> {
        let blob = BlobRef::from_value(self.context.get(key)?)?;
        local_path(&self.run_dir, &*self.store, &blob).ok()
    }
}
