//! A model behind a real socket, which does what the plan in its prompt says.
//!
//! An answer follows from the conversation alone, so it is the same for any order of requests,
//! and for any process. The number of a request is what its answer claims to have used:
//! so a recorded answer names the request that it belongs to.

use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use fabro_fakes::{Block, Request, Response, Server};
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// How long an answer takes: some are under way when a driver is killed.
const DELAY: Duration = Duration::from_millis(8);

/// A part of the result that an agent gets for an interrupted call.
pub(super) const INTERRUPTED: &str = "[interrupted:";

/// The server; it ends when this is dropped.
pub(crate) struct Model {
    url: String,
    log: Arc<Mutex<Vec<Asked>>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A request and its answer.
#[derive(Clone)]
pub(super) struct Asked {
    pub(super) messages: Vec<Value>,
    /// The ids of the calls.
    pub(super) calls: Vec<String>,
    pub(super) text: String,
}

impl Model {
    pub(super) fn start() -> Result<Self> {
        let log: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (ready, is_ready) = mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let asked = Arc::clone(&log);
        let thread = thread::spawn(move || {
            runtime.block_on(async move {
                let server = Server::answering(move |request| answer(request, &asked)).await;
                let url = server.as_ref().map(Server::base_url).map_err(ToString::to_string);
                // The receiver waits for it.
                let _ = ready.send(url);
                let _ = stopped.await;
                drop(server);
            });
        });
        let url = is_ready.recv()?.map_err(anyhow::Error::msg).context("start a server")?;
        Ok(Self { url, log, stop: Some(stop), thread: Some(thread) })
    }

    /// The base URL of its protocol.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// All requests so far; the first one has number 1.
    pub(super) fn log(&self) -> Vec<Asked> {
        lock(&self.log).clone()
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A server that panicked answers nothing, which is seen elsewhere.
            let _ = thread.join();
        }
    }
}

fn lock(log: &Mutex<Vec<Asked>>) -> MutexGuard<'_, Vec<Asked>> {
    // Requests are pushed whole.
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer(request: &Request, log: &Mutex<Vec<Asked>>) -> Response {
    let mut body = request.json();
    let messages = match body["messages"].take() {
        Value::Array(messages) => messages,
        _ => Vec::new(),
    };
    let mut log = lock(log);
    let number = log.len() + 1;
    let Some(Step { calls, text }) = next_step(&messages) else {
        return Response::bytes(400, "text/plain", "there is no plan, or it is at its end");
    };
    let ids: Vec<_> = (0..calls.len()).map(|at| format!("call-{number}-{at}")).collect();
    let mut blocks: Vec<_> = ids
        .iter()
        .zip(calls)
        .map(|(id, (name, arguments))| Block::Call {
            id: id.clone(),
            name,
            arguments: arguments.to_string(),
        })
        .collect();
    if !text.is_empty() {
        blocks.insert(0, Block::Text { text: vec![text.clone()] });
    }
    log.push(Asked { messages, calls: ids, text });
    Response::turn(blocks).usage(number as u64, 1, 0).delay(DELAY)
}

/// What the model does next.
#[derive(Debug, PartialEq)]
struct Step {
    calls: Vec<(String, Value)>,
    text: String,
}

/// Calls that were interrupted are repeated; else it is the plan's next step.
fn next_step(messages: &[Value]) -> Option<Step> {
    let (at, plan) = messages.iter().enumerate().rev().find_map(|(at, message)| {
        let text = text_of(message);
        let plan = text.rfind("PLAN ").filter(|_| message["role"] == "user")?;
        Some((at, text[plan + 5..].to_owned()))
    })?;
    let (name, steps) = plan.lines().next()?.split_once(':')?;
    let mut done = 0;
    let mut again = Vec::new();
    for message in &messages[at..] {
        if message["role"] == "assistant" {
            // An answer that repeats what was interrupted is no step of the plan.
            done += usize::from(again.is_empty());
            again.clear();
        } else if text_of(message).starts_with(INTERRUPTED) {
            again.extend(call_of(messages, &message["tool_call_id"]));
        }
    }
    if !again.is_empty() {
        return Some(Step { calls: again, text: String::new() });
    }
    Some(step(name, steps.split(',').nth(done)?.trim()))
}

fn step(name: &str, step: &str) -> Step {
    let shell = |command: String| ("shell".to_owned(), json!({"command": command}));
    let line = format!("echo {name} >> effects.log");
    let calls = match step {
        "shell" => vec![shell(format!("{line}; sleep 0.02; echo done"))],
        // Without its driver it would stay for minutes.
        "slow" => vec![shell(format!("sleep 300 & sleep 0.15; {line}; kill -0 $PPID && kill $!"))],
        "pair" => vec![shell(line.clone()), shell(format!("{line}; sleep 0.01"))],
        "write" => {
            let file = format!("out/{}.txt", name.replace('/', "-"));
            vec![("write_file".to_owned(), json!({"file_path": file, "content": name}))]
        }
        "look" => vec![
            ("list_dir".to_owned(), json!({"path": "."})),
            ("glob".to_owned(), json!({"pattern": "*.fabro"})),
        ],
        "spawn" => {
            let task = format!("PLAN {name}/sub: look, say");
            vec![("spawn_agent".to_owned(), json!({"task": task}))]
        }
        "wait" => vec![("wait".to_owned(), json!({}))],
        _ => Vec::new(),
    };
    let text = match step {
        "bad" => r#"{"count": "many"}"#.to_owned(),
        "good" => r#"{"count": 3}"#.to_owned(),
        "say" => format!("Done {name}."),
        _ => String::new(),
    };
    Step { calls, text }
}

/// The call with this id, as it can be made again.
fn call_of(messages: &[Value], id: &Value) -> Option<(String, Value)> {
    let mut calls =
        messages.iter().filter_map(|message| message["tool_calls"].as_array()).flatten();
    let function = &calls.find(|call| call["id"] == *id)?["function"];
    let arguments = serde_json::from_str(function["arguments"].as_str()?).ok()?;
    Some((function["name"].as_str()?.to_owned(), arguments))
}

/// The text of a message, which is a string or a list of parts.
pub(super) fn text_of(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str) -> Value {
        json!({"role": "assistant", "tool_calls": [{"id": id, "type": "function",
            "function": {"name": "shell", "arguments": "{\"command\":\"true\"}"}}]})
    }

    fn result(id: &str, text: &str) -> Value {
        json!({"role": "tool", "tool_call_id": id, "content": text})
    }

    #[test]
    fn the_plan_is_followed_and_interrupted_calls_are_repeated() {
        let prompt = json!({"role": "user", "content": "Work.\nPLAN n@1: shell, say"});
        let mut messages = vec![prompt, call("a"), result("a", "[interrupted: …]")];
        let again = next_step(&messages).unwrap();
        assert_eq!(again.calls, [("shell".to_owned(), json!({"command": "true"}))]);
        messages.extend([call("b"), result("b", "done")]);
        assert_eq!(next_step(&messages).unwrap().text, "Done n@1.");
        messages.push(json!({"role": "assistant", "content": "Done n@1."}));
        assert_eq!(next_step(&messages), None);
    }
}
