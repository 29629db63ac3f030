use fabro_types::Usage;
use serde_json::Value;

use crate::Progress;
use crate::cli::answer::{Answer, number, stated};
use crate::cli::program::{Output, Program};

pub(super) const PROGRAM: Program = Program {
    name: "codex",
    title: "Codex",
    package: "@openai/codex",
    provider: "openai",
    variables: ["OPENAI_", "CODEX_"],
    // Workflows also run where there is no repository, which codex refuses by default.
    args: &["exec", "--json", "--skip-git-repo-check"],
    read_only: &["--sandbox", "read-only"],
    read_write: &["--sandbox", "workspace-write"],
    full: &["--sandbox", "workspace-write", "-c", "sandbox_workspace_write.network_access=true"],
    dangerous: &["--dangerously-bypass-approvals-and-sandbox"],
    // The prompt is on stdin.
    last: &["-"],
    output: Output::Events(read),
};

/// Reads one event of `--json`.
fn read(event: &Value, answer: &mut Answer, on_event: &dyn Fn(Progress)) {
    match event["type"].as_str() {
        Some("thread.started") => {
            answer.session_id = event["thread_id"].as_str().map(str::to_owned);
        }
        Some("item.started") => return started(&event["item"], on_event),
        Some("item.completed") => return completed(&event["item"], answer, on_event),
        Some("turn.completed") => {
            answer.pending_error = None;
            used(&event["usage"], answer);
        }
        Some("turn.failed") => {
            let error = &event["error"];
            answer.fail(stated(error), error["message"].as_str().unwrap_or("the turn failed"));
        }
        // It may recover: codex reports its own reconnects in the same way.
        Some("error") => {
            let message = event["message"].as_str().unwrap_or("it failed");
            answer.pending_error = Some((stated(event), message.to_owned()));
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
