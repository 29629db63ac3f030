#[cfg(feature = "providers")]
use std::any::Any;
use std::sync::Arc;
#[cfg(feature = "providers")]
use std::sync::{Mutex, PoisonError};

use fabro_types::{BranchPath, Usage};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use imbl::OrdMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Content, ErrorKind, Message, ModelError, Reasoning, Role, ToolCall, ToolSpec};

/// A language model, or a substitute for one.
pub trait Model: Send + Sync {
    /// Starts one turn. Dropping the stream cancels it.
    ///
    /// A stream ends with [`Part::End`] or with an error; one that stops without them is broken. Items
    /// after an error or the end are ignored.
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Part, ModelError>>;
}

impl<M: Model + ?Sized> Model for &M {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Part, ModelError>> {
        (**self).stream(request)
    }
}

impl<M: Model + ?Sized> Model for Box<M> {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Part, ModelError>> {
        (**self).stream(request)
    }
}

impl<M: Model + ?Sized> Model for Arc<M> {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Part, ModelError>> {
        (**self).stream(request)
    }
}

/// How many turns each node of a workflow has had, failed ones included.
pub type TurnCounts = OrdMap<Arc<str>, u32>;

/// The workflow stage that requests a model, and the turns taken before it.
#[derive(Clone, Copy, Debug)]
pub struct AskingStage<'a> {
    /// Its node.
    pub node: &'a str,
    /// The branch that it is on.
    pub branch: BranchPath<'a>,
    /// Which visit of the node, from 1.
    pub visit: u32,
    /// The turns that each node on its line has taken.
    pub taken: &'a TurnCounts,
    /// The turns that its own node took before this visit.
    pub taken_before_visit: u32,
}

impl<'a> AskingStage<'a> {
    /// The first visit of a node, on the main line.
    pub fn new(node: &'a str, taken: &'a TurnCounts) -> Self {
        Self { node, branch: BranchPath::MAIN, visit: 1, taken, taken_before_visit: 0 }
    }
}

/// Provides the model of each stage. Real models are shared by all stages; scripted and simulated models
/// are per stage.
pub type ModelSource = Arc<dyn Fn(&AskingStage<'_>) -> Arc<dyn Model> + Send + Sync>;

/// A request for one turn.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Request {
    /// The conversation so far, oldest first. Shared, so that neither a retry nor a long
    /// conversation costs a copy; [`Arc::make_mut`] changes it.
    pub messages: Arc<Vec<Arc<Message>>>,
    /// The tools that the model may call.
    pub tools: Arc<[ToolSpec]>,
    /// The JSON Schema that the answer is to match, for providers that can enforce it.
    pub output_schema: Option<Arc<Value>>,
    /// The model's name; `None` leaves the choice to the provider's default.
    pub model: Option<String>,
    /// The provider's name; `None` leaves the choice to what is configured.
    pub provider: Option<String>,
    /// How long the model may think: `none`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`. Sent as
    /// the nearest that the model takes, and not at all to models that take none.
    pub reasoning_effort: Option<String>,
    /// The provider's speed tier: `fast`, `standard`, or a word of the provider's own.
    pub speed: Option<String>,
    /// The most tokens of the answer.
    pub max_tokens: Option<u32>,
    /// Requests of one conversation have the same prompt-cache key, so that a provider finds the
    /// beginning it has cached. Sent to `OpenAI` only.
    pub cache_key: Option<String>,
    /// Whether the provider sends the answer in pieces. Where it sends it as a whole, the request's
    /// timeout is for all of it.
    pub streams: bool,
    /// What a model has made of it, for its retries.
    pub(crate) cache: RequestCache,
}

impl Request {
    /// A request with nothing chosen but its messages.
    pub fn new(messages: impl Into<Arc<Vec<Arc<Message>>>>) -> Self {
        Self {
            messages: messages.into(),
            tools: Arc::default(),
            output_schema: None,
            model: None,
            provider: None,
            reasoning_effort: None,
            speed: None,
            max_tokens: None,
            cache_key: None,
            streams: true,
            cache: RequestCache::default(),
        }
    }
}

/// What a model has made of a request and needs again for a retry. Clones of the request share it.
#[derive(Clone, Default)]
pub(crate) struct RequestCache(
    #[cfg(feature = "providers")] Arc<Mutex<Option<Arc<dyn Any + Send + Sync>>>>,
);

#[cfg(feature = "providers")]
impl RequestCache {
    /// What was kept, where it is of this type.
    pub(crate) fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        kept?.downcast().ok()
    }

    /// Keeps this in the place of what was kept before. It must not hold a clone of the request.
    pub(crate) fn set<T: Any + Send + Sync>(&self, value: T) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(value));
    }
}

impl std::fmt::Debug for RequestCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RequestCache")
    }
}

impl PartialEq for RequestCache {
    /// A cache is no part of what a request says.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A piece of an answer, as it arrives.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Part {
    /// More text.
    Text(String),
    /// A whole thought.
    Reasoning(Reasoning),
    /// A whole tool call.
    ToolCall(ToolCall),
    /// What differs from the request, in a sentence for the user.
    Warning(String),
    /// What the turn has used so far, as the provider says: for a turn that is given up before its end.
    Usage(Usage),
    /// The turn is complete.
    End {
        /// What the turn used.
        usage: Usage,
        /// Why the model stopped.
        stop: StopReason,
    },
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// The answer is complete.
    Complete,
    /// It called tools and waits for their results.
    ToolCalls,
    /// The answer reached the limit of tokens and is cut off.
    MaxTokens,
}

/// A whole turn of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// Its content, in order: reasoning, text, tool calls.
    pub content: Vec<Content>,
    /// What it used: one turn, and the failed ones before it where it was retried.
    pub usage: Usage,
    /// Why it stopped.
    pub stop: StopReason,
}

impl Reply {
    /// Its text; empty when it has only tool calls.
    pub fn text(&self) -> String {
        self.message().text()
    }

    /// Its tool calls, in order.
    pub fn tool_calls(&self) -> Vec<ToolCall> {
        self.message().tool_calls().cloned().collect()
    }

    /// The message that continues the conversation.
    pub fn message(&self) -> Message {
        Message { role: Role::Assistant, content: self.content.clone() }
    }

    /// The same without a copy.
    pub fn into_message(self) -> Message {
        Message { role: Role::Assistant, content: self.content }
    }
}

/// Sends a request and waits for the whole turn.
///
/// # Errors
///
/// The first error of the stream, or [`ErrorKind::BrokenStream`] when it stops without an end: a
/// partial answer is never returned as a whole one.
pub async fn complete<M: Model + ?Sized>(model: &M, request: Request) -> Result<Reply, ModelError> {
    collect(model.stream(request), |_| {}).await
}

/// Waits for the rest of a turn; `watch` sees each part as it arrives.
///
/// # Errors
///
/// As [`complete`].
pub async fn collect(
    mut stream: BoxStream<'static, Result<Part, ModelError>>,
    mut watch: impl FnMut(&Part) + Send,
) -> Result<Reply, ModelError> {
    let mut content: Vec<Content> = Vec::new();
    while let Some(part) = stream.next().await {
        let part = part?;
        watch(&part);
        match part {
            Part::Text(more) => match content.last_mut() {
                Some(Content::Text { text }) => text.push_str(&more),
                _ => content.push(Content::Text { text: more }),
            },
            Part::Reasoning(thought) => content.push(Content::Reasoning(thought)),
            Part::ToolCall(call) => content.push(Content::ToolCall(call)),
            Part::Warning(_) | Part::Usage(_) => {}
            Part::End { usage, stop } => {
                return Ok(Reply { content, usage: Usage { turns: 1, ..usage }, stop });
            }
        }
    }
    Err(ModelError::new(ErrorKind::BrokenStream))
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    struct Parts(Vec<Result<Part, ModelError>>);

    impl Model for Parts {
        fn stream(&self, _: Request) -> BoxStream<'static, Result<Part, ModelError>> {
            stream::iter(self.0.clone()).boxed()
        }
    }

    async fn ask(parts: Vec<Result<Part, ModelError>>) -> Result<Reply, ErrorKind> {
        let request = Request::new(Vec::new());
        complete(&Parts(parts), request).await.map_err(|error| error.kind)
    }

    fn text(text: &str) -> Part {
        Part::Text(text.to_owned())
    }

    fn end() -> Part {
        Part::End { usage: Usage::default(), stop: StopReason::Complete }
    }

    #[tokio::test]
    async fn parts_are_joined_up_to_the_end() {
        let reply = ask([text("a"), text("b"), end(), text("c")].map(Ok).into()).await.unwrap();
        assert_eq!((reply.text().as_str(), reply.usage.turns), ("ab", 1));
    }

    #[tokio::test]
    async fn a_stream_without_an_end_is_broken() {
        assert_eq!(ask(vec![Ok(text("a"))]).await, Err(ErrorKind::BrokenStream));
        assert_eq!(ask(Vec::new()).await, Err(ErrorKind::BrokenStream));
    }

    #[tokio::test]
    async fn the_first_error_ends_the_turn() {
        let error = Err(ModelError::new(ErrorKind::Overloaded));
        assert_eq!(ask(vec![Ok(text("a")), error, Ok(end())]).await, Err(ErrorKind::Overloaded));
    }

    #[tokio::test]
    async fn pointers_to_models_are_models() {
        let model: Arc<dyn Model> = Arc::new(Parts(vec![Ok(end())]));
        let boxed: Box<dyn Model> = Box::new(model.clone());
        let request = Request::new(Vec::new());
        assert!(complete(&*model, request.clone()).await.is_ok());
        assert!(complete(&model, request.clone()).await.is_ok());
        assert!(complete(&&boxed, request).await.is_ok());
    }
}
