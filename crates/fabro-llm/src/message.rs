use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who says it.
    pub role: Role,
    /// What it says, in order.
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

    /// The tools it wants to run, in order.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.content.iter().filter_map(|content| match content {
            Content::ToolCall(call) => Some(call),
            _ => None,
        })
    }
}

/// Who says a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The rules of the conversation.
    System,
    /// The one who asks.
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
    /// What the model thought before it went on. The provider that made it wants it back unchanged,
    /// at its place, as long as tools are called.
    Reasoning(Reasoning),
    /// The model wants a tool to run.
    ToolCall(ToolCall),
    /// What a tool gave back.
    ToolResult {
        /// The `id` of the call.
        id: String,
        /// The result, as the model gets to read it.
        text: String,
        /// The tool failed, and the text says why.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

/// A thought of a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reasoning {
    /// The thought, or a summary of it; empty where the provider hides it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The provider's seal on the text, or on the call that follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// The thought itself where only the provider can read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redacted: Option<String>,
    /// Whose thought it is, by the kind of provider: nobody else gets to see it, for the seals of
    /// one are refused by another. `None` is shown to all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
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

/// A wish of the model to run a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Names the call for its result; no other call of the conversation has it.
    pub id: String,
    /// The tool.
    pub name: String,
    /// Its arguments: an object, unless the model erred.
    pub arguments: Value,
}
