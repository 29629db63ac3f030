use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who wrote it.
    pub role: Role,
    /// Its content, in order.
    pub content: Vec<Content>,
}

impl Message {
    /// A text from the system.
    pub fn system(text: impl Into<String>) -> Self {
        Self::text_of(Role::System, text)
    }

    /// A text from the user.
    pub fn user(text: impl Into<String>) -> Self {
        Self::text_of(Role::User, text)
    }

    /// A text from the model.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::text_of(Role::Assistant, text)
    }

    fn text_of(role: Role, text: impl Into<String>) -> Self {
        Self { role, content: vec![Content::Text { text: text.into() }] }
    }

    /// Its texts, one after the other, without tool calls and their results.
    pub fn text(&self) -> String {
        let texts = self.content.iter().filter_map(|content| match content {
            Content::Text { text } => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// Its tool calls, in order.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.content.iter().filter_map(|content| match content {
            Content::ToolCall(call) => Some(call),
            _ => None,
        })
    }
}

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The instructions of the conversation.
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
    /// The tools, with their results.
    Tool,
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Content {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// Reasoning of the model. Its provider requires it back unchanged and at its place.
    Reasoning(Reasoning),
    /// A tool call of the model.
    ToolCall(ToolCall),
    /// The result of a tool call.
    ToolResult {
        /// The `id` of the call.
        id: String,
        /// The result, as text for the model.
        text: String,
        /// The tool failed, and the text says why.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

/// A block of reasoning, or what a provider has attached to the text or call beside it.
///
/// Signatures are bound to the conversation before them: where that has changed since (by a
/// compaction, other tools, another system prompt), the block is not sent any more, and neither is it
/// sent to another model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reasoning {
    /// The text, or a summary of it; empty where the provider hides it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The provider's signature of the text, or of the call that follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// The encrypted reasoning, where only the provider can read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redacted: Option<String>,
    /// Fields in the provider's own form, to go back unchanged. In Chat Completions these are the
    /// fields of the message; one that is null takes the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<Value>,
    /// The phase of the text before it, in the provider's word (`commentary`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The interface that it comes from; it is sent to no other. `None` is sent to all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The model that it comes from, by the provider's name; it is sent to no other. `None` in older
    /// records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// A hash of the conversation before it, as it was sent. `None` in older records, and where there
    /// is no signature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
}

#[cfg(feature = "providers")]
impl Reasoning {
    /// Whether its provider can tell that the conversation before it has changed.
    pub(crate) fn is_bound(&self) -> bool {
        let has_fields = |fields: &Value| {
            fields.as_object().is_some_and(|map| map.values().any(|value| !value.is_null()))
        };
        self.signature.is_some()
            || self.redacted.is_some()
            || self.fields.as_ref().is_some_and(has_fields)
    }
}

/// A tool that a model may call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Its name: letters, digits, `_` and `-`, at most 64 characters.
    pub name: String,
    /// What it does and when to use it, for the model.
    pub description: String,
    /// The JSON Schema of its arguments: an object's.
    pub parameters: Arc<Value>,
}

/// A tool call of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Links the call to its result; unique in the conversation.
    pub id: String,
    /// The tool.
    pub name: String,
    /// Its arguments: an object, unless the model made a mistake.
    pub arguments: Value,
}
