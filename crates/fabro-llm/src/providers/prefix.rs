//! A hash of a conversation up to any place, to see whether it has changed since.

use fabro_types::BlobRef;
use sha2::{Digest, Sha256};

use crate::{Content, Request, Role, ToolCall};

/// Ends a text: no text has this byte.
const END: &[u8] = &[0xff];

/// The hash of what a model has read: tools, the system's messages, and the conversation so far.
///
/// Reasoning is not part of it: which blocks were sent follows from the rest. The system's messages
/// come first wherever they are, as on most interfaces.
#[derive(Clone, Debug, Default)]
pub(super) struct PrefixHash {
    hash: Sha256,
    role: Option<Role>,
}

impl PrefixHash {
    /// What comes before the first message.
    pub(super) fn begin(request: &Request) -> Self {
        let mut prefix = Self::default();
        for tool in &*request.tools {
            prefix.add_text(&tool.name);
            prefix.add_text(&tool.description);
            prefix.add_json(&tool.parameters);
        }
        for message in request.messages.iter().filter(|message| message.role == Role::System) {
            prefix.add_text(&message.text());
        }
        prefix
    }

    /// The next content is of a message with this role.
    pub(super) fn start(&mut self, role: Role) {
        if self.role.replace(role) != Some(role) {
            self.hash.update(END);
            self.hash.update([role as u8]);
        }
    }

    /// Adds the next content. Texts that follow each other count as one.
    pub(super) fn add(&mut self, content: &Content) {
        match content {
            Content::Text { text } => self.add_piece(text),
            Content::Reasoning(_) => {}
            Content::ToolCall(call) => self.add_call(call),
            Content::ToolResult { id, text, is_error } => {
                self.hash.update(END);
                self.add_text(id);
                self.add_text(text);
                self.hash.update([u8::from(*is_error)]);
            }
        }
    }

    /// Adds a piece of a text.
    pub(super) fn add_piece(&mut self, text: &str) {
        self.hash.update(text);
    }

    pub(super) fn add_call(&mut self, call: &ToolCall) {
        self.hash.update(END);
        self.add_text(&call.id);
        self.add_text(&call.name);
        self.add_json(&call.arguments);
    }

    /// The hash so far, short.
    pub(super) fn digest(&self) -> String {
        let mut hex = BlobRef::from_digest(self.hash.clone().finalize().into()).hex();
        hex.truncate(16);
        hex
    }

    fn add_text(&mut self, text: &str) {
        self.hash.update(text);
        self.hash.update(END);
    }

    fn add_json(&mut self, value: &serde_json::Value) {
        self.add_text(&value.to_string());
    }
}
