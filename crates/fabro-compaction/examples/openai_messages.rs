//! Shortens a conversation in the format of `OpenAI`'s chat completions, without a model, and prints
//! what is left: `cargo run -p fabro-compaction --example openai_messages -- [FILE] [KEEP]`.
//!
//! FILE is a JSON list of messages, or an object with one under `messages`; KEEP is how many of the
//! last messages stay, 6 unless said otherwise.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example talks to whoever runs it"
)]

use std::borrow::Cow;
use std::error::Error;

use fabro_compaction::{
    CallRef, Files, Meter, Outcome, Policy, Reason, Request, ResultRef, Role, Turn,
    compact_deterministic,
};
use serde_json::{Value, json};

/// A message as it is sent, whatever else is in it.
struct Message(Value);

impl Turn for Message {
    fn role(&self) -> Role {
        match self.0["role"].as_str() {
            Some("system" | "developer") => Role::System,
            Some("assistant") => Role::Assistant,
            Some("tool") => Role::Tool,
            _ => Role::User,
        }
    }

    fn text(&self) -> Cow<'_, str> {
        if self.role() == Role::Tool { Cow::Borrowed("") } else { content(&self.0) }
    }

    fn calls(&self) -> Vec<CallRef<'_>> {
        let calls = self.0["tool_calls"].as_array().into_iter().flatten();
        calls
            .map(|call| CallRef {
                id: call["id"].as_str().unwrap_or_default(),
                name: call["function"]["name"].as_str().unwrap_or_default(),
                arguments: call["function"]["arguments"].as_str().unwrap_or_default().into(),
            })
            .collect()
    }

    fn results(&self) -> Vec<ResultRef<'_>> {
        if self.role() != Role::Tool {
            return Vec::new();
        }
        let id = self.0["tool_call_id"].as_str().unwrap_or_default();
        vec![ResultRef { id, text: content(&self.0), is_error: false }]
    }
}

/// The content: a text, or a list of parts of which some are texts.
fn content(message: &Value) -> Cow<'_, str> {
    match &message["content"] {
        Value::String(text) => Cow::Borrowed(text),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => Cow::Borrowed(""),
    }
}

/// The files that the calls of two well-known kinds of tools name.
fn files(messages: &[Message]) -> Files {
    let mut files = Files::default();
    for call in messages.iter().flat_map(Message::calls) {
        let arguments: Value = serde_json::from_str(&call.arguments.text()).unwrap_or_default();
        let Some(path) = arguments["path"].as_str() else { continue };
        match call.name {
            "read_file" => files.read.insert(path.to_owned()),
            "write_file" | "edit_file" => files.modified.insert(path.to_owned()),
            _ => continue,
        };
    }
    files
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let text = match arguments.next() {
        Some(path) => std::fs::read_to_string(path)?,
        None => include_str!("conversation.json").to_owned(),
    };
    let mut policy = Policy::fabro();
    if let Some(keep) = arguments.next() {
        policy.keep_recent = keep.parse()?;
    }
    let list = match serde_json::from_str(&text)? {
        Value::Array(list) => list,
        Value::Object(mut object) => match object.remove("messages") {
            Some(Value::Array(list)) => list,
            _ => return Err("the object has no list of `messages`".into()),
        },
        _ => return Err("expected a list of messages".into()),
    };
    let mut messages: Vec<_> = list.into_iter().map(Message).collect();

    let files = files(&messages);
    let request = Request::new(&policy, Reason::Manual, None, &files);
    let mut meter = Meter::default();
    match compact_deterministic(&messages, &mut meter, &request) {
        Outcome::Compacted(compaction) => {
            compaction.apply(&mut messages, &mut meter, |text| {
                Message(json!({ "role": "system", "content": text }))
            });
            let report = &compaction.report;
            eprintln!(
                "{} messages became {}: about {} tokens instead of {}",
                report.messages_before,
                report.messages_after,
                report.tokens_after,
                report.tokens_before
            );
        }
        Outcome::NothingOld => eprintln!("nothing is old: all messages stay"),
        Outcome::NotSmaller { tokens_before, tokens_after } => eprintln!(
            "all messages stay: with a summary they would take about {tokens_after} tokens, not \
             {tokens_before}"
        ),
    }
    let messages: Vec<_> = messages.into_iter().map(|message| message.0).collect();
    println!("{}", serde_json::to_string_pretty(&messages)?);
    Ok(())
}
