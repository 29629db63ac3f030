use std::fmt;
use std::sync::Arc;

use fabro_compaction::Policy;
use fabro_llm::{Model, RequestPolicy};
use fabro_redact::Redactor;
use fabro_tools::{ToolContext, ToolSet};
use fabro_types::{Permissions, Usage};
use serde_json::Value;

use crate::Journal;

/// What a session is made of.
pub struct Parts {
    /// Names the session in its notes.
    pub id: Arc<str>,
    /// The session that began this one; `None` for one that a person or a workflow began.
    pub parent: Option<Arc<str>>,
    /// Who answers.
    pub model: Arc<dyn Model>,
    /// What the model may call. Those for agents of its own are added by the session: see
    /// [`Settings::subagent_depth`].
    pub tools: ToolSet,
    /// Keeps what happens.
    pub journal: Arc<dyn Journal>,
    /// How the session behaves.
    pub settings: Settings,
    /// What tools are told about the workflow.
    pub context: ToolContext,
}

/// Whether another turn may be asked for, after what was used so far.
pub type MayAsk = Arc<dyn Fn(&Usage) -> bool + Send + Sync>;

/// Puts the price of an answer into its usage.
pub type Price = Arc<dyn Fn(&mut Usage) + Send + Sync>;

/// How a session behaves. [`Settings::default`] is a session with nothing chosen.
#[derive(Clone)]
pub struct Settings {
    /// The system prompt; none when it is empty. See [`system_prompt`](crate::system_prompt).
    pub system: String,
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
    /// The JSON Schema that the last answer is to match, where the provider can be told. Checking
    /// it is the caller's: see [`Session::correct`](crate::Session::correct).
    pub output_schema: Option<Arc<Value>>,
    /// How many turns the model may have, those before a crash and those of corrections included.
    pub max_turns: u32,
    /// What tools may do.
    pub permissions: Permissions,
    /// What the model takes, in tokens; `None` when it is not known.
    pub window: Option<u64>,
    /// When and how the conversation is shortened.
    pub compaction: Policy,
    /// How often a failed turn is tried again, and who is asked instead.
    pub asking: RequestPolicy,
    /// How many levels of agents may be begun below this one. At 0 there are no tools for it.
    pub subagent_depth: u32,
    /// `RequestedCall` before each turn with what the session has used, agents that it began included.
    /// `None`: always.
    pub may_ask: Option<MayAsk>,
    /// Prices answers. `None`: prices are those the model states.
    pub price: Option<Price>,
    /// Whether an agent that repeats its calls is told, and given up in the end.
    pub loop_detection: bool,
    /// Redacts secrets in what the model says and in its errors. Tools redact their outputs
    /// themselves.
    pub redactor: Option<Arc<Redactor>>,
    /// The prompt-cache key of the session's requests: see [`fabro_llm::Request::cache_key`].
    pub cache_key: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            system: String::new(),
            model: None,
            provider: None,
            reasoning_effort: None,
            speed: None,
            max_tokens: None,
            output_schema: None,
            max_turns: 200,
            permissions: Permissions::default(),
            window: None,
            compaction: Policy::default(),
            asking: RequestPolicy::default(),
            subagent_depth: 1,
            may_ask: None,
            price: None,
            loop_detection: true,
            redactor: None,
            cache_key: None,
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("model", &self.model)
            .field("provider", &self.provider)
            .field("max_turns", &self.max_turns)
            .field("permissions", &self.permissions)
            .field("window", &self.window)
            .field("compaction", &self.compaction)
            .field("subagent_depth", &self.subagent_depth)
            .finish_non_exhaustive()
    }
}
