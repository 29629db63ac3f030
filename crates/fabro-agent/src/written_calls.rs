//! Calls of tools that a model wrote as text, because its server does not know how the model writes them.

use fabro_llm::ToolSpec;
use serde_json::Value;

/// What is said of such an answer.
pub(crate) const WRITTEN_CALL: &str = "the answer is a tool call written as text, which is not executed: the server does \
    not recognize the calls of this model (llama.cpp: --jinja; vLLM: --enable-auto-tool-choice), or the model is too \
    small for tools";

/// How the templates of common models begin a call.
const MARKS: [&str; 4] = ["<tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "<function="];

/// Whether an answer without a call is one in words: it begins with the mark of one, or is the JSON of one.
pub(crate) fn is_written_call(answer: &str, tools: &[ToolSpec]) -> bool {
    if tools.is_empty() {
        return false;
    }
    let answer = answer.trim();
    MARKS.iter().any(|mark| answer.starts_with(mark)) || is_json_call(answer, tools)
}

fn is_json_call(answer: &str, tools: &[ToolSpec]) -> bool {
    let inner = answer.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    let json = inner.map_or(answer, |inner| inner.strip_prefix("json").unwrap_or(inner));
    let Ok(Value::Object(call)) = serde_json::from_str(json) else { return false };
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

    #[test]
    fn calls_in_words_are_recognized() {
        let name = "read_file".to_owned();
        let tools =
            [ToolSpec { name, description: String::new(), parameters: Arc::new(json!({})) }];
        let check = |answer: &str| is_written_call(answer, &tools);
        assert!(check("<tool_call>\n{\"name\": \"other\"}\n</tool_call>"));
        assert!(check("[TOOL_CALLS] [{\"name\": \"read_file\"}]"));
        assert!(check(r#"{"name": "read_file", "arguments": {"file_path": "a"}}"#));
        assert!(check("```json\n{\"name\": \"read_file\", \"parameters\": {}}\n```"));
        assert!(check(
            r#"{"type": "function", "function": {"name": "read_file", "arguments": "{}"}}"#
        ));
        assert!(!check(r#"{"name": "Ada", "arguments": {}}"#));
        assert!(!check(r#"{"name": "read_file"}"#));
        assert!(!check("A call begins with <tool_call>."));
        assert!(!check("") && !is_written_call("<tool_call>", &[]));
    }
}
