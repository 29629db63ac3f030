//! The events of agents as sentences.

use fabro_events::{CompletedCompaction, CompletedTool, Event, EventBody};
use fabro_types::{one_line, tokens, took};
use serde_json::Value;

use crate::paint::Mark;
use crate::text::QUOTED;

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
            (Mark::Note, format!("{name} compacts its conversation: {used}{window} tokens"))
        }
        EventBody::AgentCompactionCompleted(done) => (Mark::Note, compacted(done, name)),
        EventBody::AgentSubSpawned { agent_id, task } => {
            (Mark::Note, format!("{name} started agent {}: {}", quoted(agent_id), quoted(task)))
        }
        EventBody::AgentSubCompleted { agent_id, text } => {
            (Mark::Good, format!("agent {} of {name}: {}", quoted(agent_id), quoted(text)))
        }
        EventBody::AgentSubFailed { agent_id, message } => {
            (Mark::Bad, format!("agent {} of {name} failed: {}", quoted(agent_id), quoted(message)))
        }
        EventBody::AgentSubClosed { agent_id } => {
            (Mark::Note, format!("agent {} of {name} closed", quoted(agent_id)))
        }
        EventBody::AgentSteered { text, source } => {
            (Mark::Note, format!("{name} was steered: {} ({})", quoted(text), quoted(source)))
        }
        EventBody::ArtifactCaptured(artifact) => {
            let size = artifact.size;
            (Mark::Note, format!("{name} left {} ({size} bytes), kept", quoted(&artifact.path)))
        }
        // The message is written for the model.
        EventBody::AgentWarning { kind, message, .. } if kind == "output_schema" => {
            (Mark::Odd, format!("{name} has to answer again: {}", quoted(message)))
        }
        EventBody::AgentWarning { message, .. } => {
            (Mark::Odd, format!("{name} warns: {}", quoted(message)))
        }
        EventBody::AgentError { class, message, .. } => {
            (Mark::Bad, format!("{name}: {} ({class})", quoted(message)))
        }
        _ => return None,
    })
}

/// A call in a few words: the tool, and its most telling argument.
pub(crate) fn call(tool: &str, arguments: &str) -> String {
    let tool = one_line(tool, ARGUMENT);
    match subject(arguments) {
        Some(subject) => format!("{tool} {}", one_line(&subject, ARGUMENT)),
        None => tool,
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

fn compacted(done: &CompletedCompaction, name: &str) -> String {
    format!(
        "{name} compacted its conversation from {} to {} messages ({} tokens before, {})",
        done.messages_before,
        done.messages_after,
        tokens(done.tokens_before),
        one_line(&done.reason, QUOTED),
    )
}

/// The most telling argument of a call, else the first text. Arguments may be truncated, so they need
/// not be valid JSON.
fn subject(arguments: &str) -> Option<String> {
    const TELLING: [&str; 8] =
        ["path", "file_path", "command", "pattern", "url", "query", "name", "task"];
    match serde_json::from_str::<Value>(arguments) {
        Ok(Value::Object(map)) => {
            let found = TELLING.iter().find_map(|key| map.get(*key)?.as_str());
            found.or_else(|| map.values().find_map(Value::as_str)).map(str::to_owned)
        }
        Ok(_) => None,
        Err(_) => {
            let found = TELLING.iter().find_map(|key| {
                let at = arguments.find(&format!("\"{key}\""))?;
                cut_text(&arguments[at + key.len() + 2..])
            });
            found.or_else(|| cut_text(arguments.split_once("\":").map_or("", |(_, rest)| rest)))
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
    fn a_call_shows_its_most_telling_argument() {
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
    fn a_correction_is_not_shown_as_a_warning() {
        let shown = |kind: &str| {
            let kind = kind.to_owned();
            let message = "\"score\" is missing".to_owned();
            let body = EventBody::AgentWarning { kind, message, window: None };
            let entry = fabro_events::Entry::new(body);
            let run_id = fabro_types::RunId::from_parts(0, 1);
            agent_line(&Event { run_id, seq: 1, ts_ms: 0, entry }, "grade").unwrap().1
        };
        assert_eq!(shown("output_schema"), "grade has to answer again: \"score\" is missing");
        assert_eq!(shown("mcp"), "grade warns: \"score\" is missing");
    }

    #[test]
    fn an_artifact_is_named() {
        let artifact = fabro_events::CapturedArtifact {
            path: "test-results/two\nlines.png".into(),
            size: 7,
            sha256: "0".repeat(64),
            media_type: "image/png".into(),
            attempt: 1,
            file: "cache/artifacts/files/test/retry_1/test-results/two\nlines.png".into(),
        };
        let entry = fabro_events::Entry::new(EventBody::ArtifactCaptured(Box::new(artifact)));
        let run_id = fabro_types::RunId::from_parts(0, 1);
        let line = agent_line(&Event { run_id, seq: 1, ts_ms: 0, entry }, "test").unwrap().1;
        assert_eq!(line, "test left test-results/two lines.png (7 bytes), kept");
    }
}
