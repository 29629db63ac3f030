use fabro_types::{FailureClass, Usage};
use serde_json::Value;

use crate::Progress;
use crate::cli::answer::{Answer, first_number, number, stated};
use crate::cli::program::{Output, Program, PromptBy};
use crate::error::StatedKind;

/// How many positions are tried as the beginning of the JSON.
const TRIES: usize = 64;

pub(super) const PROGRAM: Program = Program {
    name: "gemini",
    title: "Gemini CLI",
    install: "with `npm install -g @google/gemini-cli`",
    login: "set GEMINI_API_KEY, or use an enterprise login: others are not accepted any more, but by `agy`",
    provider: "gemini",
    variables: &["GEMINI_", "GOOGLE_"],
    args: &["--output-format", "stream-json"],
    read_only: &["--approval-mode", "default"],
    read_write: &["--approval-mode", "auto_edit"],
    full: &[
        "--approval-mode",
        "auto_edit",
        "--allowed-tools",
        "run_shell_command,web_fetch,google_web_search",
    ],
    dangerous: &["--approval-mode", "yolo"],
    budget: None,
    // It reads servers from its settings files alone.
    context: None,
    resume: Some("--resume"),
    prompt: PromptBy::Stdin(&[]),
    output: Output { key: "type", read, rest, exit },
};

/// Reads one event of `stream-json`.
fn read(event: &Value, answer: &mut Answer, on_event: &dyn Fn(Progress)) {
    match event["type"].as_str() {
        Some("init") => {
            answer.set_session(&event["session_id"]);
            if let Some(model) = event["model"].as_str() {
                answer.model = Some(model.to_owned());
            }
        }
        Some("message") if event["role"] == "assistant" => {
            answer.has_worked = true;
            let text = event["content"].as_str().unwrap_or_default();
            if answer.current_message.take().is_some() {
                answer.text = None;
            }
            if event["delta"] == true {
                answer.text.get_or_insert_default().push_str(text);
            } else {
                answer.text = Some(text.to_owned());
            }
            return on_event(Progress::Text(text.to_owned()));
        }
        Some("tool_use") => {
            answer.has_worked = true;
            let name = event["tool_name"].as_str().unwrap_or("tool");
            // The text that follows is of another message.
            answer.current_message = Some(name.to_owned());
            return on_event(Progress::Tool { name: name.to_owned() });
        }
        Some("error") if event["severity"] != "warning" => {
            let message = event["message"].as_str().unwrap_or("it failed");
            let code = event.get("code").and_then(crate::error::kind_of);
            answer.pending_error = Some((code, message.to_owned()));
        }
        Some("result") => result(event, answer),
        _ => {}
    }
    on_event(Progress::Activity);
}

fn result(event: &Value, answer: &mut Answer) {
    stream_usage(&event["stats"], answer);
    if event["status"] == "error" || event["error"].is_object() {
        failed(&event["error"], answer);
    } else {
        answer.is_complete = true;
        answer.pending_error = None;
    }
}

fn failed(error: &Value, answer: &mut Answer) {
    let code = error["code"].as_i64().and_then(|code| exit(i32::try_from(code).ok()?));
    let kind = stated(error).or(code);
    let message = error["message"].as_str().unwrap_or("it failed");
    answer.fail(kind, message);
}

/// What the exit codes mean: a login, the input, the settings, the limit of turns, an interrupt.
fn exit(code: i32) -> Option<StatedKind> {
    match code {
        41 | 52 => Some(StatedKind::unavailable(FailureClass::Deterministic)),
        42 => Some(FailureClass::Deterministic.into()),
        53 => Some(FailureClass::BudgetExhausted.into()),
        130 => Some(FailureClass::TransientInfra.into()),
        _ => None,
    }
}

/// Reads the one object that `json` is; an error may be on stderr.
fn rest(stdout: &str, stderr: &str, answer: &mut Answer) {
    if answer.is_complete || answer.error.is_some() {
        return;
    }
    let Some(document) = object(stdout).or_else(|| object(stderr)) else { return };
    answer.set_session(&document["session_id"]);
    let models = document["stats"]["models"].as_object();
    let used: Vec<_> = models.into_iter().flatten().map(|(name, it)| of_model(name, it)).collect();
    if !used.is_empty() {
        answer.has_worked |= used.iter().any(|used| used.output_tokens > 0);
        answer.usage = used;
    }
    if document["error"].is_object() {
        failed(&document["error"], answer);
    } else if let Some(text) = document["response"].as_str() {
        answer.text = Some(text.to_owned());
    }
}

/// The first object that begins a line and has a known key.
fn object(text: &str) -> Option<Value> {
    let starts = text.match_indices('{').filter(|&(at, _)| at == 0 || text[..at].ends_with('\n'));
    starts.take(TRIES).find_map(|(at, _)| {
        let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>();
        let value = values.next()?.ok()?;
        let known = ["response", "error", "stats"].iter().any(|key| value.get(key).is_some());
        known.then_some(value)
    })
}

/// The usage of a model, as `json` has it.
fn of_model(model: &str, stats: &Value) -> Usage {
    let tokens = &stats["tokens"];
    Usage {
        model: Some(model.to_owned()),
        input_tokens: number(tokens, "prompt"),
        output_tokens: number(tokens, "candidates").saturating_add(number(tokens, "thoughts")),
        cached_tokens: number(tokens, "cached"),
        reasoning_tokens: number(tokens, "thoughts"),
        turns: u32::try_from(number(&stats["api"], "totalRequests")).unwrap_or(u32::MAX),
        ..Usage::default()
    }
}

/// The usage as `stream-json` has it: by model, or of all together.
fn stream_usage(stats: &Value, answer: &mut Answer) {
    let models = stats["models"].as_object().filter(|models| !models.is_empty());
    let used: Vec<_> = match models {
        Some(models) => {
            models.iter().map(|(name, stats)| of_stream(Some(name.clone()), stats)).collect()
        }
        None if stats.is_object() => vec![of_stream(answer.model.clone(), stats)],
        None => return,
    };
    answer.has_worked |= used.iter().any(|used| used.output_tokens > 0);
    answer.usage = used;
}

/// Its `output_tokens` are without thoughts, which are in the total only.
fn of_stream(model: Option<String>, stats: &Value) -> Usage {
    if stats["tokens"].is_object() {
        return of_model(model.as_deref().unwrap_or_default(), stats);
    }
    let input_tokens = first_number(stats, &["input_tokens", "prompt_tokens"]);
    let output = number(stats, "output_tokens");
    let rest = number(stats, "total_tokens").saturating_sub(input_tokens);
    Usage {
        model,
        input_tokens,
        output_tokens: output.max(rest),
        cached_tokens: number(stats, "cached"),
        reasoning_tokens: rest.saturating_sub(output),
        turns: 1,
        ..Usage::default()
    }
}
