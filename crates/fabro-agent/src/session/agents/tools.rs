//! The tools by which an agent controls its subagents.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fabro_llm::ToolSpec;
use fabro_tools::{Call, Output, Tool};
use fabro_types::Permissions;
use futures_util::future::join_all;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Agents, Status};
use crate::subagent_calls::{
    CLOSE, CloseArguments, SEND, SPAWN, SendArguments, SpawnArguments, WAIT, WaitArguments,
};

/// The timeout of `wait` where the call has none, in seconds.
const WAIT_S: u64 = 300;

/// The longest timeout, in seconds.
const LONGEST_WAIT_S: u64 = 3_600;

#[derive(Clone, Copy)]
enum Kind {
    Spawn,
    Send,
    Wait,
    Close,
}

struct AgentTool {
    kind: Kind,
    spec: ToolSpec,
    agents: Arc<Agents>,
}

pub(super) fn tools(agents: &Arc<Agents>) -> Vec<Arc<dyn Tool>> {
    let kinds = [Kind::Spawn, Kind::Send, Kind::Wait, Kind::Close];
    let tool = |kind: Kind| -> Arc<dyn Tool> {
        Arc::new(AgentTool { kind, spec: kind.spec(), agents: Arc::clone(agents) })
    };
    kinds.map(tool).into()
}

impl Kind {
    fn spec(self) -> ToolSpec {
        let id = json!({"type": "string", "description": "The id that spawn_agent gave."});
        let (name, description, properties, required) = match self {
            Self::Spawn => (
                SPAWN,
                "Begins another agent that works on a task of its own while you continue. It knows \
                 only what the task says and has no more rights than you. Gives its id; get its \
                 answer with wait.",
                json!({
                    "task": {"type": "string", "minLength": 1, "description": "What to do, with everything the agent needs to know, and what to answer."},
                    "tools": {"type": "array", "items": {"type": "string"}, "description": "The tools it may use; without it, the same as you."},
                    "model": {"type": "string", "description": "The model to use; without it, the same as yours."},
                }),
                json!(["task"]),
            ),
            Self::Send => (
                SEND,
                "Sends a message to an agent that you began: more information, a change of its task, \
                 or a new task once it has answered.",
                json!({"agent_id": id, "text": {"type": "string", "minLength": 1, "description": "The message."}}),
                json!(["agent_id", "text"]),
            ),
            Self::Wait => (
                WAIT,
                "Waits until agents that you began have answered, and gives their answers. Those \
                 that are still running at the timeout continue.",
                json!({
                    "agent_ids": {"type": "array", "items": id, "description": "Which agents; without it, all."},
                    "timeout_s": {"type": "integer", "minimum": 0, "maximum": LONGEST_WAIT_S, "description": "How long to wait at most, in seconds; 300 without it."},
                }),
                json!([]),
            ),
            Self::Close => (
                CLOSE,
                "Ends an agent that you began. Agents that are not closed end with your last answer.",
                json!({"agent_id": id}),
                json!(["agent_id"]),
            ),
        };
        let parameters = json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        });
        ToolSpec {
            name: name.to_owned(),
            description: description.to_owned(),
            parameters: Arc::new(parameters),
        }
    }
}

#[async_trait]
impl Tool for AgentTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn needs(&self) -> Permissions {
        Permissions::ReadOnly
    }

    async fn call(&self, call: Call<'_>) -> Output {
        let done = async {
            match self.kind {
                Kind::Spawn => self.spawn(arguments(&call)?).await,
                Kind::Send => self.send(&arguments(&call)?),
                Kind::Wait => self.wait(arguments(&call)?).await,
                Kind::Close => self.close(arguments(&call)?).await,
            }
        };
        tokio::select! {
            biased;
            () = call.cancel.cancelled() => Output::error("canceled"),
            done = done => done.map_or_else(Output::error, Output::ok),
        }
    }
}

impl AgentTool {
    async fn spawn(&self, arguments: SpawnArguments) -> Result<String, String> {
        let id = self.agents.spawn(arguments).await?;
        Ok(format!("Agent `{id}` is running."))
    }

    fn send(&self, arguments: &SendArguments) -> Result<String, String> {
        self.agents.send(&arguments.agent_id, &arguments.text)?;
        Ok(format!("Agent `{}` will get it.", arguments.agent_id))
    }

    async fn wait(&self, arguments: WaitArguments) -> Result<String, String> {
        let ids = match arguments.agent_ids {
            Some(ids) => ids.into_iter().map(Arc::from).collect(),
            None => self.agents.ids(),
        };
        if ids.is_empty() {
            return Err("there are no agents to wait for: spawn one first".to_owned());
        }
        let time = Duration::from_secs(arguments.timeout_s.unwrap_or(WAIT_S).min(LONGEST_WAIT_S));
        let all = ids.iter().map(async |id: &Arc<str>| {
            let status = tokio::time::timeout(time, self.agents.wait(id, is_idle)).await;
            (Arc::clone(id), status.unwrap_or(Ok(Status::Running)))
        });
        let mut text = String::new();
        let mut is_error = true;
        for (id, status) in join_all(all).await {
            let line = match status {
                Ok(status) => {
                    is_error = false;
                    describe(&status)
                }
                Err(message) => message,
            };
            let separator = if text.is_empty() { "" } else { "\n\n" };
            let _ = write!(text, "{separator}## {id}\n{line}");
        }
        if is_error { Err(text) } else { Ok(text) }
    }

    async fn close(&self, arguments: CloseArguments) -> Result<String, String> {
        self.agents.find(&arguments.agent_id)?;
        let closed = self.agents.close(&arguments.agent_id).await;
        let status = closed.map_err(|error| error.to_string())?;
        Ok(format!("Agent `{}` is closed. Before that: {}", arguments.agent_id, describe(&status)))
    }
}

/// Whether an agent has nothing to do. One that is paused has.
fn is_idle(status: &Status) -> bool {
    !matches!(status, Status::Running | Status::Paused)
}

fn describe(status: &Status) -> String {
    match status {
        Status::Running | Status::Paused => "It is still running.".to_owned(),
        Status::Answered(text) => text.clone(),
        Status::Failed(message) => format!("It failed: {message}"),
        Status::Ended => "It has ended without an answer.".to_owned(),
    }
}

/// The arguments of a call, which match the schema already.
fn arguments<T: DeserializeOwned>(call: &Call<'_>) -> Result<T, String> {
    let arguments = Value::Object(call.arguments.clone());
    T::deserialize(arguments).map_err(|error| format!("the arguments do not fit: {error}"))
}
