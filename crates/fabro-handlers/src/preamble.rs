//! The preamble of a stage, made from its line's history and context.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use fabro_engine::{
    BlobStore, Context, Plan, ReadError, Stage, StageRecord, Store, keys, read_blob, reference,
};
use fabro_events::CreatedRun;
use fabro_preamble::{Branch, Detail, Limits, Output, Preamble, Shown, branch_sections, shows_key};
use fabro_redact::Redactor;
use fabro_tokens::O200k;
use fabro_types::{
    BlobRef, BranchResult, Failure, FailureClass, Fidelity, NodeKind, RunId, Status,
    strip_accelerator,
};
use imbl::Vector;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::agents::Agents;
use crate::artifacts::shown_files;
use crate::blobs::{local_path, value_path};
use crate::common::{failed, text_in};
use crate::element::PreambleOmissions;

/// Output of more bytes than this is shown as its path.
const INLINE: u64 = 102_400;

/// Blobs of fewer bytes in all are read at once.
const SMALL: u64 = 65_536;
/// The stages whose blobs are looked at for that; a preamble rarely shows more.
const RECENT: usize = 32;

/// Writes the preambles of a run.
#[derive(Clone)]
pub(crate) struct Preambles {
    limits: Limits,
    redactor: Redactor,
}

impl Preambles {
    /// With the ceilings of the settings.
    pub(crate) fn new(agents: &Agents) -> Self {
        let default = Limits::default();
        let settings = &agents.settings.preamble;
        let limits = Limits {
            compact: settings.compact_tokens.unwrap_or(default.compact),
            high: settings.high_tokens.unwrap_or(default.high),
        };
        Self { limits, redactor: agents.redactor.clone() }
    }

    /// The text before the prompt; empty under `full`. `has_files`: the reader can open files.
    pub(crate) async fn write(
        &self,
        stage: &Stage,
        fidelity: Fidelity,
        has_files: bool,
    ) -> Result<String, Failure> {
        if fidelity == Fidelity::Full {
            return Ok(String::new());
        }
        let source = Source::of(stage, self, fidelity);
        if source.is_small() {
            return source.preamble(has_files);
        }
        off_thread(move || source.preamble(has_files)).await?
    }

    /// The branches that a model chooses among, the best first.
    pub(crate) async fn branches(
        &self,
        stage: &Stage,
        ranked: &[BranchResult],
    ) -> Result<String, Failure> {
        let source = Source::of(stage, self, stage.at.fidelity);
        let ranked = ranked.to_vec();
        if source.is_small() {
            return source.branch_sections(ranked);
        }
        off_thread(move || source.branch_sections(ranked)).await?
    }
}

/// Reading large outputs back and writing files would hold up everything else that runs.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| {
        let message = format!("the preamble cannot be written: {error}");
        Failure::new(FailureClass::TransientInfra, message)
    })
}

/// What a preamble is made of.
struct Source {
    limits: Limits,
    redactor: Redactor,
    fidelity: Fidelity,
    /// The branches of the last fan-out have a section of their own.
    is_fan_in: bool,
    run_id: RunId,
    run: Arc<CreatedRun>,
    plan: Arc<Plan>,
    context: Context,
    history: Vector<Arc<StageRecord>>,
    /// What a stage for a list element omits.
    omissions: PreambleOmissions,
    run_dir: PathBuf,
    store: Arc<dyn Store>,
    /// The first value that could not be read, or of which no file could be written.
    unreadable: OnceLock<Failure>,
}

impl Source {
    fn of(stage: &Stage, preambles: &Preambles, fidelity: Fidelity) -> Self {
        Self {
            limits: preambles.limits,
            redactor: preambles.redactor.clone(),
            fidelity,
            is_fan_in: stage.spec().kind == NodeKind::FanIn,
            run_id: stage.run_id,
            run: Arc::clone(&stage.run),
            plan: Arc::clone(&stage.plan),
            context: stage.context.clone(),
            history: stage.history.clone(),
            omissions: PreambleOmissions::of(stage),
            run_dir: stage.run_dir.clone(),
            store: Arc::clone(&stage.store),
            unreadable: OnceLock::new(),
        }
    }

    /// Whether what is read from blobs, or copied into files, is so little that a thread of its own
    /// would take longer.
    fn is_small(&self) -> bool {
        let recent = self.history.iter().rev().take(RECENT);
        let updates = recent.flat_map(|record| record.end.outcome.context_updates.values());
        let values =
            updates.map(AsRef::as_ref).chain(self.context.iter().map(|(_, value)| &**value));
        let mut left = SMALL;
        values.filter_map(BlobRef::from_value).all(|blob| {
            let bytes = self.store.len(&blob).unwrap_or_default();
            left = left.saturating_sub(bytes);
            left > 0
        })
    }

    fn preamble(&self, has_files: bool) -> Result<String, Failure> {
        let fan_out = self.history.iter().rposition(|it| it.handler == NodeKind::Parallel);
        let fan_out = fan_out.filter(|_| self.is_fan_in);
        let stages = self.history.iter().enumerate().rev().map(|(index, record)| {
            let mut shown = self.stage(record);
            if fan_out == Some(index) {
                shown.detail = Detail::Other;
            }
            shown
        });
        // A large value gets a file only if the preamble names it.
        let is_shown = |key: &str| {
            let is_joined = fan_out.is_some() && key == keys::PARALLEL_RESULTS;
            shows_key(key) && !is_joined && self.omissions.shows(key)
        };
        // With a shared context, `child.NODE` duplicates keys that are shown anyway.
        let shares = |key: &str| {
            let node = key.strip_prefix(keys::CHILD_PREFIX).and_then(|id| self.plan.node(id));
            let manager = node.and_then(|(ix, _)| self.plan.spec(ix).manager());
            manager.is_some_and(|manager| manager.inputs.is_empty())
        };
        // The parent's preamble already has unchanged inherited keys.
        let is_inherited = |key: &str, value: &Arc<Value>| {
            self.run.parent.is_some() && self.run.context.get(key) == Some(value)
        };
        let shown = self.context.iter();
        let shown =
            shown.filter(|(key, value)| is_shown(key) && !is_inherited(key, value) && !shares(key));
        let context = shown.map(|(key, value)| (key.to_owned(), self.shown(key, value)));
        let parent = self.context.get(crate::PARENT_PREAMBLE);
        let parent = parent.map(|value| text_in(&*self.store, value)).transpose()?;
        let mut preamble = Preamble::new(&self.run.goal)
            .run_id(self.run_id.to_string())
            .parent(parent.as_deref())
            .earlier_stages(self.history.len(), stages)
            .more_context(context)
            .fidelity(self.fidelity)
            .limits(self.limits);
        if has_files {
            preamble = preamble.save_with(|value| Some(self.saved(value)));
        }
        self.readable(preamble.render(&O200k))
    }

    /// The text, unless something that it should show could not be read.
    fn readable(&self, text: String) -> Result<String, Failure> {
        self.unreadable.get().map_or(Ok(text), |failure| Err(failure.clone()))
    }

    /// Keeps the first error; the text that stands for the value is never shown.
    fn fails(&self, error: &(dyn std::error::Error + 'static)) -> String {
        let _ = self.unreadable.set(failed(error));
        format!("({error})")
    }

    fn branch_sections(&self, ranked: Vec<BranchResult>) -> Result<String, Failure> {
        let branches: Vec<Branch> = ranked.into_iter().map(|result| self.branch(result)).collect();
        let is_high = self.fidelity == Fidelity::SummaryHigh;
        let limit = if is_high { self.limits.high } else { self.limits.compact };
        // The model that chooses has no tools to open files with.
        self.readable(branch_sections(&branches, self.fidelity, limit, &O200k, &|_| None))
    }

    /// The path of a file with a value of which the preamble shows a part.
    fn saved(&self, value: &Value) -> String {
        let redacted = value.as_str().map(|text| Value::from(self.redactor.redact(text)));
        value_path(&self.run_dir, redacted.as_ref().unwrap_or(value))
            .unwrap_or_else(|error| self.fails(&error))
    }

    fn stage(&self, record: &StageRecord) -> fabro_preamble::Stage {
        let outcome = &record.end.outcome;
        fabro_preamble::Stage {
            visit: record.visit,
            word: outcome.word.clone(),
            detail: if self.omissions.is_list(record) {
                without_list(self.detail(record))
            } else {
                self.detail(record)
            },
            notes: outcome.notes.clone(),
            failure: outcome.failure.as_ref().map(|failure| failure.message.clone()),
            preferred_label: outcome.preferred_label.clone(),
            suggested_next_ids: outcome.suggested_next_ids.clone(),
            files: outcome.files_touched.clone(),
            artifacts: shown_files(&self.run_dir, &outcome.artifacts, &outcome.inner_artifacts),
            ..fabro_preamble::Stage::new(record.node.as_ref(), outcome.status)
        }
    }

    fn detail(&self, record: &StageRecord) -> Detail {
        let updates = &record.end.outcome.context_updates;
        let text = |key: &str| updates.get(key).and_then(|value| value.as_str());
        match record.handler {
            NodeKind::Command => Detail::Command {
                script: self.script(record),
                stdout: self.output(updates.get(keys::COMMAND_OUTPUT).map(AsRef::as_ref)),
                stderr: self.output(updates.get(keys::COMMAND_STDERR).map(AsRef::as_ref)),
                exit_code: updates
                    .get(keys::COMMAND_EXIT_CODE)
                    .and_then(|code| i32::try_from(code.as_i64()?).ok()),
            },
            NodeKind::Agent | NodeKind::Prompt => {
                let usage = record.end.outcome.usage.clone().unwrap_or_default();
                let key = format!("{}{}", keys::RESPONSE_PREFIX, record.node);
                Detail::Llm {
                    model: usage.model.unwrap_or_default(),
                    input_tokens: usage.input_tokens,
                    output_tokens: usage.output_tokens,
                    response: self.output(updates.get(&key).map(AsRef::as_ref)),
                }
            }
            NodeKind::Human => Detail::Human {
                question: text(keys::HUMAN_QUESTION)
                    .map_or_else(|| self.label(&record.node), str::to_owned),
                answer: strip_accelerator(text(keys::HUMAN_LABEL).unwrap_or_default()).to_owned(),
                text: text(keys::HUMAN_TEXT).map(str::to_owned),
            },
            NodeKind::Parallel => {
                Detail::Parallel { branches: self.branches(updates.get(keys::PARALLEL_RESULTS)) }
            }
            _ => Detail::Other,
        }
    }

    fn label(&self, node: &str) -> String {
        self.plan.find(node).map_or(node, |spec| &spec.label).to_owned()
    }

    fn script(&self, record: &StageRecord) -> String {
        if let Some(script) = &record.end.script {
            return script.to_string();
        }
        let command = self.plan.find(&record.node).and_then(|node| node.command());
        let script = command.and_then(|command| command.script.as_ref());
        script.map(|script| script.text.to_string()).unwrap_or_default()
    }

    /// Of results that are too large to be read back, one branch says so.
    fn branches(&self, results: Option<&Arc<Value>>) -> Vec<Branch> {
        let Some(results) = results else { return Vec::new() };
        let read = match BlobRef::from_value(results) {
            None => Ok(Value::clone(results)),
            Some(blob) => read_blob(&*self.store, &blob),
        };
        let results = match read {
            Ok(results) => Vec::<BranchResult>::deserialize(results),
            Err(ReadError::Blob(error)) => {
                self.fails(&error);
                return Vec::new();
            }
            Err(error) => return vec![unreadable_branches(&error)],
        };
        // Only a value that was set by hand has another form; it shows no branches.
        results.unwrap_or_default().into_iter().map(|result| self.branch(result)).collect()
    }

    fn branch(&self, result: BranchResult) -> Branch {
        let output = result.updates.as_ref().and_then(|updates| updates.get(keys::COMMAND_OUTPUT));
        Branch {
            is_command: output.is_some() && output == result.response.as_ref(),
            output: self.output(result.response.as_deref()),
            id: result.id.to_string(),
            status: result.status,
            notes: result.notes,
        }
    }

    fn output(&self, value: Option<&Value>) -> Output {
        output(&*self.store, value, |blob| self.path(blob))
    }

    fn shown(&self, key: &str, value: &Arc<Value>) -> Shown {
        match (reference(&*self.store, value), value.as_object()) {
            (Some(blob), _) => Shown::File(self.path(&blob)),
            // Of a sub-workflow's context, what its own preambles would show.
            (None, Some(context)) if key.starts_with(keys::CHILD_PREFIX) => {
                let shown = context.iter().filter(|(key, _)| shows_key(key));
                let shown: Map<_, _> = shown.map(|(k, v)| (k.clone(), v.clone())).collect();
                let is_empty = shown.is_empty();
                Shown::Value(Arc::new(if is_empty { Value::Null } else { Value::Object(shown) }))
            }
            _ => Shown::Value(Arc::clone(value)),
        }
    }

    fn path(&self, blob: &BlobRef) -> String {
        local_path(&self.run_dir, &*self.store, blob).unwrap_or_else(|error| self.fails(&error))
    }
}

/// The detail of a stage that produced the list, without the list.
fn without_list(detail: Detail) -> Detail {
    let list = || Output::Omitted("the list; this stage processes one of its elements".to_owned());
    match detail {
        Detail::Command { script, stderr, exit_code, .. } => {
            Detail::Command { script, stdout: list(), stderr, exit_code }
        }
        Detail::Llm { model, input_tokens, output_tokens, .. } => {
            Detail::Llm { model, input_tokens, output_tokens, response: list() }
        }
        Detail::Human { question, answer, .. } => Detail::Human { question, answer, text: None },
        Detail::Parallel { .. } | Detail::Other => Detail::Other,
    }
}

/// What is shown in place of branches whose results are lost.
fn unreadable_branches(error: &ReadError) -> Branch {
    Branch {
        id: "results".to_owned(),
        status: Status::Failed,
        notes: Some(format!("the results of the branches cannot be read: {error}")),
        output: Output::None,
        is_command: false,
    }
}

/// A text value: itself when it is short, else the path of a file that holds it. The size is looked
/// up first: a large value is not read for its path.
fn output(
    blobs: &dyn BlobStore,
    value: Option<&Value>,
    path: impl Fn(&BlobRef) -> String,
) -> Output {
    let text = |value: &Value| match value {
        Value::Null => Output::None,
        Value::String(text) => Output::Text(text.clone()),
        other => Output::Text(other.to_string()),
    };
    let Some(value) = value else { return Output::None };
    let Some(blob) = reference(blobs, value) else { return text(value) };
    let is_short = blobs.len(&blob).is_ok_and(|bytes| bytes <= INLINE);
    let read = is_short.then(|| read_blob(blobs, &blob).ok()).flatten();
    read.map_or_else(|| Output::File(path(&blob)), |value| text(&value))
}

#[cfg(test)]
mod tests {
    use fabro_engine::BlobError;

    use super::*;

    /// Blobs of which only the size can be asked.
    struct Sizes(u64);

    impl BlobStore for Sizes {
        fn get(&self, blob: &BlobRef) -> Result<Vec<u8>, BlobError> {
            panic!("{blob} is read")
        }

        fn put(&self, _: &[u8]) -> Result<BlobRef, BlobError> {
            panic!("nothing is stored")
        }

        fn len(&self, _: &BlobRef) -> Result<u64, BlobError> {
            Ok(self.0)
        }
    }

    #[test]
    fn a_large_value_is_shown_as_a_path_without_being_read() {
        let value = BlobRef::of(b"large").to_value();
        let shown = output(&Sizes(INLINE + 1), Some(&value), |_| "PATH".to_owned());
        assert!(matches!(shown, Output::File(path) if path == "PATH"));
    }
}
