//! What agents do, in sentences.

use fabro_events::{CompletedCompaction, CompletedTool, Event, EventBody};
use serde_json::Value;

use crate::line::{Mark, QUOTED};
use crate::text::took;
use fabro_types::one_line;

/// The longest argument that is shown with a tool, in characters.
const ARGUMENT: usize = 60;

/// The sentence for an event of an agent; `name` is its stage.
pub(crate) fn agent_line(event: &Event, name: &str) -> Option<(Mark, String)> {
    let quoted = |text: &str| one_line(text, QUOTED);
    Some(match &event.entry.body {
        EventBody::AgentMessage { role, text, .. } => {
            (Mark::Note, format!("{name} {role}: {}", quoted(text)))
        }
        EventBody::AgentToolStarted { tool, arguments, .. } => {
            (Mark::Note, format!("{name} calls {}", call(tool, arguments)))
        }
        EventBody::AgentToolCompleted(end) => ended(end, name),
        EventBody::AgentCompactionStarted { estimated_tokens, context_window_size } => {
            let window = context_window_size.map(|it| format!(" of {}", tokens(it)));
            let window = window.unwrap_or_default();
            let used = tokens(*estimated_tokens);
            (Mark::Note, format!("{name} shortens its conversation: {used}{window} tokens"))
        }
        EventBody::AgentCompactionCompleted(done) => (Mark::Note, shortened(done, name)),
        EventBody::AgentSubSpawned { agent_id, task } => {
            (Mark::Note, format!("{name} began agent {}: {}", quoted(agent_id), quoted(task)))
        }
        EventBody::AgentSubCompleted { agent_id, text } => {
            (Mark::Good, format!("agent {} of {name}: {}", quoted(agent_id), quoted(text)))
        }
        EventBody::AgentSubFailed { agent_id, message } => {
            (Mark::Bad, format!("agent {} of {name} failed: {}", quoted(agent_id), quoted(message)))
        }
        EventBody::AgentSubClosed { agent_id } => {
            (Mark::Note, format!("agent {} of {name} is over", quoted(agent_id)))
        }
        EventBody::AgentSteered { text, source } => {
            (Mark::Note, format!("{name} was told: {} ({})", quoted(text), quoted(source)))
        }
        // These words are meant for the model, not for whoever watches.
        EventBody::AgentWarning { kind, message, .. } if kind == "output_schema" => {
            (Mark::Odd, format!("{name} has to answer again: {}", quoted(message)))
        }
        EventBody::AgentWarning { message, .. } => {
            (Mark::Odd, format!("{name} warns: {}", quoted(message)))
        }
        EventBody::AgentError { class, message } => {
            (Mark::Bad, format!("{name}: {} ({class})", quoted(message)))
        }
        _ => return None,
    })
}

/// A call in a few words: the tool, and what it is used on.
pub(crate) fn call(tool: &str, arguments: &str) -> String {
    let tool = one_line(tool, ARGUMENT);
    match subject(arguments) {
        Some(subject) => format!("{tool} {}", one_line(&subject, ARGUMENT)),
        None => tool,
    }
}

/// A number of tokens in a few characters: `850`, `3.2k`, `32k`, `1.4M`.
pub(crate) fn tokens(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        1_000..10_000 => format!("{}.{}k", count / 1_000, count % 1_000 / 100),
        10_000..1_000_000 => format!("{}k", count / 1_000),
        _ => format!("{}.{}M", count / 1_000_000, count % 1_000_000 / 100_000),
    }
}

fn ended(end: &CompletedTool, name: &str) -> (Mark, String) {
    let tool = one_line(&end.tool, ARGUMENT);
    let time = took(end.duration_ms);
    if !end.is_error {
        return (Mark::Note, format!("{tool} of {name} done in {time}"));
    }
    let why = end.output.as_str().map(|text| one_line(text, QUOTED)).unwrap_or_default();
    (Mark::Odd, format!("{tool} of {name} failed in {time}: {why}"))
}

fn shortened(done: &CompletedCompaction, name: &str) -> String {
    format!(
        "{name} shortened its conversation from {} to {} messages ({} tokens before, {})",
        done.messages_before,
        done.messages_after,
        tokens(done.tokens_before),
        one_line(&done.reason, QUOTED),
    )
}

/// What a call is about: the argument that says it best, else the first text. Arguments may be cut
/// off, so they need not be whole JSON.
fn subject(arguments: &str) -> Option<String> {
    const TELLING: [&str; 8] =
        ["path", "file_path", "command", "pattern", "url", "query", "name", "task"];
    match serde_json::from_str::<Value>(arguments) {
        Ok(Value::Object(map)) => {
            let told = TELLING.iter().find_map(|key| map.get(*key)?.as_str());
            told.or_else(|| map.values().find_map(Value::as_str)).map(str::to_owned)
        }
        Ok(_) => None,
        Err(_) => {
            let told = TELLING.iter().find_map(|key| {
                let at = arguments.find(&format!("\"{key}\""))?;
                cut_text(&arguments[at + key.len() + 2..])
            });
            told.or_else(|| cut_text(arguments.split_once("\":").map_or("", |(_, rest)| rest)))
        }
    }
}

/// The text at the beginning of what is left of an object, as far as it goes.
fn cut_text(rest: &str) -> Option<String> {
    let rest = rest.trim_start().trim_start_matches(':').trim_start().strip_prefix('"')?;
    let mut text = String::new();
    let mut chars = rest.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => break,
            '\\' => match chars.next() {
                Some('n' | 't' | 'r') => text.push(' '),
                Some(escaped) => text.push(escaped),
                None => break,
            },
            _ => text.push(c),
        }
    }
    Some(text).filter(|text| !text.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_tells_what_it_is_about() {
        let check = |arguments: &str, expect: &str| {
            assert_eq!(call("tool", arguments), expect, "{arguments}");
        };
        check(r#"{"new":"a","path":"src/main.rs"}"#, "tool src/main.rs");
        check(r#"{"n":1,"text":"hello\nthere"}"#, "tool hello there");
        check(r#"{"path": "src/main.rs", "old_string": "cut of"#, "tool src/main.rs");
        check(r#"{"patch": "*** Begin\n+ \"x\" of"#, r#"tool *** Begin + "x" of"#);
        check(r#"{"path": "src/ma"#, "tool src/ma");
        for nothing in ["", "{}", "[1]", "{\"n\":1", "{\"path\":", "{\"path\":\"\\"] {
            check(nothing, "tool");
        }
    }

    #[test]
    fn a_repair_is_no_warning_to_whoever_watches() {
        let said = |kind: &str| {
            let kind = kind.to_owned();
            let message = "\"score\" is missing".to_owned();
            let body = EventBody::AgentWarning { kind, message, window: None };
            let entry = fabro_events::Entry::new(body);
            let run_id = fabro_types::RunId::from_parts(0, 1);
            agent_line(&Event { run_id, seq: 1, ts_ms: 0, entry }, "grade").unwrap().1
        };
        assert_eq!(said("output_schema"), "grade has to answer again: \"score\" is missing");
        assert_eq!(said("mcp"), "grade warns: \"score\" is missing");
    }

    #[test]
    fn tokens_are_said_shortly() {
        let said = [0, 999, 1_000, 9_999, 32_768, 999_999, 1_449_000].map(tokens);
        assert_eq!(said, ["0", "999", "1.0k", "9.9k", "32k", "999k", "1.4M"]);
    }
}
