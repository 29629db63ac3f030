//! Answers of servers that do not stream, whatever they are asked for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::body::Told;
use super::frames::Frames;
use super::outgoing::{self, REQUEST_TIMEOUT};
use super::{Shared, failure};
use crate::{ErrorKind, ModelError, Request};

/// A request that can be made without a stream.
pub(super) struct Whole {
    pub(super) shared: Arc<Shared>,
    /// The provider's place.
    pub(super) index: usize,
    /// As the provider knows the model.
    pub(super) model: String,
    pub(super) request: Request,
}

/// What is no call, refusal or usage: those are noted where they are of a stream.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Said {
    pub(super) thought: String,
    pub(super) text: String,
}

impl Whole {
    /// Whether this provider has answered without a stream before.
    pub(super) fn is_usual(&self) -> bool {
        self.shared.whole[self.index].load(Ordering::Relaxed)
    }

    pub(super) async fn ask(self, frames: &Frames) -> Result<Said, ModelError> {
        let (provider, address) =
            (&self.shared.providers[self.index], &self.shared.addresses[self.index]);
        let info = self.shared.catalog.find(&self.model);
        let call = outgoing::call(provider, address, &self.model, info, &self.request)?;
        let options = call.options.with_capture_raw_body(true);
        let asked = self.shared.client.exec_chat(call.target, call.messages, Some(&options));
        // There are no pauses to be limited, only the whole.
        let most = provider.request_timeout.unwrap_or(REQUEST_TIMEOUT);
        let Ok(answer) = tokio::time::timeout(most, asked).await else {
            return Err(failure::ours(ErrorKind::Timeout, provider, "it did not answer in time"));
        };
        let mut body = match answer {
            Ok(answer) => answer.captured_raw_body.unwrap_or_default(),
            // The client asks more of an answer than is needed here.
            Err(genai::Error::ChatResponseGeneration { response_body, .. }) => *response_body,
            // What it calls its answer says nothing of what it is.
            Err(genai::Error::WebModelCall {
                webc_error: genai::webc::Error::ResponseFailedNotJson { body, .. },
                ..
            }) => serde_json::from_str(&body).unwrap_or_default(),
            Err(error) => return Err(failure::failure(&error, provider, address)),
        };
        if !body["error"].is_null() {
            return Err(failure::told(provider, Told::from_value(&body)));
        }
        let Some(chunk) = chunk(&mut body) else {
            let what = "the answer is not what it should be";
            return Err(failure::ours(ErrorKind::BrokenStream, provider, what));
        };
        self.shared.whole[self.index].store(true, Ordering::Relaxed);
        frames.seen().add_chunk(&chunk);
        Ok(said(&chunk["choices"][0]["delta"]))
    }
}

/// A whole answer as the one chunk of a stream.
fn chunk(body: &mut Value) -> Option<Value> {
    let choice = body.get_mut("choices")?.get_mut(0)?;
    let mut message = choice.get_mut("message")?.take();
    let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
    for (index, call) in calls.into_iter().flatten().enumerate() {
        if let Some(call) = call.as_object_mut() {
            call.insert("index".to_owned(), json!(index));
        }
    }
    // It is whole, whether or not it says why it stopped.
    let reason = choice["finish_reason"].as_str().unwrap_or("stop");
    Some(json!({"choices": [{"delta": message, "finish_reason": reason}], "usage": body["usage"]}))
}

fn said(message: &Value) -> Said {
    let text = |value: &Value| match value {
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        value => value.as_str().unwrap_or_default().to_owned(),
    };
    let thought = [&message["reasoning_content"], &message["reasoning"]].map(text);
    Said {
        thought: thought.into_iter().find(|it| !it.is_empty()).unwrap_or_default(),
        text: text(&message["content"]),
    }
}
