use fabro_types::{Permissions, Usage};
use serde_json::Value;

use crate::cli::answer::{Answer, number};
use crate::{Progress, error};

/// What changes files.
const EDITS: &str = "Edit,MultiEdit,Write,NotebookEdit";

/// What needs full permissions.
const REACH: &str = "Bash,WebFetch,WebSearch";

pub(super) fn args(permissions: Permissions, dangerous: bool) -> Vec<&'static str> {
    let mut args = vec!["-p", "--output-format", "stream-json", "--verbose"];
    args.extend(match permissions {
        _ if dangerous => &["--dangerously-skip-permissions"][..],
        Permissions::ReadOnly => {
            &["--permission-mode", "default", "--disallowedTools", EDITS, REACH]
        }
        Permissions::ReadWrite => &["--permission-mode", "acceptEdits", "--disallowedTools", REACH],
        Permissions::Full => &["--permission-mode", "acceptEdits", "--allowedTools", REACH],
    });
    args
}

/// Reads one event of `stream-json`.
pub(super) fn read(event: &Value, answer: &mut Answer, on_event: &dyn Fn(Progress)) {
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
            answer.trouble = event["error"].as_str().map(|kind| {
                let text = message["content"][0]["text"].as_str().unwrap_or(kind);
                (error::class_of(&event["error"]), text.to_owned())
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
        cost_usd: event["total_cost_usd"].as_f64().unwrap_or_default(),
        turns: u32::try_from(number(event, "num_turns")).unwrap_or(u32::MAX),
    });
    let text = event["result"].as_str();
    let subtype = event["subtype"].as_str().unwrap_or("success");
    if event["is_error"] == true || subtype != "success" {
        let class = error::class_of(&event["api_error_status"]);
        let class = class.or_else(|| error::class_of(&event["subtype"]));
        let told = event["errors"][0].as_str().or(text).filter(|text| !text.trim().is_empty());
        answer.fail(class, told.unwrap_or(subtype));
    } else {
        answer.text = text.map(str::to_owned);
    }
}
