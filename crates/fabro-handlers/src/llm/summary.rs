//! The summary of a workflow's older turns by a model, where the settings name one for it.

use std::sync::Arc;

use fabro_engine::{Stage, StageEnd};
use fabro_events::{Event, EventBody, Note};
use fabro_llm::{Message, ModelError, Progress, Request, ask};
use fabro_preamble::memory::{Memory, RECENT_TURNS};
use fabro_types::Usage;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{LlmHandler, cannot_record};
use crate::common::{cache_key, preview, session_id, warn};

/// The context key of the last such summary: how many turns it covers, and its text.
const SUMMARY: &str = "internal.workflow_summary";

const INSTRUCTIONS: &str = "Below is what was said so far in a conversation between the stages of a \
    workflow and people: a summary of its beginning, if there is one, and a line for each turn. \
    Write one summary of it all in at most 200 words: what is wanted, what was decided and why, what \
    was found, what is open. Answer with the summary alone.";

/// A memory whose older turns a model has summarised.
pub(super) struct Summarised {
    pub(super) memory: Memory,
    /// For the stages to come, when it is a new one.
    pub(super) update: Option<(&'static str, Value)>,
    /// What was recorded of it just now.
    pub(super) notes: Vec<Note>,
}

impl LlmHandler {
    /// Asks for a summary of the turns that are no longer kept, unless there is one.
    pub(super) async fn summarised(
        &self,
        stage: &Stage,
        memory: Memory,
        recorded: &[Event],
    ) -> Result<Summarised, StageEnd> {
        let older = memory.round().saturating_sub(RECENT_TURNS as u64);
        let model = self.agents.settings.summary_model.clone().filter(|_| older > 0);
        let Some(model) = model.filter(|_| !stage.run.dry_run) else {
            return Ok(Summarised { memory, update: None, notes: Vec::new() });
        };
        let before = stage.context.get(SUMMARY);
        let earlier = before.map_or("", |before| before["text"].as_str().unwrap_or_default());
        if before.is_some_and(|before| before["turns"] == older) {
            let memory = memory.with_summary(earlier);
            return Ok(Summarised { memory, update: None, notes: Vec::new() });
        }
        let session = session_id(stage);
        let id: Arc<str> = format!("{session}/summary").into();
        let mut notes = Vec::new();
        let text = if let Some(text) = recorded.iter().find_map(|event| text_of_session(event, &id))
        {
            text
        } else {
            let prompt = format!("{INSTRUCTIONS}\n\n{earlier}\n\n{}", memory.summary());
            let parent = Arc::from(session);
            let mut log = Recorder { stage, id, parent, notes: Vec::new() };
            let text = self.ask_for_summary(&mut log, model, prompt).await?;
            notes = log.notes;
            let Some(text) = text else { return Ok(Summarised { memory, update: None, notes }) };
            text
        };
        let update = Some((SUMMARY, json!({"turns": older, "text": text})));
        Ok(Summarised { memory: memory.with_summary(text), update, notes })
    }

    /// The summary, and what was used for it is recorded. Without an answer the memory keeps the summary that needs
    /// no model, and a warning is reported.
    async fn ask_for_summary(
        &self,
        log: &mut Recorder<'_>,
        model: String,
        prompt: String,
    ) -> Result<Option<String>, StageEnd> {
        let stage = log.stage;
        let mut request = Request::new(vec![Message::user(prompt).into()]);
        request.model = Some(model);
        request.cache_key = Some(cache_key(stage));
        let model = self.model(stage, &stage.turns);
        let asking = self.asking(stage);
        let mut counted = Usage::default();
        let (failures, mut failed) = mpsc::unbounded_channel();
        let watch = |progress: Progress<'_>| {
            stage.reporter.touch();
            if let Progress::Retrying { error, .. } | Progress::Failover { error, .. } = progress {
                counted.add(&error.usage);
                // The other end outlives this one.
                let _ = failures.send(error.clone());
            }
        };
        let answer = {
            let mut asked = std::pin::pin!(ask(&model, request, &asking, watch));
            loop {
                tokio::select! {
                    biased;
                    // It was paid for, and the next request may be a minute away.
                    Some(error) = failed.recv() => self.record_failure(log, error).await?,
                    answer = &mut asked => break answer,
                    () = stage.cancel.cancelled() => return Ok(None),
                }
            }
        };
        while let Ok(error) = failed.try_recv() {
            self.record_failure(log, error).await?;
        }
        let (answer, usage) = match answer {
            Ok(reply) => (Ok(reply.text().trim().to_owned()), reply.usage),
            Err(error) => (Err(error.to_string()), *error.usage),
        };
        let mut usage = usage.without(&counted);
        self.price_now(&mut usage);
        let text = match answer {
            Ok(text) if !text.is_empty() => Ok(self.agents.redactor.redact(&text).into_owned()),
            Ok(_) => Err("its answer is empty".to_owned()),
            Err(why) => Err(why),
        };
        let text = match text {
            Ok(text) => Some(text),
            Err(why) => {
                let message = format!("the summary model failed, older turns are excerpts: {why}");
                warn(&stage.reporter, "memory", message).await;
                None
            }
        };
        // What failed requests cost counts too.
        if text.is_some() || !usage.is_nothing() {
            let body = EventBody::AgentMessage {
                role: "assistant".to_owned(),
                text: text.as_deref().map_or_else(String::new, preview),
                message: text.as_deref().map(|text| Value::from(text).into()),
                usage: Some(usage),
                given: None,
                purpose: None,
            };
            log.record(body).await?;
        }
        Ok(text)
    }

    /// Records a failed request that another one follows.
    async fn record_failure(
        &self,
        log: &mut Recorder<'_>,
        error: ModelError,
    ) -> Result<(), StageEnd> {
        let class = error.class();
        let message = self.agents.redactor.redact(&error.to_string()).into_owned();
        let mut usage = *error.usage;
        self.price_now(&mut usage);
        log.record(EventBody::AgentError { class, message, usage: Some(usage), retry_in_ms: None })
            .await
    }
}

/// Records what happens of a summary.
struct Recorder<'a> {
    stage: &'a Stage,
    /// The session of the summary.
    id: Arc<str>,
    /// The session of the stage.
    parent: Arc<str>,
    /// What was recorded so far.
    notes: Vec<Note>,
}

impl Recorder<'_> {
    async fn record(&mut self, body: EventBody) -> Result<(), StageEnd> {
        let session_id = Some(Arc::clone(&self.id));
        let note = Note { body, session_id, parent_session_id: Some(Arc::clone(&self.parent)) };
        self.notes.push(note.clone());
        let recorded = self.stage.reporter.record(vec![note], Vec::new(), Vec::new());
        recorded.await.map_err(cannot_record)
    }
}

fn text_of_session(event: &Event, session: &str) -> Option<String> {
    let is_own = event.entry.session_id.as_deref() == Some(session);
    match &event.entry.body {
        EventBody::AgentMessage { message: Some(text), .. } if is_own => {
            text.as_str().map(str::to_owned)
        }
        _ => None,
    }
}
