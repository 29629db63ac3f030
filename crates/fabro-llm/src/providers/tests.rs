//! Every reader of events, without I/O.

use std::sync::Arc;

use super::events::{Event, EventError, Progress};
use super::turn::Turn;
use super::wire::Wire;
use super::{Part, ProviderKind};

/// Reads events, each as `name|data`, and returns what the turn has afterwards.
fn read(kind: ProviderKind, events: &[&str]) -> String {
    let mut turn = Turn::new(kind, "m".to_owned(), None, Arc::default());
    let mut reader = Wire::of(kind).event_reader();
    let mut lines = Vec::new();
    let mut result = Ok(Progress::More);
    for event in events {
        let (name, data) = event.split_once('|').unwrap();
        let event = Event { name: name.to_owned(), data: data.to_owned() };
        result = reader.read(&event, &mut turn);
        while let Some(part) = turn.pop_part() {
            lines.push(match part {
                Part::Text(text) => text,
                Part::Reasoning(thought) => {
                    let signature = thought.signature.unwrap_or_default();
                    format!("<{}{}{signature}>", thought.text, thought.redacted.unwrap_or_default())
                }
                Part::ToolCall(call) => format!("{}:{}{}", call.id, call.name, call.arguments),
                Part::End { stop, usage } => {
                    let cached = usage.cached_tokens;
                    format!("{stop:?} {}+{cached}/{}", usage.input_tokens, usage.output_tokens)
                }
            });
        }
        if result.is_err() {
            break;
        }
    }
    match result {
        Ok(Progress::More) => lines.push("more".to_owned()),
        Ok(Progress::Ended) => {}
        Err(EventError::Malformed(error)) => lines.push(format!("malformed: {error}")),
        Err(error) => lines.push(format!("{error:?}")),
    }
    lines.join(" ")
}

#[test]
fn unknown_events_blocks_and_reasons_are_ignored() {
    let check = |kind, events: &[&str], expect: &str| assert_eq!(read(kind, events), expect);
    check(
        ProviderKind::Anthropic,
        &[
            r#"message_start|{"message":{"usage":{"input_tokens":3,"cache_read_input_tokens":4}}}"#,
            "ping|not JSON",
            "new_event|not JSON",
            r#"content_block_start|{"content_block":{"type":"server_tool_use","name":"x"}}"#,
            r#"content_block_delta|{"delta":{"type":"input_json_delta","partial_json":"{"}}"#,
            "content_block_stop|{}",
            r#"content_block_delta|{"delta":{"type":"text_delta","text":"a"}}"#,
            r#"content_block_delta|{"delta":{"type":"citations_delta","citation":{}}}"#,
            "content_block_stop|{}",
            r#"message_delta|{"delta":{"stop_reason":"new_reason"},"usage":{"output_tokens":2}}"#,
            "message_stop|{}",
        ],
        "a Complete 7+4/2",
    );
    check(
        ProviderKind::OpenAiCompatible,
        &[
            r#"|{"prompt_filter_results":[]}"#,
            r#"|{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"text":"hm"}]}]}}]}"#,
            r#"|{"choices":[{"delta":{"content":"a","audio":{}},"finish_reason":"new_reason"}]}"#,
            r#"|{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}"#,
            "|[DONE]",
        ],
        "<hm> a Complete 3+0/2",
    );
    check(
        ProviderKind::OpenAiResponses,
        &[
            r#"|{"type":"response.new_event"}"#,
            r#"|{"type":"response.output_item.done","item":{"type":"web_search_call"}}"#,
            r#"|{"type":"response.output_text.delta","delta":"a"}"#,
            r#"|{"type":"response.completed","response":{"status":"completed"}}"#,
        ],
        "a Complete 0+0/0",
    );
    check(
        ProviderKind::Gemini,
        &[
            r#"|{"usageMetadata":{"promptTokenCount":3}}"#,
            r#"|{"candidates":[{"content":{"parts":[{"inlineData":{}},{"text":"a"}]}}]}"#,
            r#"|{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":2,"thoughtsTokenCount":5}}"#,
        ],
        "a Complete 3+0/7",
    );
}

#[test]
fn parts_keep_their_order() {
    let check = |kind, events: &[&str], expect: &str| assert_eq!(read(kind, events), expect);
    check(
        ProviderKind::Gemini,
        &[
            r#"|{"candidates":[{"content":{"parts":[{"text":"h","thought":true},{"text":"m","thought":true},{"text":"a"},
                {"functionCall":{"name":"f","args":{"n":1}},"thoughtSignature":"s1"},{"functionCall":{"name":"f"}},
                {"functionCall":{"name":"g","id":"own"}}]},"finishReason":"STOP"}]}"#,
        ],
        r#"<hm> a <s1> call#f#0:f{"n":1} call#f#1:f{} own:g{} ToolCalls 0+0/0"#,
    );
    check(
        ProviderKind::OpenAiResponses,
        &[
            r#"|{"type":"response.reasoning_summary_text.delta","delta":"hm"}"#,
            r#"|{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","encrypted_content":"s1"}}"#,
            r#"|{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","call_id":"x","name":"f","arguments":"{}"}}"#,
            r#"|{"type":"response.output_item.done","output_index":2,"item":{"type":"reasoning","encrypted_content":"s2"}}"#,
            r#"|{"type":"response.completed","response":{"status":"completed","output":[{"type":"function_call","call_id":"x"}]}}"#,
        ],
        "<hms1> x:f{} <s2> ToolCalls 0+0/0",
    );
}

#[test]
fn a_call_that_is_cut_off_keeps_its_input() {
    let events = [
        r#"content_block_start|{"content_block":{"type":"tool_use","id":"x","name":"f","input":{}}}"#,
        r#"content_block_delta|{"delta":{"type":"input_json_delta","partial_json":"{\"a\""}}"#,
        r#"message_delta|{"delta":{"stop_reason":"max_tokens"}}"#,
        "message_stop|{}",
    ];
    assert_eq!(read(ProviderKind::Anthropic, &events), r#"x:f"{\"a\"" MaxTokens 0+0/0"#);
}

#[test]
fn events_that_cannot_be_used_are_errors() {
    for (kind, event, expect) in [
        (ProviderKind::OpenAi, "|{", "malformed: EOF while parsing an object at line 1 column 1"),
        (ProviderKind::OpenAi, r#"|{"error":"no"}"#, r#"Reported(Object {"error": String("no")})"#),
        (ProviderKind::OpenAi, "|[DONE]", r#"Incomplete("it ended before it was complete")"#),
        (ProviderKind::Anthropic, "error|[]", "Reported(Array [])"),
        (
            ProviderKind::Gemini,
            r#"|{"candidates":[{"finishReason":"SAFETY"}]}"#,
            r#"Refused("the answer was filtered")"#,
        ),
    ] {
        assert_eq!(read(kind, &[event]), expect);
    }
}
