//! The summary of a workflow's older turns by a model, where the settings name one for it.

use std::sync::Arc;

use fabro_engine::{Stage, StageEnd};
use fabro_events::{Event, EventBody, Note};
use fabro_llm::{Message, Request, ask};
use fabro_preamble::memory::{Memory, RECENT_TURNS};
use fabro_types::Usage;
use serde_json::{Value, json};

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
            let (text, usage) = self.ask_for_summary(stage, model, prompt).await;
            // What failed requests cost counts too.
            if text.is_some() || usage != Usage::default() {
                let body = EventBody::AgentMessage {
                    role: "assistant".to_owned(),
                    text: text.as_deref().map_or_else(String::new, preview),
                    message: text.as_deref().map(|text| Value::from(text).into()),
                    usage: Some(usage),
                    given: None,
                    purpose: None,
                };
                let parent_session_id = Some(Arc::from(session));
                notes.push(Note { body, session_id: Some(id), parent_session_id });
                let kept = stage.reporter.record(notes.clone(), Vec::new(), Vec::new());
                kept.await.map_err(cannot_record)?;
            }
            let Some(text) = text else { return Ok(Summarised { memory, update: None, notes }) };
            text
        };
        let update = Some((SUMMARY, json!({"turns": older, "text": text})));
        Ok(Summarised { memory: memory.with_summary(text), update, notes })
    }

    /// The summary, and what was used for it. Without an answer the memory keeps the summary that needs no
    /// model, and a warning is reported.
    async fn ask_for_summary(
        &self,
        stage: &Stage,
        model: String,
        prompt: String,
    ) -> (Option<String>, Usage) {
        let mut request = Request::new(vec![Message::user(prompt).into()]);
        request.model = Some(model);
        request.cache_key = Some(cache_key(stage));
        let model = (self.models)(&stage.at.node, &stage.turns);
        let asking = self.asking(stage);
        let asked = ask(&model, request, &asking, |_| stage.reporter.touch());
        let answer = tokio::select! {
            answer = asked => answer,
            () = stage.cancel.cancelled() => return (None, Usage::default()),
        };
        let (answer, mut usage) = match answer {
            Ok(reply) => (Ok(reply.text().trim().to_owned()), reply.usage),
            Err(error) => (Err(error.to_string()), *error.usage),
        };
        self.price_now(&mut usage);
        let why = match answer {
            Ok(text) if !text.is_empty() => {
                return (Some(self.agents.redactor.redact(&text).into_owned()), usage);
            }
            Ok(_) => "its answer is empty".to_owned(),
            Err(why) => why,
        };
        let message = format!("the summary model failed, older turns are excerpts: {why}");
        warn(&stage.reporter, "memory", message).await;
        (None, usage)
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
