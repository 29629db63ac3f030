//! Messages in the forms that compaction and notes need.

use std::borrow::Cow;
use std::sync::Arc;

use fabro_compaction::{CallRef, Cut, ResultRef, Role as TurnRole, Turn};
use fabro_events::{EventBody, Given, MessagePurpose, ShortenedResult};
use fabro_llm::{Content, Message, Role};
use fabro_types::{BlobRef, Usage};
use serde_json::Value;

/// How many characters of a text its note shows.
const PREVIEW: usize = 200;

/// A message of the conversation.
#[derive(Clone, Debug)]
pub(crate) struct Turned(pub(crate) Arc<Message>);

impl Turn for Turned {
    fn role(&self) -> TurnRole {
        match self.0.role {
            Role::System => TurnRole::System,
            Role::User => TurnRole::User,
            Role::Assistant => TurnRole::Assistant,
            Role::Tool => TurnRole::Tool,
        }
    }

    fn text(&self) -> Cow<'_, str> {
        let mut texts = self.0.content.iter().filter_map(|content| match content {
            Content::Text { text } => Some(text.as_str()),
            _ => None,
        });
        match (texts.next(), texts.next()) {
            (None, _) => Cow::Borrowed(""),
            (Some(text), None) => Cow::Borrowed(text),
            _ => Cow::Owned(self.0.text()),
        }
    }

    fn summary(text: String) -> Self {
        Self(Arc::new(Message::system(text)))
    }

    fn calls(&self) -> Vec<CallRef<'_>> {
        let calls = self.0.tool_calls();
        calls
            .map(|call| CallRef {
                id: &call.id,
                name: &call.name,
                arguments: (&call.arguments).into(),
            })
            .collect()
    }

    fn results(&self) -> Vec<ResultRef<'_>> {
        let results = self.0.content.iter().filter_map(|content| match content {
            Content::ToolResult { id, text, is_error } => {
                Some(ResultRef { id, text: Cow::Borrowed(text), is_error: *is_error })
            }
            _ => None,
        });
        results.collect()
    }

    fn with_result(&self, id: &str, text: String) -> Option<Self> {
        let mut message = Message::clone(&self.0);
        let mut results = message.content.iter_mut();
        let found = results.find_map(|content| match content {
            Content::ToolResult { id: call, text, .. } if call == id => Some(text),
            _ => None,
        });
        *found? = text;
        Some(Self(Arc::new(message)))
    }
}

/// Shortens results among messages, as it is recorded; those that are not among them are left in the
/// list.
pub(crate) fn shorten_results(messages: &mut [Arc<Message>], list: &mut Vec<ShortenedResult>) {
    if list.is_empty() {
        return;
    }
    for message in messages {
        let mut turned = Turned(Arc::clone(message));
        list.retain(|shortened| {
            let results = turned.results();
            let Some(result) = results.iter().find(|result| result.id == shortened.call_id) else {
                return true;
            };
            let text = cut_of(shortened).text(&result.text);
            if let Some(shorter) = turned.with_result(&shortened.call_id, text) {
                turned = shorter;
            }
            false
        });
        *message = turned.0;
    }
}

fn cut_of(shortened: &ShortenedResult) -> Cut {
    let chars = |chars: u64| usize::try_from(chars).unwrap_or(usize::MAX);
    let head = chars(shortened.head);
    let tail = chars(shortened.tail);
    Cut { turn: 0, id: shortened.call_id.clone(), head, tail }
}

/// The beginning of a text.
pub(crate) fn preview(text: &str) -> String {
    text.chars().take(PREVIEW).collect()
}

/// What a text looks like in a record. One that could be taken for the name of a blob is put into
/// a message, where it cannot.
pub(crate) fn text_value(role: Role, text: &str) -> Value {
    if is_blob_name(text) {
        let content = vec![Content::Text { text: text.to_owned() }];
        return message_value(&Message { role, content });
    }
    Value::String(text.to_owned())
}

/// Whether a text would stand for a blob in a record.
pub(crate) fn is_blob_name(text: &str) -> bool {
    text.starts_with("blob://") && text.parse::<BlobRef>().is_ok()
}

/// The note of a user message.
pub(crate) fn user_note(
    text: &str,
    purpose: MessagePurpose,
    given: Option<Box<Given>>,
) -> EventBody {
    EventBody::AgentMessage {
        role: "user".to_owned(),
        text: preview(text),
        message: Some(Arc::new(text_value(Role::User, text))),
        usage: None,
        given,
        purpose: Some(purpose),
    }
}

/// The note of an answer.
pub(crate) fn answer_note(message: &Message, usage: Usage, given: Option<Box<Given>>) -> EventBody {
    EventBody::AgentMessage {
        role: "assistant".to_owned(),
        text: preview(&message.text()),
        message: Some(Arc::new(message_value(message))),
        usage: Some(usage),
        given,
        purpose: None,
    }
}

#[expect(clippy::expect_used, reason = "a message has text keys only")]
fn message_value(message: &Message) -> Value {
    serde_json::to_value(message).expect("a message is always JSON")
}
