//! Templates over what a stage can see.

use std::path::PathBuf;
use std::sync::Arc;

use fabro_context::Context;
use fabro_engine::{Stage, read_blob};
use fabro_events::CreatedRun;
use fabro_store::Store;
use fabro_template::{Mode, Template, Vars};
use fabro_types::{BlobRef, Failure, FailureClass};
use serde_json::Value;

use crate::blobs::local_path;

/// Renders a prompt or a script; `jinja` for the text of a `.j2` file.
pub(crate) fn render(
    stage: &Stage,
    text: &str,
    jinja: bool,
    mode: Mode,
) -> Result<String, Failure> {
    let failed = |message: String| Failure::new(FailureClass::Deterministic, message);
    let template = if jinja { Template::parse_jinja(text) } else { Template::parse(text) };
    let template = template.map_err(|error| failed(error.to_string()))?;
    template.render(Arc::new(StageVars::of(stage)), mode).map_err(|error| failed(error.to_string()))
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
        let Some(blob) = BlobRef::from_value(&value) else { return Ok(Some(value)) };
        let read = read_blob(&*self.store, &blob);
        read.map(|value| Some(Arc::new(value))).map_err(|error| error.to_string())
    }

    fn path(&self, key: &str) -> Option<String> {
        let blob = BlobRef::from_value(self.context.get(key)?)?;
        local_path(&self.run_dir, &*self.store, &blob).ok()
    }
}
