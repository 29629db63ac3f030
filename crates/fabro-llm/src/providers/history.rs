//! The conversation in a form that every provider accepts: calls and results in pairs, calls as
//! words where no tools are offered, and only the reasoning that may go back.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::prefix::PrefixHash;
use crate::{Content, Message, Reasoning, Request, Role};

/// Stands for the result of a call that has none.
const NO_RESULT: &str = "[no result: the call was interrupted]";

/// Which reasoning goes back: that of this interface and model.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReasoningSource<'a> {
    pub(super) provider: &'a str,
    pub(super) model: &'a str,
}

/// The request as it is sent, and the hash of all of it.
pub(super) fn fit<'a>(
    mut request: Cow<'a, Request>,
    source: ReasoningSource<'_>,
) -> (Cow<'a, Request>, PrefixHash) {
    if !is_paired(&request.messages) {
        let messages = paired(&request.messages);
        request.to_mut().messages = messages.into();
    }
    if request.tools.is_empty() && request.messages.iter().any(|message| has_tool_blocks(message)) {
        let messages = request.messages.iter().map(in_words).collect::<Vec<_>>();
        request.to_mut().messages = messages.into();
    }
    strip_reasoning(request, source)
}

/// Whether each call has its result right behind its message, and each result its call.
fn is_paired(messages: &[Arc<Message>]) -> bool {
    let mut open: BTreeSet<&str> = BTreeSet::new();
    for message in messages {
        if message.role != Role::Tool && !open.is_empty() {
            return false;
        }
        for content in &message.content {
            let fits = match content {
                Content::ToolCall(call) => open.insert(&call.id),
                Content::ToolResult { id, .. } => open.remove(id.as_str()),
                _ => true,
            };
            if !fits {
                return false;
            }
        }
    }
    open.is_empty()
}

/// Results right behind their calls. Those without a call are put into words, and calls without a
/// result get one that says so.
fn paired(messages: &[Arc<Message>]) -> Vec<Arc<Message>> {
    let mut paired: Vec<Arc<Message>> = Vec::new();
    let mut taken: BTreeSet<usize> = BTreeSet::new();
    for (place, message) in messages.iter().enumerate() {
        if message.role != Role::Tool {
            paired.push(Arc::clone(message));
            let results = results_of(message, &messages[place + 1..], place + 1, &mut taken);
            if !results.is_empty() {
                paired.push(Arc::new(Message { role: Role::Tool, content: results }));
            }
            continue;
        }
        if taken.contains(&place) {
            continue;
        }
        let words: Vec<_> = message.content.iter().map(content_in_words).collect();
        paired.push(Arc::new(Message { role: Role::User, content: words }));
    }
    paired
}

/// The results of a message's calls, before the model's next message.
fn results_of(
    message: &Message,
    later: &[Arc<Message>],
    first: usize,
    taken: &mut BTreeSet<usize>,
) -> Vec<Content> {
    let mut results = Vec::new();
    let until = later.iter().position(|it| it.role == Role::Assistant).unwrap_or(later.len());
    for call in message.tool_calls() {
        let is_result = |content: &&Content| matches!(content, Content::ToolResult { id, .. } if *id == call.id);
        let found = later[..until]
            .iter()
            .enumerate()
            .find_map(|(offset, message)| Some((offset, message.content.iter().find(is_result)?)));
        if let Some((offset, _)) = found {
            taken.insert(first + offset);
        }
        let missing = || Content::ToolResult {
            id: call.id.clone(),
            text: NO_RESULT.to_owned(),
            is_error: true,
        };
        results.push(found.map_or_else(missing, |(_, result)| result.clone()));
    }
    results
}

fn has_tool_blocks(message: &Message) -> bool {
    let is_block = |it: &Content| matches!(it, Content::ToolCall(_) | Content::ToolResult { .. });
    message.content.iter().any(is_block)
}

/// Providers refuse calls and results in a request that offers no tools.
fn in_words(message: &Arc<Message>) -> Arc<Message> {
    if !has_tool_blocks(message) {
        return Arc::clone(message);
    }
    let role = if message.role == Role::Tool { Role::User } else { message.role };
    let words = message.content.iter().map(content_in_words).collect();
    Arc::new(Message { role, content: words })
}

fn content_in_words(content: &Content) -> Content {
    let text = match content {
        Content::ToolCall(call) => format!("[Tool call {}: {}]", call.name, call.arguments),
        Content::ToolResult { text, is_error: false, .. } => format!("[Tool result: {text}]"),
        Content::ToolResult { text, is_error: true, .. } => format!("[Tool error: {text}]"),
        other => return other.clone(),
    };
    Content::Text { text }
}

/// Leaves the reasoning out that this model would refuse.
fn strip_reasoning<'a>(
    mut request: Cow<'a, Request>,
    source: ReasoningSource<'_>,
) -> (Cow<'a, Request>, PrefixHash) {
    let mut prefix = PrefixHash::begin(&request);
    let mut stripped: Vec<(usize, Message)> = Vec::new();
    for (place, message) in request.messages.iter().enumerate() {
        if message.role == Role::System {
            continue;
        }
        prefix.start(message.role);
        let mut kept: Vec<usize> = Vec::new();
        for (index, content) in message.content.iter().enumerate() {
            prefix.add(content);
            match content {
                Content::Reasoning(thought) if !goes_back(thought, source, &prefix) => {}
                _ => kept.push(index),
            }
        }
        if kept.len() < message.content.len() {
            let content = kept.into_iter().map(|index| message.content[index].clone()).collect();
            stripped.push((place, Message { role: message.role, content }));
        }
    }
    if !stripped.is_empty() {
        let messages = Arc::make_mut(&mut request.to_mut().messages);
        for (place, message) in stripped {
            messages[place] = Arc::new(message);
        }
    }
    prefix.start(Role::Assistant);
    (request, prefix)
}

fn goes_back(thought: &Reasoning, source: ReasoningSource<'_>, prefix: &PrefixHash) -> bool {
    let is = |own: &Option<String>, name: &str| own.as_deref().is_none_or(|own| own == name);
    if !is(&thought.provider, source.provider) {
        return false;
    }
    // A phase is a property of the text, whichever model wrote that.
    if thought.phase.is_some() {
        return true;
    }
    let is_unchanged = match &thought.prefix {
        Some(before) if thought.is_bound() => *before == prefix.digest(),
        _ => true,
    };
    is(&thought.model, source.model) && is_unchanged
}

#[cfg(test)]
mod tests;
