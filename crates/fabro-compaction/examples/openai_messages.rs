//! Compacts a conversation in the format of `OpenAI`'s chat completions, without a model, and prints
//! the remaining messages: `cargo run -p fabro-compaction --example openai_messages -- [FILE] [KEEP]`.
//!
//! FILE is a JSON list of messages, or an object with one under `messages`; KEEP is how many of the
//! last messages stay, 6 by default.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints its result")]

use std::error::Error;

use fabro_compaction::{CompactionResult, Compactor, Moment, Policy, Turn};
use serde_json::Value;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let text = match arguments.next() {
        Some(path) => std::fs::read_to_string(path)?,
        None => include_str!("conversation.json").to_owned(),
    };
    let mut policy = Policy::fabro();
    if let Some(keep) = arguments.next() {
        policy.keep_recent = keep.parse()?;
    }
    let mut messages = match serde_json::from_str(&text)? {
        Value::Array(list) => list,
        Value::Object(mut object) => match object.remove("messages") {
            Some(Value::Array(list)) => list,
            _ => return Err("the object has no list of `messages`".into()),
        },
        _ => return Err("expected a list of messages".into()),
    };

    let mut compactor = Compactor::new(policy, None);
    // The files that the calls of two well-known kinds of tools name.
    for call in messages.iter().flat_map(Turn::calls) {
        let arguments: Value = serde_json::from_str(&call.arguments.text()).unwrap_or_default();
        let Some(path) = arguments["path"].as_str() else { continue };
        match call.name {
            "read_file" => compactor.files.read.insert(path.to_owned()),
            "write_file" | "edit_file" => compactor.files.modified.insert(path.to_owned()),
            _ => continue,
        };
    }
    match compactor.compact(&mut messages, Moment::Manual, None).await? {
        CompactionResult::Compacted(report) => eprintln!(
            "{} messages became {}: about {} tokens instead of {}",
            report.messages_before,
            report.messages_after,
            report.tokens_after,
            report.tokens_before
        ),
        unchanged => eprintln!("all messages stay: {unchanged:?}"),
    }
    println!("{}", serde_json::to_string_pretty(&messages)?);
    Ok(())
}
