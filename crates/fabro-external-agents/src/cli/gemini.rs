use fabro_types::Usage;
use serde_json::Value;

use crate::cli::answer::{Answer, number, stated};
use crate::cli::program::{Output, Program};

/// How many positions are tried as the beginning of the JSON.
const TRIES: usize = 64;

pub(super) const PROGRAM: Program = Program {
    name: "gemini",
    title: "Gemini CLI",
    package: "@google/gemini-cli",
    provider: "gemini",
    variables: ["GEMINI_", "GOOGLE_"],
    args: &["--output-format", "json"],
    read_only: &["--approval-mode", "default"],
    read_write: &["--approval-mode", "auto_edit"],
    full: &[
        "--approval-mode",
        "auto_edit",
        "--allowed-tools",
        "run_shell_command,web_fetch,google_web_search",
    ],
    dangerous: &["--approval-mode", "yolo"],
    last: &[],
    output: Output::Document(read),
};

/// Reads the one object that `json` is; an error may be on stderr.
fn read(stdout: &str, stderr: &str, answer: &mut Answer) {
    let Some(document) = object(stdout).or_else(|| object(stderr)) else { return };
    answer.session_id = document["session_id"].as_str().map(str::to_owned);
    answer.usage = used(&document["stats"]["models"]);
    let error = &document["error"];
    if error.is_object() {
        let message = error["message"].as_str().unwrap_or("it failed");
        answer.fail(stated(error), message);
    } else {
        answer.text = document["response"].as_str().map(str::to_owned);
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

/// The usage of all models together, under the name of the one with the largest input.
fn used(models: &Value) -> Option<Usage> {
    let mut used: Option<Usage> = None;
    let mut most = (0, None);
    for (model, stats) in models.as_object()? {
        let tokens = &stats["tokens"];
        let input_tokens = number(tokens, "prompt");
        if input_tokens >= most.0 {
            most = (input_tokens, Some(model.clone()));
        }
        used.get_or_insert_default().add(&Usage {
            input_tokens,
            output_tokens: number(tokens, "candidates").saturating_add(number(tokens, "thoughts")),
            cached_tokens: number(tokens, "cached"),
            reasoning_tokens: number(tokens, "thoughts"),
            turns: u32::try_from(number(&stats["api"], "totalRequests")).unwrap_or(u32::MAX),
            ..Usage::default()
        });
    }
    used.map(|used| Usage { model: most.1, ..used })
}
