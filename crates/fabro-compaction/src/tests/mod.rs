use std::borrow::Cow;

use serde_json::{Value, json};

use super::*;

mod compact;
mod cuts;
mod plan;
mod policy;
mod render;
mod summary;

/// A message as small as one can be.
#[derive(Clone, Debug, PartialEq)]
struct Msg {
    role: Role,
    text: String,
    calls: Vec<(String, String, Value)>,
    results: Vec<(String, String, bool)>,
}

impl Turn for Msg {
    fn role(&self) -> Role {
        self.role
    }

    fn text(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.text)
    }

    fn summary(text: String) -> Self {
        system(text)
    }

    fn calls(&self) -> Vec<CallRef<'_>> {
        let calls = self.calls.iter();
        calls.map(|(id, name, json)| CallRef { id, name, arguments: json.into() }).collect()
    }

    fn results(&self) -> Vec<ResultRef<'_>> {
        let results = self.results.iter();
        results
            .map(|(id, text, is_error)| ResultRef { id, text: text.into(), is_error: *is_error })
            .collect()
    }

    fn with_result(&self, id: &str, text: String) -> Option<Self> {
        let mut shorter = self.clone();
        shorter.results.iter_mut().find(|result| result.0 == id)?.1 = text;
        Some(shorter)
    }
}

fn message(role: Role, text: &str) -> Msg {
    Msg { role, text: text.to_owned(), calls: Vec::new(), results: Vec::new() }
}

fn system(text: impl Into<String>) -> Msg {
    message(Role::System, &text.into())
}

fn user(text: &str) -> Msg {
    message(Role::User, text)
}

fn assistant(text: &str) -> Msg {
    message(Role::Assistant, text)
}

impl Msg {
    fn call(mut self, id: &str, name: &str, arguments: Value) -> Self {
        self.calls.push((id.to_owned(), name.to_owned(), arguments));
        self
    }
}

fn result(id: &str, text: &str) -> Msg {
    let results = vec![(id.to_owned(), text.to_owned(), false)];
    Msg { results, ..message(Role::Tool, "") }
}

fn failure(id: &str, text: &str) -> Msg {
    let results = vec![(id.to_owned(), text.to_owned(), true)];
    Msg { results, ..message(Role::Tool, "") }
}

/// A conversation in short: `u`ser, `a`ssistant, `s`ystem, `S`ummary, `t`ool; the letters after it
/// are the ids of its calls or results.
fn conversation(short: &str) -> Vec<Msg> {
    short.split_whitespace().map(short_message).collect()
}

fn short_message(short: &str) -> Msg {
    let (kind, ids) = short.split_at(1);
    let ids = ids.chars().map(String::from);
    match kind {
        "s" => system("Be brief."),
        "S" => system(format!("{SUMMARY_TAG}\n## Goal\nx")),
        "u" => user("go on"),
        "a" => ids.fold(assistant("yes"), |msg, id| msg.call(&id, "read_file", json!({}))),
        "t" => Msg {
            results: ids.map(|id| (id, "text".to_owned(), false)).collect(),
            ..message(Role::Tool, "")
        },
        other => panic!("no kind of message: {other}"),
    }
}

/// A conversation of an agent that reads and edits files, with `rounds` calls.
fn session(rounds: usize) -> Vec<Msg> {
    let mut turns = vec![user("Add a /health endpoint to the API server")];
    for round in 0..rounds {
        let id = format!("call_{round}");
        let path = format!("src/file_{round}.rs");
        let asks = assistant(&format!("I look at {path} first."));
        turns.push(asks.call(&id, "read_file", json!({ "path": path })));
        turns.push(result(&id, &"fn main() {}\n".repeat(60)));
    }
    turns
}

fn chars(text: &str) -> usize {
    text.chars().count()
}
