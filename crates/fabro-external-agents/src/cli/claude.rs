use fabro_types::{FailureClass, Usage};
use serde_json::{Value, json};

use crate::cli::answer::{Answer, number};
use crate::cli::program::{Output, Program, PromptBy, ignore_rest, no_codes};
use crate::error::StatedKind;
use crate::{ContextServer, Progress, error};

/// The tools that change files.
const EDITS: &str = "Edit,MultiEdit,Write,NotebookEdit";

/// The tools that need full permissions.
const REACH: &str = "Bash,WebFetch,WebSearch";

/// The option in front of the tools that need no permission of a person.
const ALLOWED: &str = "--allowedTools";

/// The model of messages that the program writes itself, about errors.
const NO_MODEL: &str = "<synthetic>";

/// What it says where the conversation has no room for another answer; the error has no type of its own.
const TOO_LONG: &str = "Prompt is too long";

pub(super) const PROGRAM: Program = Program {
    name: "claude",
    title: "Claude Code",
    install: "with `npm install -g @anthropic-ai/claude-code`",
    login: "start `claude` and enter /login, or set ANTHROPIC_API_KEY",
    provider: "anthropic",
    variables: &["ANTHROPIC_", "CLAUDE_"],
    args: &["-p", "--output-format", "stream-json", "--verbose"],
    read_only: &["--permission-mode", "default", "--disallowedTools", EDITS, REACH],
    read_write: &["--permission-mode", "acceptEdits", "--disallowedTools", REACH],
    full: &["--permission-mode", "acceptEdits", ALLOWED, REACH],
    dangerous: &["--dangerously-skip-permissions"],
    budget: Some("--max-budget-usd"),
    context: Some(context),
    resume: Some("--resume"),
    prompt: PromptBy::Stdin(&[]),
    output: Output { key: "type", read, rest: ignore_rest, exit: no_codes },
};

/// The tool is allowed too: without a terminal, no person can be asked.
fn context(server: &ContextServer, permissions: &[&str]) -> Vec<String> {
    let ContextServer { program, args } = server;
    let name = ContextServer::NAME;
    let config = json!({"mcpServers": {name: {"command": program, "args": args}}});
    let tool = format!("mcp__{name}__get_workflow_context");
    let allowed = if permissions.contains(&ALLOWED) {
        // They end with the list of allowed tools.
        vec![tool]
    } else {
        vec![ALLOWED.to_owned(), tool]
    };
    [allowed, vec!["--mcp-config".to_owned(), config.to_string()]].concat()
}

/// Reads one event of `stream-json`.
fn read(event: &Value, answer: &mut Answer, on_event: &dyn Fn(Progress)) {
    answer.set_session(&event["session_id"]);
    match event["type"].as_str() {
        Some("system") => model(&event["model"], answer),
        Some("assistant") => return assistant(event, answer, on_event),
        Some("result") => result(event, answer),
        _ => {}
    }
    on_event(Progress::Activity);
}

fn assistant(event: &Value, answer: &mut Answer, on_event: &dyn Fn(Progress)) {
    let message = &event["message"];
    model(&message["model"], answer);
    answer.pending_error = event["error"].as_str().map(|kind| {
        let text = message["content"][0]["text"].as_str().unwrap_or(kind);
        (error::kind_of(&event["error"]), text.to_owned())
    });
    if answer.pending_error.is_some() || message["model"] == NO_MODEL {
        return on_event(Progress::Activity);
    }
    message["content"].as_array().into_iter().flatten().for_each(|part| progress(part, on_event));
    answer.has_worked = true;
    message_usage(message, answer);
}

/// The usage of an answer, until the result has that of all. Several events may be of one answer.
fn message_usage(message: &Value, answer: &mut Answer) {
    if !message["usage"].is_object() {
        return;
    }
    let id = message["id"].as_str().map(str::to_owned);
    if id.is_none() || id != answer.current_message {
        answer.total = answer.usage.pop().unwrap_or_default();
        answer.current_message = id;
    }
    let mut total = answer.total.clone();
    total.add(&Usage { turns: 1, ..usage(&message["usage"], answer) });
    answer.usage = vec![total];
}

fn model(name: &Value, answer: &mut Answer) {
    if let Some(name) = name.as_str().filter(|name| *name != NO_MODEL) {
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

fn usage(tokens: &Value, answer: &Answer) -> Usage {
    let cached = number(tokens, "cache_read_input_tokens");
    let written = number(tokens, "cache_creation_input_tokens");
    Usage {
        model: answer.model.clone(),
        input_tokens: number(tokens, "input_tokens").saturating_add(cached).saturating_add(written),
        output_tokens: number(tokens, "output_tokens"),
        cached_tokens: cached,
        cache_write_tokens: written,
        long_cache_write_tokens: number(&tokens["cache_creation"], "ephemeral_1h_input_tokens"),
        ..Usage::default()
    }
}

/// What other models used in the session, such as a small one for titles, and how much of the total that is.
/// Empty where the session's own model is not among them: the total is not divided then.
fn of_others(models: &Value, answer: &Answer) -> Vec<Usage> {
    let Some(models) = models.as_object() else { return Vec::new() };
    let own = answer.model.as_deref().filter(|own| models.contains_key(*own));
    let Some(own) = own else { return Vec::new() };
    let others = models.iter().filter(|(name, _)| name.as_str() != own).map(|(name, used)| {
        let cached = number(used, "cacheReadInputTokens");
        let written = number(used, "cacheCreationInputTokens");
        let uncached = number(used, "inputTokens");
        Usage {
            model: Some(name.clone()),
            input_tokens: uncached.saturating_add(cached).saturating_add(written),
            output_tokens: number(used, "outputTokens"),
            cached_tokens: cached,
            cache_write_tokens: written,
            cost_usd: used["costUSD"].as_f64().unwrap_or_default(),
            ..Usage::default()
        }
    });
    others.collect()
}

fn result(event: &Value, answer: &mut Answer) {
    if event["usage"].is_object() || event["total_cost_usd"].is_number() {
        let used = Usage {
            cost_usd: event["total_cost_usd"].as_f64().unwrap_or_default(),
            turns: u32::try_from(number(event, "num_turns")).unwrap_or(u32::MAX),
            ..usage(&event["usage"], answer)
        };
        let others = of_others(&event["modelUsage"], answer);
        let by_others: f64 = others.iter().map(|other| other.cost_usd).sum();
        let own = used.cost_usd - by_others;
        if by_others > 0.0 && own > 0.0 {
            answer.set_usage(Usage { cost_usd: own, ..used });
            answer.usage.splice(0..0, others);
        } else {
            answer.set_usage(used);
        }
    }
    let text = event["result"].as_str();
    let subtype = event["subtype"].as_str().unwrap_or("success");
    if event["stop_reason"] == "refusal" {
        answer.fail(Some(FailureClass::Deterministic.into()), error::REFUSED);
    } else if event["is_error"] == true || subtype != "success" {
        // An error in a turn that is no error is one of the model's service.
        let unstated = || {
            let is_api = subtype == "success" && event["api_error_status"].is_null();
            is_api.then(|| StatedKind::assumed_unavailable(FailureClass::Deterministic))
        };
        let pending = || answer.pending_error.as_ref().and_then(|(kind, _)| *kind);
        let is_too_long = text.is_some_and(|text| text.starts_with(TOO_LONG));
        let too_long = is_too_long.then(|| FailureClass::BudgetExhausted.into());
        let kind = too_long
            .or_else(|| error::kind_of(&event["api_error_status"]))
            .or_else(|| error::kind_of(&event["subtype"]))
            .or_else(pending)
            .or_else(unstated);
        answer.hit_budget = subtype == "error_max_budget_usd";
        let message = event["errors"][0].as_str().or(text).filter(|text| !text.trim().is_empty());
        answer.fail(kind, message.unwrap_or(subtype));
    } else {
        answer.is_complete = true;
        answer.pending_error = None;
        answer.text = text.map(str::to_owned).or_else(|| structured(event));
    }
}

/// The answer to a request with a schema, where there is no text.
fn structured(event: &Value) -> Option<String> {
    let value = &event["structured_output"];
    (!value.is_null()).then(|| value.to_string())
}
