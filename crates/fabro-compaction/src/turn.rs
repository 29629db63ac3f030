use std::borrow::Cow;

use fabro_tokens::CountTokens;
use serde_json::Value;

/// What the message that replaces the old ones begins with.
pub const SUMMARY_TAG: &str = "[Context Summary]";

/// A message of a conversation, of the caller's own type.
///
/// Three functions are required; `serde_json::Value` is a message of `OpenAI`'s chat completions. A type whose messages call tools says so with [`calls`](Turn::calls)
/// and [`results`](Turn::results); without them a message of the role [`Role::Tool`] counts as a
/// result of the message before it.
pub trait Turn {
    /// The role of its author.
    fn role(&self) -> Role;

    /// Its text, without calls and results.
    fn text(&self) -> Cow<'_, str>;

    /// A message of the role [`Role::System`] with this text, which takes the place of old messages.
    fn summary(text: String) -> Self
    where
        Self: Sized;

    /// The calls of tools it asks for, in order.
    fn calls(&self) -> Vec<CallRef<'_>> {
        Vec::new()
    }

    /// The results of calls it brings, in order.
    fn results(&self) -> Vec<ResultRef<'_>> {
        Vec::new()
    }

    /// The same message with another text for the result of the call `id`. `None`, the default, for
    /// a type whose results are never to be shortened, and where there is no such result.
    fn with_result(&self, _id: &str, _text: String) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// What it takes of the model's window, in tokens. The default counts text, calls and results;
    /// a type that sends more than those (thoughts, pictures) adds it here.
    fn tokens(&self, counter: &dyn CountTokens) -> u64 {
        let count = |text: &str| counter.count(text) as u64;
        let calls = self.calls();
        let calls = calls.iter().map(|call| count(call.name) + count(&call.arguments.text()));
        let results = self.results();
        let results = results.iter().map(|result| count(&result.text));
        count(&self.text()) + calls.sum::<u64>() + results.sum::<u64>()
    }
}

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Instructions, and summaries.
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
    /// The tools, with their results.
    Tool,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRef<'a> {
    /// Names the call for its result. An id may come again in a later message: a result belongs to
    /// the last call of its id that has none.
    pub id: &'a str,
    /// The tool.
    pub name: &'a str,
    /// Its arguments.
    pub arguments: Arguments<'a>,
}

/// The arguments of a call, rendered only when they are read.
#[derive(Clone, Debug, PartialEq)]
pub enum Arguments<'a> {
    /// A text, JSON as a rule.
    Text(Cow<'a, str>),
    /// A JSON value.
    Json(&'a Value),
}

impl Arguments<'_> {
    /// The text, or the value as compact JSON.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Json(value) => Cow::Owned(value.to_string()),
        }
    }
}

impl<'a> From<&'a str> for Arguments<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Arguments<'_> {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl<'a> From<&'a Value> for Arguments<'a> {
    fn from(value: &'a Value) -> Self {
        Self::Json(value)
    }
}

/// The result of a tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultRef<'a> {
    /// The `id` of the call.
    pub id: &'a str,
    /// The result, as the model reads it.
    pub text: Cow<'a, str>,
    /// The tool failed, and the text says why.
    pub is_error: bool,
}

/// Whether a message is the summary that an earlier compaction left.
pub fn is_summary<T: Turn + ?Sized>(turn: &T) -> bool {
    turn.role() == Role::System && turn.text().starts_with(SUMMARY_TAG)
}
