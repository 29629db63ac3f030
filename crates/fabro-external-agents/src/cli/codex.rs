use fabro_types::{Permissions, Usage};
use serde_json::Value;

use crate::Progress;
use crate::cli::answer::{Answer, number, stated};

pub(super) fn args(permissions: Permissions, dangerous: bool) -> Vec<&'static str> {
    // Workflows also run where there is no repository, which codex refuses by default.
    let mut args = vec!["exec", "--json", "--skip-git-repo-check"];
    args.extend(match permissions {
        _ if dangerous => &["--dangerously-bypass-approvals-and-sandbox"][..],
        Permissions::ReadOnly => &["--sandbox", "read-only"],
        Permissions::ReadWrite => &["--sandbox", "workspace-write"],
        Permissions::Full => {
            &["--sandbox", "workspace-write", "-c", "sandbox_workspace_write.network_access=true"]
        }
    });
    args
}

/// Reads one event of `--json`.
pub(super) fn read(event: &Value, answer: &mut Answer, on_event: &dyn Fn(Progress)) {
    match event["type"].as_str() {
        Some("thread.started") => {
            answer.session_id = event["thread_id"].as_str().map(str::to_owned);
        }
        Some("item.started") => return started(&event["item"], on_event),
        Some("item.completed") => return completed(&event["item"], answer, on_event),
        Some("turn.completed") => {
            answer.trouble = None;
            used(&event["usage"], answer);
        }
        Some("turn.failed") => {
            let error = &event["error"];
            answer.fail(stated(error), error["message"].as_str().unwrap_or("the turn failed"));
        }
        // It may be overcome: codex reconnects by itself, and says so in the same way.
        Some("error") => {
            let message = event["message"].as_str().unwrap_or("it failed");
            answer.trouble = Some((stated(event), message.to_owned()));
        }
        _ => {}
    }
    on_event(Progress::Activity);
}

fn started(item: &Value, on_event: &dyn Fn(Progress)) {
    match kind(item) {
        "agent_message" | "assistant_message" | "reasoning" | "todo_list" | "error" | "" => {
            on_event(Progress::Activity);
        }
        kind => {
            let name = item["tool"].as_str().unwrap_or(kind);
            on_event(Progress::Tool { name: name.to_owned() });
        }
    }
}

fn completed(item: &Value, answer: &mut Answer, on_event: &dyn Fn(Progress)) {
    match (kind(item), item["text"].as_str()) {
        ("agent_message" | "assistant_message", Some(text)) => {
            answer.text = Some(text.to_owned());
            on_event(Progress::Text(text.to_owned()));
        }
        _ => on_event(Progress::Activity),
    }
}

/// Older versions call it `item_type`.
fn kind(item: &Value) -> &str {
    item["type"].as_str().or(item["item_type"].as_str()).unwrap_or_default()
}

fn used(tokens: &Value, answer: &mut Answer) {
    answer.usage.get_or_insert_default().add(&Usage {
        input_tokens: number(tokens, "input_tokens"),
        output_tokens: number(tokens, "output_tokens"),
        cached_tokens: number(tokens, "cached_input_tokens"),
        turns: 1,
        ..Usage::default()
    });
}
