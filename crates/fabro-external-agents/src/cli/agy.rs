use serde_json::Value;

use crate::Progress;
use crate::cli::answer::{Answer, stated};
use crate::cli::program::{Output, Program, PromptBy, no_codes};

pub(super) const PROGRAM: Program = Program {
    name: "agy",
    title: "Antigravity CLI",
    install: "from https://antigravity.google, version 1.1.8 or newer",
    login: "start `agy` and log in",
    provider: "antigravity",
    variables: &["GEMINI_", "GOOGLE_", "ANTIGRAVITY_"],
    // Its own timeout is five minutes; stages have theirs.
    args: &["--output-format", "stream-json", "--print-timeout", "24h"],
    // It has its own settings for what it may do without asking, and cannot ask here.
    read_only: &[],
    read_write: &[],
    full: &[],
    dangerous: &["--dangerously-skip-permissions"],
    budget: None,
    // It reads servers from its settings files alone.
    context: None,
    resume: None,
    prompt: PromptBy::Argument("-p"),
    output: Output { key: "event", read, rest, exit: no_codes },
};

/// Reads one event of `stream-json`.
fn read(event: &Value, answer: &mut Answer, on_event: &dyn Fn(Progress)) {
    answer.set_session(&event["conversation_id"]);
    match event["event"].as_str() {
        Some("init") => {
            if let Some(model) = event["model"].as_str() {
                answer.model = Some(model.to_owned());
            }
        }
        Some("step_update") => answer.has_worked = true,
        Some("result") => result(event, answer),
        _ => {}
    }
    on_event(Progress::Activity);
}

/// Reads the one object that `json` is.
fn rest(stdout: &str, _: &str, answer: &mut Answer) {
    let start = stdout.find('{').map_or("", |at| &stdout[at..]);
    let mut values = serde_json::Deserializer::from_str(start).into_iter::<Value>();
    if let Some(Ok(document)) = values.next()
        && !answer.is_complete
    {
        answer.set_session(&document["conversation_id"]);
        result(&document, answer);
    }
}

fn result(event: &Value, answer: &mut Answer) {
    let error = &event["error"];
    if !error.is_null() && *error != false {
        let message = error["message"].as_str().or(error.as_str()).unwrap_or("it failed");
        answer.fail(stated(error), message);
    } else if let Some(text) = event["response"].as_str() {
        answer.is_complete = true;
        answer.has_worked = true;
        answer.text = Some(text.to_owned());
    }
}
