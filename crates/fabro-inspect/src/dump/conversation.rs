//! The conversation of a stage with its model, to be read by people.

use std::fmt::Write as _;

use serde_json::Value;

use crate::conversation::{ModelInputs, TranscriptMessage};

/// The conversation as Markdown: the system prompt, the names of the tools, and each message under a numbered heading.
/// Texts are quotations; arguments and results of tools stand in code blocks as they are.
pub(super) fn markdown(stage: &str, given: &ModelInputs, messages: &[TranscriptMessage]) -> String {
    let mut text = format!("# {stage}\n");
    model_inputs(given, &mut text);
    for (at, message) in messages.iter().enumerate() {
        model_inputs(&message.given, &mut text);
        let _ = writeln!(text, "\n## {}. {}", at + 1, heading(message));
        content(message, &mut text);
    }
    text
}

fn heading(message: &TranscriptMessage) -> String {
    let mut heading = message.role.clone();
    if let Some(tool) = &message.tool {
        let _ = write!(heading, " {tool}");
    }
    if message.is_error {
        heading.push_str(", failed");
    }
    if let Some(count) = message.replaces {
        let _ = write!(heading, ", a summary of {count} earlier messages");
    }
    if let Some(session) = &message.session_id {
        let _ = write!(heading, " (subagent {session})");
    }
    heading
}

fn model_inputs(given: &ModelInputs, text: &mut String) {
    if let Some(system) = &given.system {
        text.push_str("\n## System prompt\n");
        value(system, text);
    }
    if let Some(Value::Array(tools)) = &given.tools {
        let names = tools.iter().filter_map(|tool| tool.get("name")?.as_str());
        let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
        let _ = writeln!(text, "\n## Tools\n\n{}", names.join(", "));
    }
    if let Some(opening) = &given.opening {
        text.push_str("\n## Before the text of the first message\n");
        value(opening, text);
    }
}

fn content(message: &TranscriptMessage, text: &mut String) {
    match &message.content {
        Value::String(result) if message.role == "tool" => block("", result, text),
        Value::Array(parts) => parts.iter().for_each(|it| part(it, text)),
        other => value(other, text),
    }
}

fn part(part: &Value, text: &mut String) {
    let is = |kind: &str| part["type"] == kind;
    match (&part["text"], &part["name"]) {
        (Value::String(words), _) if is("text") => quotation(words, text),
        (Value::String(words), _) if is("reasoning") => {
            if !words.trim().is_empty() {
                text.push_str("\nReasoning:\n");
                quotation(words, text);
            }
        }
        (Value::String(result), _) if is("tool_result") => block("", result, text),
        (_, Value::String(tool)) if is("tool_call") => {
            let _ = writeln!(text, "\nCalls `{tool}`:");
            block("json", &format!("{:#}", part["arguments"]), text);
        }
        _ => value(part, text),
    }
}

/// A text as it is, any other value as JSON.
fn value(value: &Value, text: &mut String) {
    match value {
        Value::String(words) => quotation(words, text),
        other => block("json", &format!("{other:#}"), text),
    }
}

/// A quotation: headings in it are not those of the conversation.
fn quotation(words: &str, text: &mut String) {
    let words = words.trim_matches('\n');
    if words.trim().is_empty() {
        return;
    }
    text.push('\n');
    for line in words.lines() {
        let _ = writeln!(text, "{}", format!("> {line}").trim_end());
    }
}

/// A code block whose fence is longer than each row of backticks in it.
fn block(language: &str, code: &str, text: &mut String) {
    let longest = code.split(|it| it != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    let end = if code.is_empty() || code.ends_with('\n') { "" } else { "\n" };
    let _ = writeln!(text, "\n{fence}{language}\n{code}{end}{fence}");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(role: &str, content: Value) -> TranscriptMessage {
        TranscriptMessage {
            role: role.to_owned(),
            session_id: None,
            content,
            tool: None,
            call_id: None,
            is_error: false,
            replaces: None,
            given: ModelInputs::default(),
        }
    }

    #[test]
    fn messages_are_written_to_be_read() {
        let call = json!([{"type": "reasoning", "text": "Look first."}, {"type": "text", "text": "I look."},
            {"type": "tool_call", "id": "1", "name": "read_file", "arguments": {"file_path": "a.md"}}]);
        let result = TranscriptMessage {
            tool: Some("read_file".to_owned()),
            is_error: true,
            ..message("tool", json!("````\nno such file"))
        };
        let other = TranscriptMessage {
            session_id: Some("s1".into()),
            given: ModelInputs { system: Some(json!("Be brief.")), ..ModelInputs::default() },
            ..message("user", json!("Sum up."))
        };
        let summary =
            TranscriptMessage { replaces: Some(3), ..message("system", json!("So far.")) };
        let odd = message("assistant", json!([{"type": "image", "url": "x"}]));
        let given = ModelInputs {
            system: Some(json!("You are an agent.\n")),
            tools: Some(json!([{"name": "read_file"}, {"name": "shell"}])),
            opening: Some(json!("The stage is \"fix\".")),
        };
        let all = [
            message("user", json!("## Now\n\nFix it.")),
            message("assistant", call),
            result,
            other,
            summary,
            odd,
        ];
        insta::assert_snapshot!(markdown("fix@1", &given, &all), @r#"
        # fix@1

        ## System prompt

        > You are an agent.

        ## Tools

        `read_file`, `shell`

        ## Before the text of the first message

        > The stage is "fix".

        ## 1. user

        > ## Now
        >
        > Fix it.

        ## 2. assistant

        Reasoning:

        > Look first.

        > I look.

        Calls `read_file`:

        ```json
        {
          "file_path": "a.md"
        }
        ```

        ## 3. tool read_file, failed

        `````
        ````
        no such file
        `````

        ## System prompt

        > Be brief.

        ## 4. user (subagent s1)

        > Sum up.

        ## 5. system, a summary of 3 earlier messages

        > So far.

        ## 6. assistant

        ```json
        {
          "type": "image",
          "url": "x"
        }
        ```
        "#);
    }
}
