use std::sync::Arc;

use fabro_compaction::Policy;
use fabro_llm::{Model, RequestPolicy};
use fabro_redact::Redactor;
use fabro_tools::{ToolContext, ToolSet};
use fabro_types::{Permissions, Usage};
use serde_json::Value;

use crate::Journal;

/// What a session is built from.
pub struct Parts {
    /// Names the session in its notes.
    pub id: Arc<str>,
    /// The session that began this one; `None` for one that a person or a workflow began.
    pub parent: Option<Arc<str>>,
    /// The model that answers.
    pub model: Arc<dyn Model>,
    /// The tools that the model may call. Those for subagents are added by the session: see
    /// [`Settings::subagent_depth`].
    pub tools: ToolSet,
    /// Records what happens.
    pub journal: Arc<dyn Journal>,
    /// How the session behaves.
    pub settings: Settings,
    /// The workflow, for tools.
    pub context: ToolContext,
}

/// Whether another turn is allowed, given the usage so far.
pub type MayAsk = Arc<dyn Fn(&Usage) -> bool + Send + Sync>;

/// Puts the price of an answer into its usage.
pub type Price = Arc<dyn Fn(&mut Usage) + Send + Sync>;

/// What arrives of an answer.
#[derive(Clone, Copy, Debug)]
pub enum LiveAnswer<'a> {
    /// More of its text.
    Text(&'a str),
    /// It is whole, or what arrived of it is discarded.
    End,
}

/// Sees answers while they arrive. It is called between the pieces, so it must be quick.
pub type Live = Arc<dyn Fn(LiveAnswer<'_>) + Send + Sync>;

/// How a session behaves. [`Settings::default`] is a session with nothing chosen.
#[derive(Clone)]
pub struct Settings {
    /// The system prompt; none when it is empty. See [`system_prompt`](crate::system_prompt).
    pub system: String,
    /// What stands before the text of the first message, with a blank line between them; nothing when it is
    /// empty.
    pub opening: String,
    /// The model's name; `None` leaves the choice to the provider's default.
    pub model: Option<String>,
    /// The provider's name; `None` leaves the choice to what is configured.
    pub provider: Option<String>,
    /// How long the model may think: `low`, `medium` or `high`.
    pub reasoning_effort: Option<String>,
    /// The provider's speed tier.
    pub speed: Option<String>,
    /// The most tokens of one answer.
    pub max_tokens: Option<u32>,
    /// The JSON Schema that the last answer is to match, where the provider can enforce it. The
    /// caller validates it: see [`Session::correct`](crate::Session::correct).
    pub output_schema: Option<Arc<Value>>,
    /// Whether an answer that is empty, even after it was asked for again, is the answer, because the
    /// caller validates it. Otherwise it is an error.
    pub takes_empty_answers: bool,
    /// How many turns the model may have, those before a crash and those of corrections included.
    pub max_turns: u32,
    /// What tools may do.
    pub permissions: Permissions,
    /// What the model takes, in tokens; `None` when it is not known.
    pub window: Option<u64>,
    /// When and how the conversation is shortened.
    pub compaction: Policy,
    /// Retries of a failed turn, and the fallbacks.
    pub asking: RequestPolicy,
    /// How many levels of subagents there may be. At 0 there are no tools for them.
    pub subagent_depth: u32,
    /// How many subagents of one agent run at the same time, at least one; others wait for their turn.
    pub max_subagents: usize,
    /// Called before each turn with the usage of the session, subagents included. `None`: there is no
    /// limit.
    pub may_ask: Option<MayAsk>,
    /// Prices answers. `None`: the price is what the model reports.
    pub price: Option<Price>,
    /// Sees the session's answers while they arrive, not redacted; those of subagents are not shown.
    pub live: Option<Live>,
    /// Whether an agent that repeats its calls is warned, and ended after some warnings.
    pub loop_detection: bool,
    /// Redacts secrets in answers of the model and in its errors. Tools redact their outputs
    /// themselves.
    pub redactor: Redactor,
    /// The prompt-cache key of the session's requests: see [`fabro_llm::Request::cache_key`].
    pub cache_key: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            system: String::new(),
            opening: String::new(),
            model: None,
            provider: None,
            reasoning_effort: None,
            speed: None,
            max_tokens: None,
            output_schema: None,
            takes_empty_answers: false,
            max_turns: 200,
            permissions: Permissions::default(),
            window: None,
            compaction: Policy::default(),
            asking: RequestPolicy::default(),
            subagent_depth: 1,
            max_subagents: 8,
            may_ask: None,
            price: None,
            live: None,
            loop_detection: true,
            redactor: Redactor::default(),
            cache_key: None,
        }
    }
}
