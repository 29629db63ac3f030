//! The calls by which a model controls its subagents: names and arguments, as models write them.

use fabro_llm::ToolCall;
use serde::Deserialize;

pub(crate) const SPAWN: &str = "spawn_agent";
pub(crate) const SEND: &str = "send_input";
pub(crate) const WAIT: &str = "wait";
pub(crate) const CLOSE: &str = "close_agent";

/// The tools that a session adds to an agent's own where [`Settings::subagent_depth`] allows
/// subagents.
///
/// [`Settings::subagent_depth`]: crate::Settings::subagent_depth
pub const SUBAGENT_TOOLS: [&str; 4] = [SPAWN, SEND, WAIT, CLOSE];

/// The source of messages to a subagent, in its notes.
pub(crate) const SOURCE: &str = "agent";

/// Whether a tool is one of these. Their calls depend on each other, so they keep their order.
pub(crate) fn is_for_subagents(tool: &str) -> bool {
    SUBAGENT_TOOLS.contains(&tool)
}

/// What a subagent is to do, and with what.
#[derive(Deserialize)]
pub(crate) struct SpawnArguments {
    pub(crate) task: String,
    pub(crate) tools: Option<Vec<String>>,
    pub(crate) model: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct SendArguments {
    pub(crate) agent_id: String,
    pub(crate) text: String,
}

#[derive(Deserialize)]
pub(crate) struct WaitArguments {
    pub(crate) agent_ids: Option<Vec<String>>,
    pub(crate) timeout_s: Option<u64>,
}

#[derive(Deserialize)]
pub(crate) struct CloseArguments {
    pub(crate) agent_id: String,
}

/// The arguments of a call that sends a subagent a message.
pub(crate) fn send_arguments(call: &ToolCall) -> Option<SendArguments> {
    SendArguments::deserialize(&call.arguments).ok().filter(|_| call.name == SEND)
}
