use fabro_types::{FailureClass, Usage};
use serde_json::{Value, json};

use crate::cli::answer::{Answer, number, stated};
use crate::cli::program::{Output, Program, PromptBy, ignore_rest, no_codes};
use crate::error::{StatedKind, kind_of};
use crate::{ContextServer, Progress};

/// What codex says when the plan of the user is used up; its errors have no types.
const QUOTA: &str = "You've hit your usage limit";

/// What it says where the conversation has no room for another answer.
const TOO_LONG: &str = "ran out of room in the model's context window";

/// What it says before the status of an HTTP response.
const STATUS: &str = "unexpected status ";

pub(super) const PROGRAM: Program = Program {
    name: "codex",
    title: "Codex",
    install: "with `npm install -g @openai/codex`",
    login: "run `codex login`, or set OPENAI_API_KEY",
    provider: "openai",
    variables: &["OPENAI_", "CODEX_"],
    // Workflows also run where there is no repository, which codex refuses by default.
    args: &["exec", "--json", "--skip-git-repo-check"],
    read_only: &["--sandbox", "read-only"],
    read_write: &["--sandbox", "workspace-write"],
    full: &["--sandbox", "workspace-write", "-c", "sandbox_workspace_write.network_access=true"],
    dangerous: &["--dangerously-bypass-approvals-and-sandbox"],
    budget: None,
    context: Some(context),
    // A subcommand: the options before it hold for it too.
    resume: Some("resume"),
    prompt: PromptBy::Stdin(&["-"]),
    output: Output { key: "type", read, rest: ignore_rest, exit: no_codes },
};

/// Settings over those of its file. Their values are TOML, whose strings and arrays of them JSON's are.
fn context(server: &ContextServer, _: &[&str]) -> Vec<String> {
    let ContextServer { program, args } = server;
    let name = ContextServer::NAME;
    let command = format!("mcp_servers.{name}.command={}", json!(program));
    let args = format!("mcp_servers.{name}.args={}", json!(args));
    ["-c".to_owned(), command, "-c".to_owned(), args].into()
}

/// Reads one event of `--json`.
fn read(event: &Value, answer: &mut Answer, on_event: &dyn Fn(Progress)) {
    match event["type"].as_str() {
        Some("thread.started") => {
            answer.set_session(&event["thread_id"]);
        }
        Some("item.started") => return started(&event["item"], answer, on_event),
        Some("item.completed") => return completed(&event["item"], answer, on_event),
        Some("turn.completed") => {
            answer.pending_error = None;
            answer.is_complete = true;
            used(&event["usage"], answer);
        }
        Some("turn.failed") => {
            let error = &event["error"];
            answer.is_complete = false;
            used(&event["usage"], answer);
            let message = error["message"].as_str().or_else(|| error.as_str());
            let message = message.unwrap_or("the turn failed");
            answer.fail(Some(kind_of_error(error, message)), message);
        }
        // It may recover: codex reports its own reconnects in the same way.
        Some("error") => {
            let message = event["message"].as_str().unwrap_or("it failed");
            // Every event has a type.
            let stated = ["code", "kind", "status"].iter().find_map(|key| kind_of(event.get(key)?));
            let kind = stated.unwrap_or_else(|| kind_of_error(&Value::Null, message));
            answer.pending_error = Some((Some(kind), message.to_owned()));
        }
        _ => {}
    }
    on_event(Progress::Activity);
}

/// A turn that failed without a reason that is known: when nothing was done in it, the model could most
/// likely not be asked.
fn kind_of_error(error: &Value, message: &str) -> StatedKind {
    let status = message.split_once(STATUS).map(|(_, rest)| {
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        Value::from(digits)
    });
    if let Some(kind) = stated(error).or_else(|| kind_of(&status?)) {
        return kind;
    }
    if message.contains(TOO_LONG) {
        return FailureClass::BudgetExhausted.into();
    }
    if message.contains(QUOTA) {
        return StatedKind::unavailable(FailureClass::BudgetExhausted);
    }
    StatedKind::assumed_unavailable(FailureClass::Deterministic)
}

fn started(item: &Value, answer: &mut Answer, on_event: &dyn Fn(Progress)) {
    match kind(item) {
        "agent_message" | "assistant_message" | "reasoning" | "todo_list" | "error" | "" => {
            on_event(Progress::Activity);
        }
        kind => {
            answer.has_worked = true;
            let name = item["tool"].as_str().unwrap_or(kind);
            on_event(Progress::Tool { name: name.to_owned() });
        }
    }
}

fn completed(item: &Value, answer: &mut Answer, on_event: &dyn Fn(Progress)) {
    let kind = kind(item);
    // Warnings are items of their own.
    answer.has_worked |= kind != "error";
    match (kind, item["text"].as_str()) {
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

/// Counts what is new: codex may report the usage of the whole conversation.
fn used(tokens: &Value, answer: &mut Answer) {
    if !tokens.is_object() {
        return;
    }
    let reported = Usage {
        model: answer.model.clone(),
        input_tokens: number(tokens, "input_tokens"),
        output_tokens: number(tokens, "output_tokens"),
        cached_tokens: number(tokens, "cached_input_tokens"),
        reasoning_tokens: number(tokens, "reasoning_output_tokens"),
        turns: 1,
        ..Usage::default()
    };
    let before = std::mem::replace(&mut answer.total, reported.clone());
    let mut total = answer.usage.pop().unwrap_or_default();
    total.add(&increase(reported, &before));
    answer.set_usage(total);
}

/// What was used since `before`. A number that is smaller than before is of the turn alone, and so are those of
/// before: each turn has input and output.
fn increase(reported: Usage, before: &Usage) -> Usage {
    let is_cumulative = reported.input_tokens > before.input_tokens
        && reported.output_tokens > before.output_tokens
        && reported.cached_tokens >= before.cached_tokens;
    if !is_cumulative {
        return reported;
    }
    Usage {
        input_tokens: reported.input_tokens - before.input_tokens,
        output_tokens: reported.output_tokens - before.output_tokens,
        cached_tokens: reported.cached_tokens - before.cached_tokens,
        reasoning_tokens: reported.reasoning_tokens.saturating_sub(before.reasoning_tokens),
        ..reported
    }
}
