//! Every reader of events, without I/O.

use std::sync::Arc;

use super::event_reader::Progress;
use super::events::{Event, EventError};
use super::interface::Wire;
use super::prefix::PrefixHash;
use super::prepared::event_reader;
use super::turn::{NO_USAGE, Pricing, Turn};
use super::{Part, Provider, ProviderKind};

/// Reads events, each as `name|data`, and returns what the turn has afterwards.
fn read(kind: ProviderKind, events: &[&str]) -> String {
    let mut turn = Turn::new(
        kind.as_str(),
        "m".to_owned(),
        Pricing::default(),
        Arc::default(),
        PrefixHash::default(),
    );
    let mut reader = event_reader(Wire::of(&Provider::new("p", kind), "m", None));
    let mut lines = Vec::new();
    let mut result = Ok(Progress::More);
    for event in events.iter().map(Some).chain([None]) {
        result = match event {
            Some(event) => {
                let (name, data) = event.split_once('|').unwrap();
                let event = Event { name: name.to_owned(), data: data.to_owned() };
                reader.read(&event, &mut turn)
            }
            None => reader.close(&mut turn).map(|()| Progress::Ended),
        };
        while let Some(part) = turn.pop_part() {
            lines.push(match part {
                Part::Warning(text) if text == NO_USAGE => continue,
                Part::Text(text) | Part::Warning(text) => text,
                Part::Usage(_) => continue,
                Part::Reasoning(thought) => {
                    let signature = thought.signature.unwrap_or_default();
                    let hidden = thought.redacted.or(thought.phase).unwrap_or_default();
                    let fields = thought.fields.map(|it| it.to_string()).unwrap_or_default();
                    format!("<{}{hidden}{signature}{fields}>", thought.text)
                }
                Part::ToolCall(call) => format!("{}:{}{}", call.id, call.name, call.arguments),
                Part::End { stop, usage } => {
                    let cached = usage.cached_tokens;
                    format!("{stop:?} {}+{cached}/{}", usage.input_tokens, usage.output_tokens)
                }
            });
        }
        if !matches!(result, Ok(Progress::More)) {
            break;
        }
    }
    match result {
        Ok(_) => {}
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
        r#"<hm{"thinking":null}> a Complete 3+0/2"#,
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
        "<hms1{}> x:f{} <s2{}> ToolCalls 0+0/0",
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
        (ProviderKind::OpenAi, "|[DONE]", "EndedEarly"),
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

#[test]
fn an_answer_that_fills_the_window_is_an_overflow() {
    let full = r#"half WindowFull("model_context_window_exceeded")"#;
    let events = [
        r#"content_block_start|{"content_block":{"type":"text","text":"half"}}"#,
        r#"message_delta|{"delta":{"stop_reason":"model_context_window_exceeded"}}"#,
        "message_stop|{}",
    ];
    assert_eq!(read(ProviderKind::Anthropic, &events), full);
    let events = [
        r#"|{"choices":[{"delta":{"content":"half"},"finish_reason":"model_context_window_exceeded"}]}"#,
        "|[DONE]",
    ];
    assert_eq!(read(ProviderKind::OpenAiCompatible, &events), full);
}

#[test]
fn compatible_servers_differ() {
    let check = |events: &[&str], expect: &str| {
        assert_eq!(read(ProviderKind::OpenAiCompatible, events), expect);
    };
    // Counts in other places and forms; no `[DONE]`.
    check(
        &[
            r#"|{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}"#,
            r#"|{"x_groq":{"usage":{"prompt_tokens":3.0,"completion_tokens":2,"prompt_cache_hit_tokens":1}}}"#,
        ],
        "a Complete 3+1/2",
    );
    check(
        &[
            r#"|{"choices":[{"message":{"content":"a","tool_calls":{"function":{"name":"f","arguments":{"n":1}}}},"finish_reason":"stop","usage":{"prompt_tokens":3,"cached_tokens":2}}]}"#,
        ],
        r#"a call_0_0:f{"n":1} ToolCalls 3+2/0"#,
    );
    // Events with a name and without JSON; answers that say that they are of no use.
    check(
        &[
            "ping|-",
            r#"|{"choices":[{"delta":{"content":"a"},"finish_reason":"aborted"}]}"#,
            "|[DONE]",
        ],
        r#"a Incomplete("aborted")"#,
    );
    check(&["error|no luck"], r#"Reported(String("no luck"))"#);
    check(
        &[r#"|{"object":"error","message":"m","code":400}"#],
        r#"Reported(Object {"object": String("error"), "message": String("m"), "code": Number(400)})"#,
    );
    // Gemini's signatures, and details that arrive in pieces.
    check(
        &[
            r#"|{"choices":[{"delta":{"reasoning":"hm","reasoning_details":[{"type":"reasoning.text","index":0,"text":"h"}]}}]}"#,
            r#"|{"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.text","index":0,"text":"m","signature":"s"}]}}]}"#,
            r#"|{"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.encrypted","index":1,"data":"d"}]}}]}"#,
            r#"|{"choices":[{"delta":{"tool_calls":[{"id":"x","function":{"name":"f"},"extra_content":{"google":{"thought_signature":"g"}}}]},"finish_reason":"tool_calls"}]}"#,
        ],
        r#"<hm{"reasoning":null}> <{"reasoning_details":[{"type":"reasoning.text","index":0,"text":"hm","signature":"s"},{"type":"reasoning.encrypted","index":1,"data":"d"}]}> <g> x:f{} ToolCalls 0+0/0"#,
    );
}

#[test]
fn a_thought_in_the_text_is_none_of_it() {
    let check = |pieces: &[&str], expect: &str| {
        let deltas = pieces.iter().map(|piece| {
            format!("|{}", serde_json::json!({"choices": [{"delta": {"content": piece}}]}))
        });
        let deltas: Vec<_> = deltas.chain(["|[DONE]".to_owned()]).collect();
        let deltas: Vec<_> = deltas.iter().map(String::as_str).collect();
        assert_eq!(read(ProviderKind::OpenAiCompatible, &deltas), expect);
    };
    check(&["<think>hm</think>\n\nyes"], "<hm{}> yes Complete 0+0/0");
    check(
        &["\n<th", "ink>h", "m <b", "> </thi", "nk>", "\n", "yes", " </think>"],
        "<hm <b> {}> yes  </think> Complete 0+0/0",
    );
    check(&["<think>cut o", "ff</t"], "<cut off</t{}> Complete 0+0/0");
    check(&["<thing>"], "<thing> Complete 0+0/0");
    check(&["<th"], "<th Complete 0+0/0");
    check(&["a <think>b</think>"], "a <think>b</think> Complete 0+0/0");
    // Where the server has a field for it, the text is what the model wrote.
    let events = [
        r#"|{"choices":[{"delta":{"reasoning_content":"hm"}}]}"#,
        r#"|{"choices":[{"delta":{"content":"<think>b</think>"},"finish_reason":"stop"}]}"#,
    ];
    assert_eq!(
        read(ProviderKind::OpenAiCompatible, &events),
        "<hm> <think>b</think> Complete 0+0/0"
    );
}

#[test]
fn items_of_responses_are_read_once() {
    let check = |events: &[&str], expect: &str| {
        assert_eq!(read(ProviderKind::OpenAiResponses, events), expect);
    };
    let done = r#"|{"type":"response.completed","response":{"status":"completed"}}"#;
    check(
        &[
            "|[DONE]",
            "ping|-",
            r#"|{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"s","status":null}}"#,
            r#"|{"type":"response.output_item.done","output_index":1,"item":{"type":"message","phase":"commentary","content":[{"type":"output_text","text":"a"}]}}"#,
            r#"|{"type":"response.output_text.delta","output_index":2,"delta":"b"}"#,
            r#"|{"type":"response.output_item.done","output_index":2,"item":{"type":"message","phase":"final_answer","content":[{"type":"output_text","text":"b"}]}}"#,
            r#"|{"type":"response.output_item.done","output_index":3,"item":{"type":"function_call","call_id":"x","name":"f","arguments":"{ \"n\": 1 }"}}"#,
            done,
        ],
        r#"<hms{"id":"rs_1","summary":[{"type":"summary_text","text":"hm"}]}> a <commentary> b <final_answer> <{"arguments":"{ \"n\": 1 }"}> x:f{"n":1} ToolCalls 0+0/0"#,
    );
    // All of it at the end only.
    check(
        &[
            r#"|{"type":"response.completed","response":{"output":[{"type":"message","content":[{"type":"output_text","text":"a"}]},{"type":"function_call","call_id":"x","name":"f","arguments":{"n":1}}]}}"#,
        ],
        r#"a x:f{"n":1} ToolCalls 0+0/0"#,
    );
    check(
        &[
            r#"|{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"steered"}}}"#,
        ],
        "Complete 0+0/0",
    );
}
