//! Calls of tools that a model wrote as text, because its server does not know how the model writes them.

use fabro_llm::ToolSpec;
use serde_json::Value;

/// What is said of such an answer.
pub(crate) const WRITTEN_CALL: &str = "the answer has a tool call written as text, which is not executed: the server does \
    not recognize the calls of this model (llama.cpp: --jinja; vLLM: --enable-auto-tool-choice), or the model is too \
    small for tools";

/// How the templates of common models begin a call: Qwen, Hermes and GLM; Mistral; Llama; `DeepSeek`
/// (its DSML, also with plain bars, and its older tokens); Kimi, Granite and Phi; `MiniMax`; gpt-oss; Gemma.
const MARKS: [&str; 13] = [
    "<tool_call>",
    "<function=",
    "[TOOL_CALLS]",
    "<|python_tag|>",
    "<\u{ff5c}DSML\u{ff5c}",
    "<|DSML|",
    "<\u{ff5c}tool\u{2581}call",
    "<|tool_call",
    "<minimax:tool_call>",
    "<function_calls>",
    "<invoke name=",
    "<|channel|>commentary to=",
    "```tool_code",
];

/// Whether an answer without a call has one in words: it begins with the mark of one, is the JSON of one,
/// or ends with one after other text.
pub(crate) fn is_written_call(answer: &str, tools: &[ToolSpec]) -> bool {
    if tools.is_empty() {
        return false;
    }
    let answer = answer.trim();
    MARKS.iter().any(|mark| answer.starts_with(mark))
        || is_json_call(answer, tools)
        || has_call_after_text(answer, tools)
}

/// Whether a mark follows text, and the name of a tool follows the mark. Text about calls has marks within a
/// sentence, in quotes or in a block of code.
fn has_call_after_text(answer: &str, tools: &[ToolSpec]) -> bool {
    let Some(last_name) = tools.iter().filter_map(|tool| answer.rfind(&tool.name)).max() else {
        return false;
    };
    let mut is_in_code = false;
    let mut start = 0;
    for line in answer.split_inclusive('\n') {
        let is_call = |at: usize| {
            let is_in_sentence = line[..at].ends_with([' ', '`', '"', '\'', '(']);
            !is_in_sentence && start + at <= last_name
        };
        let mut marks = MARKS.iter().flat_map(|mark| line.match_indices(mark));
        if !is_in_code && marks.any(|(at, _)| is_call(at)) {
            return true;
        }
        let bare = line.trim_start();
        is_in_code ^= bare.starts_with("```") || bare.starts_with("~~~");
        start += line.len();
    }
    false
}

fn is_json_call(answer: &str, tools: &[ToolSpec]) -> bool {
    let inner = answer.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    let json = inner.map_or(answer, |inner| inner.strip_prefix("json").unwrap_or(inner));
    let call = match serde_json::from_str(json) {
        Ok(Value::Object(call)) => call,
        Ok(Value::Array(calls)) => match calls.into_iter().next() {
            Some(Value::Object(call)) => call,
            _ => return false,
        },
        _ => return false,
    };
    let function = call.get("function").and_then(Value::as_object).unwrap_or(&call);
    let has_arguments = ["arguments", "parameters"].iter().any(|key| function.contains_key(*key));
    let name = function.get("name").and_then(Value::as_str);
    has_arguments && name.is_some_and(|name| tools.iter().any(|tool| tool.name == name))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn check(answer: &str) -> bool {
        let name = "read_file".to_owned();
        let tools =
            [ToolSpec { name, description: String::new(), parameters: Arc::new(json!({})) }];
        is_written_call(answer, &tools)
    }

    #[test]
    fn calls_in_words_are_recognized() {
        assert!(check("<tool_call>\n{\"name\": \"other\"}\n</tool_call>"));
        assert!(check("[TOOL_CALLS] [{\"name\": \"read_file\"}]"));
        assert!(check(r#"{"name": "read_file", "arguments": {"file_path": "a"}}"#));
        assert!(check(r#"[{"name": "read_file", "arguments": {"file_path": "a"}}]"#));
        assert!(check("```json\n{\"name\": \"read_file\", \"parameters\": {}}\n```"));
        assert!(check(
            r#"{"type": "function", "function": {"name": "read_file", "arguments": "{}"}}"#
        ));
        assert!(!check(r#"{"name": "Ada", "arguments": {}}"#));
        assert!(!check(r#"[{"name": "Ada", "arguments": {}}]"#));
        assert!(!check("[]") && !check("[1]"));
        assert!(!check(r#"{"name": "read_file"}"#));
        assert!(!check("A call begins with <tool_call>."));
        assert!(!check("") && !is_written_call("<tool_call>", &[]));
    }

    #[test]
    fn calls_of_all_families_are_recognized() {
        let calls = [
            "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"read_file\">",
            "<|DSML|tool_calls>\n<|DSML|invoke name=\"read_file\">",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>read_file<｜tool▁sep｜>{}",
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.read_file:0",
            "<|tool_call|>[{\"name\": \"read_file\"}]",
            "<minimax:tool_call>\n<invoke name=\"read_file\">",
            "<function_calls>\n<invoke name=\"read_file\">",
            "<|channel|>commentary to=functions.read_file <|message|>{}<|call|>",
            "```tool_code\nread_file(file_path=\"a\")\n```",
            "<function=read_file>{}</function>",
            "[TOOL_CALLS]read_file[ARGS]{}",
        ];
        for call in calls {
            assert!(check(call), "{call}");
            assert!(check(&format!("I look into it.\n\n{call}")), "text before {call}");
        }
        assert!(check("Reading.[TOOL_CALLS]read_file[ARGS]{}"));
    }

    #[test]
    fn text_about_calls_is_none() {
        assert!(!check("I fixed the parser of `<｜DSML｜invoke name=\"read_file\">`."));
        assert!(!check(
            "It reads this:\n\n```\n<tool_call>\nread_file\n</tool_call>\n```\n\nDone."
        ));
        assert!(!check("It reads this:\n\n  ~~~\n<tool_call>\nread_file\n  ~~~\n\nDone."));
        assert!(!check("What a model writes:\n<tool_call>\nis now recognized."));
        assert!(!check("The line is \"<function=read_file>\" (<function=read_file>)."));
    }
}
