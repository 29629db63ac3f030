//! The memory of a workflow: the turns of earlier stages and people, for a stage's prompt and the tools
//! of its agent.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use fabro_engine::{Stage, StageRecord, StoreError, keys, reference};
use fabro_events::{Event, EventBody};
use fabro_preamble::memory::{Memory, REMEMBERED_TURNS, Speaker, Turn};
use fabro_redact::Redactor;
use fabro_retrieval::Index;
use fabro_tokens::O200k;
use fabro_tools::{AppendError, WorkflowContext};
use fabro_types::{BlobRef, Failure, FailureClass, NodeKind, strip_accelerator};
use serde_json::{Map, Value, json};

use crate::blobs::{local_dir, local_path};
use crate::common::{text_of, value_of};
use crate::sub_workflow::{artifact_dirs, run_dirs};

/// The context key of what agents of a stage have put down for later ones.
const NOTES: &str = "internal.workflow_notes";

/// The tool by which they do.
const APPEND: &str = "append_workflow_context";

/// How many passages are looked for.
const PASSAGES: usize = 12;

/// The turns before this stage. Only those that a memory shows are read.
pub(crate) fn memory(stage: &Stage) -> Result<Memory, Failure> {
    let mut turns = Vec::new();
    let mut earlier = 0;
    for record in stage.history.iter().rev() {
        let Some(speaker) = speaker(record) else { continue };
        if turns.len() < REMEMBERED_TURNS {
            turns.extend(turn_of(stage, record, speaker)?);
            let notes = record.end.outcome.context_updates.get(NOTES);
            let notes = notes.and_then(|notes| notes.as_array()).into_iter().flatten().rev();
            turns.extend(
                notes.filter_map(|note| {
                    Some(Turn::new(&*record.node, Speaker::Llm, note.as_str()?))
                }),
            );
        } else {
            earlier += 1;
        }
    }
    let mut memory = Memory::after(earlier);
    turns.into_iter().rev().for_each(|turn| memory.push(turn));
    Ok(memory)
}

fn speaker(record: &StageRecord) -> Option<Speaker> {
    match record.handler {
        NodeKind::Agent | NodeKind::Prompt => Some(Speaker::Llm),
        NodeKind::Human => Some(Speaker::Human),
        _ => None,
    }
}

fn turn_of(stage: &Stage, record: &StageRecord, speaker: Speaker) -> Result<Option<Turn>, Failure> {
    let updates = &record.end.outcome.context_updates;
    let label = updates.get(keys::HUMAN_LABEL);
    let value = match speaker {
        Speaker::Llm => updates.get(&format!("{}{}", keys::RESPONSE_PREFIX, record.node)),
        Speaker::Human => {
            updates.get(keys::HUMAN_TEXT).filter(|text| text.as_str() != Some("")).or(label)
        }
    };
    let Some(value) = value else { return Ok(None) };
    let text = text_of(stage, value)?;
    // What a person says has no accelerator.
    let is_label = speaker == Speaker::Human && Some(value) == label;
    let text = if is_label { strip_accelerator(&text).to_owned() } else { text };
    Ok(Some(Turn::new(&*record.node, speaker, text)))
}

/// Passages of the files that the node's `rag` names, which fit the last turns.
pub(crate) async fn passages(
    stage: &Stage,
    memory: &Memory,
    prompt: &str,
    redactor: &Redactor,
) -> Result<String, Failure> {
    let globs = stage.spec().llm().and_then(|llm| llm.rag.clone());
    let Some(globs) = globs else { return Ok(String::new()) };
    let query = memory.query(prompt);
    let root = stage.run.work_dir.clone();
    let redactor = redactor.clone();
    let found = tokio::task::spawn_blocking(move || {
        // A passage may end in the middle of a secret, which nothing would find then.
        let redacted = |text: &mut String| {
            if let Cow::Owned(redacted) = redactor.redact(text) {
                *text = redacted;
            }
        };
        let index = Index::build_with(Path::new(&root), &[&globs], redacted)?;
        let hits = index.search(&query, PASSAGES)?;
        Ok::<_, fabro_retrieval::RetrievalError>(fabro_retrieval::block(
            &hits,
            &O200k,
            fabro_preamble::memory::RAG_TOKENS,
        ))
    });
    let failed =
        |message: String| Failure::new(FailureClass::Deterministic, format!("rag: {message}"));
    let found = found.await.map_err(|error| failed(error.to_string()))?;
    found.map_err(|error| failed(error.to_string()))
}

/// The workflow's context, as an agent's tools see it.
pub(crate) struct StageContext {
    /// What a preamble may show.
    shown: BTreeMap<String, Arc<Value>>,
    notes: Mutex<Vec<String>>,
    /// The directories of this run, and of those that it is part of.
    run_dirs: Vec<PathBuf>,
    /// Where they, and the sub-workflows of all of them, keep artifacts.
    artifact_dirs: Vec<PathBuf>,
    /// Notes are recorded.
    redactor: Redactor,
}

impl StageContext {
    /// `notes` are those that the stage's agent appended before it was interrupted. `shown_path` turns paths of files in
    /// these directories, in a text, into those that the agent knows.
    pub(crate) async fn new(
        stage: &Stage,
        notes: Vec<String>,
        redactor: Redactor,
        shown_path: &(dyn Fn(&str, &[PathBuf]) -> String + Sync),
    ) -> Result<Self, Failure> {
        let mut shown = BTreeMap::new();
        for (key, value) in stage.context.iter().filter(|(key, _)| fabro_preamble::shows_key(key)) {
            let value = match reference(&*stage.store, value) {
                None => Arc::clone(value),
                Some(blob) => {
                    let path = local_path(&stage.run_dir, &*stage.store, &blob);
                    let path = path.map_err(|error| {
                        Failure::new(FailureClass::TransientInfra, error.to_string())
                    })?;
                    let dirs = [local_dir(&stage.run_dir)];
                    Arc::new(Value::from(shown_path(&format!("file://{path}"), &dirs)))
                }
            };
            shown.insert(key.to_owned(), value);
        }
        // The preambles of the runs above name files of theirs.
        let unread =
            |error: StoreError| Failure::new(FailureClass::TransientInfra, error.to_string());
        let run_dirs = run_dirs(stage).await.map_err(unread)?;
        let artifact_dirs = artifact_dirs(stage, &run_dirs).await.map_err(unread)?;
        Ok(Self { shown, notes: Mutex::new(notes), run_dirs, artifact_dirs, redactor })
    }

    /// What the agent put down, as an update of the context; `None` when it did not.
    pub(crate) fn update(&self) -> Option<(&'static str, Value)> {
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        (!notes.is_empty()).then(|| (NOTES, json!(*notes)))
    }
}

#[async_trait]
impl WorkflowContext for StageContext {
    fn read(&self, keys: &[String]) -> Map<String, Value> {
        let wanted = |key: &str| keys.is_empty() || keys.iter().any(|wanted| wanted == key);
        let values = self.shown.iter().filter(|(key, _)| wanted(key));
        values.map(|(key, value)| (key.clone(), Value::clone(value))).collect()
    }

    async fn append(&self, text: &str) -> Result<(), AppendError> {
        let text = self.redactor.redact(text).into_owned();
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        Ok(())
    }

    fn value_dirs(&self) -> Vec<PathBuf> {
        self.run_dirs.iter().map(|dir| local_dir(dir)).collect()
    }

    fn artifact_dirs(&self) -> Vec<PathBuf> {
        self.artifact_dirs.clone()
    }
}

/// The notes for later stages that the agent of this stage appended before it was interrupted, as
/// the record of its conversation has them.
pub(crate) fn recorded_notes(stage: &Stage, events: &[Event]) -> Result<Vec<String>, Failure> {
    let appended: Vec<&str> = events
        .iter()
        .filter_map(|event| match &event.entry.body {
            EventBody::AgentToolCompleted(done) if done.tool == APPEND && !done.is_error => {
                Some(done.call_id.as_str())
            }
            _ => None,
        })
        .collect();
    if appended.is_empty() {
        return Ok(Vec::new());
    }
    let mut texts = BTreeMap::new();
    for event in events {
        let EventBody::AgentMessage { role, message: Some(message), .. } = &event.entry.body else {
            continue;
        };
        if role != "assistant" {
            continue;
        }
        // The text of a large answer is in a blob, its calls included.
        let message = value_of(stage, message)?;
        for part in message["content"].as_array().into_iter().flatten() {
            let call = (&part["name"], &part["id"], &part["arguments"]["text"]);
            if let (Value::String(name), Value::String(id), Value::String(text)) = call
                && name == APPEND
            {
                texts.insert(id.clone(), text.clone());
            }
        }
    }
    Ok(appended.into_iter().filter_map(|id| texts.remove(id)).collect())
}

/// The value that a reference in a recorded conversation stands for.
pub(crate) fn read_recorded(
    stage: &Stage,
) -> impl FnMut(&BlobRef) -> Result<Value, fabro_engine::ReadError> + '_ {
    |blob| fabro_engine::read_blob(&*stage.store, blob)
}
