use fabro_types::Usage;
use serde_json::Value;

use crate::cli::answer::{Answer, number};
use crate::cli::program::{Output, Program};
use crate::{Progress, error};

/// The tools that change files.
const EDITS: &str = "Edit,MultiEdit,Write,NotebookEdit";

/// The tools that need full permissions.
const REACH: &str = "Bash,WebFetch,WebSearch";

pub(super) const PROGRAM: Program = Program {
    name: "claude",
    title: "Claude Code",
    package: "@anthropic-ai/claude-code",
    provider: "anthropic",
    variables: ["ANTHROPIC_", "CLAUDE_"],
    args: &["-p", "--output-format", "stream-json", "--verbose"],
    read_only: &["--permission-mode", "default", "--disallowedTools", EDITS, REACH],
    read_write: &["--permission-mode", "acceptEdits", "--disallowedTools", REACH],
    full: &["--permission-mode", "acceptEdits", "--allowedTools", REACH],
    dangerous: &["--dangerously-skip-permissions"],
    last: &[],
    output: Output::Events(read),
};

/// Reads one event of `stream-json`.
fn read(event: &Value, answer: &mut Answer, on_event: &dyn Fn(Progress)) {
    if let Some(id) = event["session_id"].as_str() {
        answer.session_id = Some(id.to_owned());
    }
    match event["type"].as_str() {
        Some("system") => model(&event["model"], answer),
        Some("assistant") => {
            let message = &event["message"];
            model(&message["model"], answer);
            let parts = message["content"].as_array();
            parts.into_iter().flatten().for_each(|part| progress(part, on_event));
            answer.pending_error = event["error"].as_str().map(|kind| {
                let text = message["content"][0]["text"].as_str().unwrap_or(kind);
                (error::kind_of(&event["error"]), text.to_owned())
            });
            return;
        }
        Some("result") => result(event, answer),
        _ => {}
    }
    on_event(Progress::Activity);
}

fn model(name: &Value, answer: &mut Answer) {
    if let Some(name) = name.as_str() {
        answer.model = Some(name.to_owned());
    }
}

fn progress(part: &Value, on_event: &dyn Fn(Progress)) {
    match (part["type"].as_str(), part["text"].as_str(), part["name"].as_str()) {
        (Some("text"), Some(text), _) => on_event(Progress::Text(text.to_owned())),
        (Some("tool_use"), _, Some(name)) => on_event(Progress::Tool { name: name.to_owned() }),
        _ => on_event(Progress::Activity),
    }
}

fn result(event: &Value, answer: &mut Answer) {
    let tokens = &event["usage"];
    let cached = number(tokens, "cache_read_input_tokens");
    let written = number(tokens, "cache_creation_input_tokens");
    answer.usage = tokens.is_object().then(|| Usage {
        model: answer.model.clone(),
        input_tokens: number(tokens, "input_tokens").saturating_add(cached).saturating_add(written),
        output_tokens: number(tokens, "output_tokens"),
        cached_tokens: cached,
        cache_write_tokens: written,
        cost_usd: event["total_cost_usd"].as_f64().unwrap_or_default(),
        turns: u32::try_from(number(event, "num_turns")).unwrap_or(u32::MAX),
        ..Usage::default()
    });
    let text = event["result"].as_str();
    let subtype = event["subtype"].as_str().unwrap_or("success");
    if event["is_error"] == true || subtype != "success" {
        let class = error::kind_of(&event["api_error_status"]);
        let class = class.or_else(|| error::kind_of(&event["subtype"]));
        let message = event["errors"][0].as_str().or(text).filter(|text| !text.trim().is_empty());
        answer.fail(class, message.unwrap_or(subtype));
    } else {
        answer.text = text.map(str::to_owned);
    }
}
