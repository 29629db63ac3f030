//! The tools by which an agent deals with agents of its own.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fabro_llm::{ToolCall, ToolSpec};
use fabro_tools::{Call, Output, Tool};
use fabro_types::Permissions;
use futures_util::future::join_all;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Family, Status, Task};

/// How long `wait` waits if it is not told, in seconds.
const WAIT_S: u64 = 300;

/// How long it waits at most, in seconds.
const LONGEST_WAIT_S: u64 = 3_600;

/// The names of these tools.
const NAMES: [&str; 4] = ["spawn_agent", "send_input", "wait", "close_agent"];

/// Whether a tool is one of these. Their calls depend on each other, so they keep their order.
pub(crate) fn is_ours(tool: &str) -> bool {
    NAMES.contains(&tool)
}

/// Whether a tool begins agents.
pub(crate) fn begins_one(tool: &str) -> bool {
    tool == NAMES[0]
}

/// Whether a tool only waits, so that it can be called again.
pub(crate) fn only_waits(tool: &str) -> bool {
    tool == NAMES[2]
}

/// Which agent a call tells something, and what.
pub(crate) fn tells(call: &ToolCall) -> Option<(String, String)> {
    let arguments = SendArguments::deserialize(&call.arguments).ok();
    let told = arguments.filter(|_| call.name == NAMES[1])?;
    Some((told.agent_id, told.text))
}

/// What arguments of a call begin.
pub(super) fn task_of(arguments: &Value) -> Option<Task> {
    let SpawnArguments { task, tools, model } = SpawnArguments::deserialize(arguments).ok()?;
    Some(Task { text: task, tools, model })
}

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
    family: Arc<Family>,
}

#[derive(Deserialize)]
struct SpawnArguments {
    task: String,
    tools: Option<Vec<String>>,
    model: Option<String>,
}

#[derive(Deserialize)]
struct SendArguments {
    agent_id: String,
    text: String,
}

#[derive(Deserialize)]
struct WaitArguments {
    agent_ids: Option<Vec<String>>,
    timeout_s: Option<u64>,
}

#[derive(Deserialize)]
struct CloseArguments {
    agent_id: String,
}

pub(super) fn tools(family: &Arc<Family>) -> Vec<Arc<dyn Tool>> {
    let kinds = [Kind::Spawn, Kind::Send, Kind::Wait, Kind::Close];
    let tool = |kind: Kind| -> Arc<dyn Tool> {
        Arc::new(AgentTool { kind, spec: kind.spec(), family: Arc::clone(family) })
    };
    kinds.map(tool).into()
}

impl Kind {
    fn spec(self) -> ToolSpec {
        let id = json!({"type": "string", "description": "The id that spawn_agent gave."});
        let (name, description, properties, required) = match self {
            Self::Spawn => (
                NAMES[0],
                "Begins another agent that works on a task of its own while you go on. It knows \
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
                NAMES[1],
                "Tells an agent that you began something: more information, a change of its task, \
                 or a new task once it has answered.",
                json!({"agent_id": id, "text": {"type": "string", "minLength": 1, "description": "What to tell it."}}),
                json!(["agent_id", "text"]),
            ),
            Self::Wait => (
                NAMES[2],
                "Waits until agents that you began have answered, and gives their answers. Those \
                 that are still at work when the time is over go on.",
                json!({
                    "agent_ids": {"type": "array", "items": id, "description": "Which agents; without it, all."},
                    "timeout_s": {"type": "integer", "minimum": 0, "maximum": LONGEST_WAIT_S, "description": "How long to wait at most, in seconds; 300 without it."},
                }),
                json!([]),
            ),
            Self::Close => (
                NAMES[3],
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
                Kind::Send => self.send(arguments(&call)?),
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
        let SpawnArguments { task, tools, model } = arguments;
        let id = self.family.spawn(Task { text: task, tools, model }).await?;
        Ok(format!("Agent `{id}` is at work."))
    }

    fn send(&self, arguments: SendArguments) -> Result<String, String> {
        self.family.tell(&arguments.agent_id, arguments.text)?;
        Ok(format!("Agent `{}` will see it.", arguments.agent_id))
    }

    async fn wait(&self, arguments: WaitArguments) -> Result<String, String> {
        let ids = match arguments.agent_ids {
            Some(ids) => ids.into_iter().map(Arc::from).collect(),
            None => self.family.ids(),
        };
        if ids.is_empty() {
            return Err("there are no agents to wait for: spawn one first".to_owned());
        }
        let time = Duration::from_secs(arguments.timeout_s.unwrap_or(WAIT_S).min(LONGEST_WAIT_S));
        let all = ids.iter().map(async |id: &Arc<str>| {
            let status = tokio::time::timeout(time, self.family.wait(id, is_over)).await;
            (Arc::clone(id), status.unwrap_or(Ok(Status::Running)))
        });
        let mut text = String::new();
        let mut is_error = true;
        for (id, status) in join_all(all).await {
            let line = match status {
                Ok(status) => {
                    is_error = false;
                    told(&status)
                }
                Err(message) => message,
            };
            let separator = if text.is_empty() { "" } else { "\n\n" };
            let _ = write!(text, "{separator}## {id}\n{line}");
        }
        if is_error { Err(text) } else { Ok(text) }
    }

    async fn close(&self, arguments: CloseArguments) -> Result<String, String> {
        self.family.find(&arguments.agent_id)?;
        let closed = self.family.close(&arguments.agent_id).await;
        let status = closed.map_err(|error| error.to_string())?;
        Ok(format!("Agent `{}` is closed. Before that: {}", arguments.agent_id, told(&status)))
    }
}

/// Whether an agent has nothing to do. One that is paused has.
fn is_over(status: &Status) -> bool {
    !matches!(status, Status::Running | Status::Paused)
}

fn told(status: &Status) -> String {
    match status {
        Status::Running | Status::Paused => "It is still at work.".to_owned(),
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
