//! Templates over what a stage can see.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fabro_engine::{
    Context, Mode, READ_LIMIT, ReadError, RenderError, Stage, Store, TextTemplate, Vars, read_blob,
    reference,
};
use fabro_events::CreatedRun;
use fabro_types::{BlobRef, Failure, FailureClass};
use serde_json::Value;

use crate::blobs::{local_path, read_all_inner};
use crate::common::is_damage;

/// The prompt of the stage's node, or its label when it has none.
pub(crate) fn render_prompt(stage: &Stage) -> Result<String, Failure> {
    let spec = stage.spec();
    spec.llm()
        .map_or_else(|| Ok(spec.label.to_string()), |llm| render(stage, &llm.prompt, Mode::Prompt))
}

/// Renders a prompt or a script. In a dry run, where no stage writes what its handler would, a
/// text that lacks a value stays as it is written.
pub(crate) fn render(stage: &Stage, text: &TextTemplate, mode: Mode) -> Result<String, Failure> {
    let vars = Arc::new(StageVars::of(stage));
    match text.template.render(Arc::clone(&vars) as Arc<dyn Vars>, mode) {
        Err(_) if vars.may_lack(stage) => Ok(text.text.to_string()),
        rendered => rendered.map_err(|error| vars.failed(&error)),
    }
}

/// The value of a text that is one expression, else the text rendered.
pub(crate) fn render_value(stage: &Stage, text: &TextTemplate) -> Result<Value, Failure> {
    let vars = Arc::new(StageVars::of(stage));
    match text.template.value(Arc::clone(&vars) as Arc<dyn Vars>) {
        Err(_) if vars.may_lack(stage) => Ok(text.text.as_ref().into()),
        value => value.map_err(|error| vars.failed(&error)),
    }
}

struct StageVars {
    run: Arc<CreatedRun>,
    context: Context,
    store: Arc<dyn Store>,
    run_dir: PathBuf,
    /// A value that the template reads is lost or damaged.
    damage: AtomicBool,
}

impl StageVars {
    fn of(stage: &Stage) -> Self {
        Self {
            run: Arc::clone(&stage.run),
            context: stage.context.clone(),
            store: Arc::clone(&stage.store),
            run_dir: stage.run_dir.clone(),
            damage: AtomicBool::new(false),
        }
    }

    /// Whether an error of a template is ignored: in a dry run any error is, because no stage has written values,
    /// unless the store is damaged.
    fn may_lack(&self, stage: &Stage) -> bool {
        stage.run.dry_run && !self.damage.load(Ordering::Relaxed)
    }

    fn failed(&self, error: &RenderError) -> Failure {
        let damage = self.damage.load(Ordering::Relaxed);
        // Another attempt sees the same context.
        Failure {
            damage,
            terminal: true,
            ..Failure::new(FailureClass::Deterministic, error.to_string())
        }
    }

    /// The text of an error, of which a template's error keeps nothing else.
    fn unreadable(&self, error: &ReadError) -> String {
        if is_damage(error) {
            self.damage.store(true, Ordering::Relaxed);
        }
        error.to_string()
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
                let value = read_blob(&*self.store, &blob);
                Arc::new(value.map_err(|error| self.unreadable(&error))?)
            }
            None => value,
        };
        if read.is_array() || read.is_object() {
            // The results of branches hold references of their own.
            read_all_inner(Arc::make_mut(&mut read), &*self.store, READ_LIMIT)
                .map_err(|error| self.unreadable(&error))?;
        }
        Ok(Some(read))
    }

    fn path(&self, key: &str) -> Option<String> {
        let blob = reference(&*self.store, self.context.get(key)?)?;
        let path = local_path(&self.run_dir, &*self.store, &blob);
        path.inspect_err(|error| self.damage.store(is_damage(error), Ordering::Relaxed)).ok()
    }
}
