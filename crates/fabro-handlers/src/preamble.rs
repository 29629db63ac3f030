//! The preamble of a stage, made from its line's history and context.

use std::sync::Arc;

use fabro_engine::{BlobStore, Stage, StageRecord, keys, read_blob};
use fabro_preamble::{Branch, Detail, Limits, Output, Preamble, Shown, shows_key};
use fabro_tokens::O200k;
use fabro_types::{BlobRef, BranchResult, Failure, Fidelity, NodeKind};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::blobs::local_path;

/// Output of more bytes than this is shown as its path.
const INLINE: u64 = 102_400;

/// The text before the prompt; empty under `full`.
pub(crate) fn preamble(
    stage: &Stage,
    fidelity: Fidelity,
    limits: &Limits,
) -> Result<String, Failure> {
    if fidelity == Fidelity::Full {
        return Ok(String::new());
    }
    let teller = Teller { stage };
    let stages = stage.history.iter().rev().map(|record| teller.stage(record));
    // A large value gets a file only if the preamble names it.
    let shown = stage.context.iter().filter(|(key, _)| shows_key(key));
    let context = shown.map(|(key, value)| (key.to_owned(), teller.shown(key, value)));
    let parent = stage.context.get(crate::PARENT_PREAMBLE);
    let parent = parent.map(|value| crate::common::text_of(stage, value)).transpose()?;
    let preamble = Preamble::new(&stage.run.goal)
        .run_id(stage.run_id.to_string())
        .parent(parent.as_deref())
        .earlier_stages(stage.history.len(), stages)
        .more_context(context)
        .fidelity(fidelity)
        .limits(*limits);
    Ok(preamble.render(&O200k))
}

struct Teller<'a> {
    stage: &'a Stage,
}

impl Teller<'_> {
    fn stage(&self, record: &StageRecord) -> fabro_preamble::Stage {
        let outcome = &record.end.outcome;
        fabro_preamble::Stage {
            visit: record.visit,
            word: outcome.word.clone(),
            detail: self.detail(record),
            notes: outcome.notes.clone(),
            failure: outcome.failure.as_ref().map(|failure| failure.message.clone()),
            preferred_label: outcome.preferred_label.clone(),
            suggested_next_ids: outcome.suggested_next_ids.clone(),
            files: outcome.files_touched.clone(),
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
                question: self.label(&record.node),
                answer: text(keys::HUMAN_LABEL).unwrap_or_default().to_owned(),
                text: text(keys::HUMAN_TEXT).map(str::to_owned),
            },
            NodeKind::Parallel => {
                Detail::Parallel { branches: self.branches(updates.get(keys::PARALLEL_RESULTS)) }
            }
            _ => Detail::Other,
        }
    }

    fn label(&self, node: &str) -> String {
        self.stage.plan.find(node).map_or(node, |spec| &spec.label).to_owned()
    }

    fn script(&self, record: &StageRecord) -> String {
        if let Some(script) = &record.end.script {
            return script.to_string();
        }
        let command = self.stage.plan.find(&record.node).and_then(|node| node.command());
        let script = command.and_then(|command| command.script.as_ref());
        script.map(|script| script.text.to_string()).unwrap_or_default()
    }

    fn branches(&self, results: Option<&Arc<Value>>) -> Vec<Branch> {
        let Some(results) = results else { return Vec::new() };
        let blob = BlobRef::from_value(results);
        let read = blob.and_then(|blob| read_blob(&*self.stage.store, &blob).ok());
        let results = Vec::<BranchResult>::deserialize(read.as_ref().unwrap_or(results));
        // Only a value that was set by hand has another form; it shows no branches.
        let results = results.unwrap_or_default().into_iter();
        let branch = |result: BranchResult| Branch {
            output: self.output(result.response.as_deref()),
            id: result.id.to_string(),
            status: result.status,
            notes: result.notes,
        };
        results.map(branch).collect()
    }

    fn output(&self, value: Option<&Value>) -> Output {
        output(&*self.stage.store, value, |blob| self.path(blob))
    }

    fn shown(&self, key: &str, value: &Arc<Value>) -> Shown {
        match (BlobRef::from_value(value), value.as_object()) {
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
        local_path(&self.stage.run_dir, &*self.stage.store, blob)
            .unwrap_or_else(|error| format!("({error})"))
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
    let Some(blob) = BlobRef::from_value(value) else { return text(value) };
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
