//! Messages of `OpenAI`'s chat completions, as JSON.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::{CallRef, ResultRef, Role, Turn};

impl Turn for Value {
    fn role(&self) -> Role {
        match self["role"].as_str() {
            Some("system" | "developer") => Role::System,
            Some("assistant") => Role::Assistant,
            Some("tool") => Role::Tool,
            _ => Role::User,
        }
    }

    fn text(&self) -> Cow<'_, str> {
        if self.role() == Role::Tool { Cow::Borrowed("") } else { content(self) }
    }

    fn summary(text: String) -> Self {
        json!({ "role": "system", "content": text })
    }

    fn calls(&self) -> Vec<CallRef<'_>> {
        let calls = self["tool_calls"].as_array().into_iter().flatten();
        calls
            .map(|call| CallRef {
                id: text_at(call, "/id"),
                name: text_at(call, "/function/name"),
                arguments: text_at(call, "/function/arguments").into(),
            })
            .collect()
    }

    fn results(&self) -> Vec<ResultRef<'_>> {
        if self.role() != Role::Tool {
            return Vec::new();
        }
        let id = text_at(self, "/tool_call_id");
        vec![ResultRef { id, text: content(self), is_error: false }]
    }

    fn with_result(&self, id: &str, text: String) -> Option<Self> {
        let is_result = self.role() == Role::Tool && text_at(self, "/tool_call_id") == id;
        let mut shorter = is_result.then(|| self.clone())?;
        shorter["content"] = text.into();
        Some(shorter)
    }
}

fn text_at<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The content: a string, or a list of parts of which some are text.
fn content(message: &Value) -> Cow<'_, str> {
    match &message["content"] {
        Value::String(text) => Cow::Borrowed(text),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => Cow::Borrowed(""),
    }
}
