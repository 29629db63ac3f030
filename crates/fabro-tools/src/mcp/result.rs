use crate::schema::Schema;
use crate::tool::Output;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

/// In place of content that cannot be read.
const UNKNOWN: &str = "[content of a kind that is not known here]";

/// A result as text for the model; `schema` is that of its structured part.
pub(crate) fn output(result: &CallToolResult, schema: Option<&Schema>) -> Output {
    let mut parts: Vec<String> = result.content.iter().map(part).collect();
    let is_error = result.is_error == Some(true);
    if let Some(value) = &result.structured_content {
        let check = schema.filter(|_| !is_error).map(|schema| schema.problems(value));
        let problems = check.unwrap_or_default();
        let is_repeated = result.content.iter().any(|block| repeats(block, value));
        // The text stands for a structured part that is not what the tool promised.
        if !is_repeated && (problems.is_empty() || parts.is_empty()) {
            parts.push(value.to_string());
        }
        if !problems.is_empty() {
            parts.push(format!("[the structured result is not as its schema says: {problems}]"));
        }
    }
    let text = if parts.is_empty() { "(no output)".to_owned() } else { parts.join("\n") };
    Output { is_error, ..Output::ok(text) }
}

/// A result with content of kinds that are not known here: the rest of it. `None` for what is no
/// result.
pub(crate) fn unknown(result: &Value) -> Option<Output> {
    let read = |block: &Value| serde_json::from_value::<ContentBlock>(block.clone()).ok();
    let content = result["content"].as_array()?.iter();
    let parts = content.map(|block| read(block).map_or_else(|| UNKNOWN.to_owned(), |it| part(&it)));
    let text = parts.collect::<Vec<_>>().join("\n");
    Some(Output { is_error: result["isError"] == true, ..Output::ok(text) })
}

/// Servers repeat structured content as text, for clients that know only that.
fn repeats(block: &ContentBlock, value: &Value) -> bool {
    let ContentBlock::Text(text) = block else { return false };
    serde_json::from_str::<Value>(&text.text).is_ok_and(|text| text == *value)
}

fn part(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => described("image", &image.mime_type, &image.data),
        ContentBlock::Audio(audio) => described("audio", &audio.mime_type, &audio.data),
        ContentBlock::ResourceLink(link) => format!("[resource {}: {}]", link.name, link.uri),
        ContentBlock::Resource(embedded) => resource(&embedded.resource),
        _ => UNKNOWN.to_owned(),
    }
}

fn resource(contents: &ResourceContents) -> String {
    match contents {
        ResourceContents::TextResourceContents { uri, text, .. } => format!("[{uri}]\n{text}"),
        ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
            described(uri, mime_type.as_deref().unwrap_or("application/octet-stream"), blob)
        }
        _ => "[a resource of a kind that is not known here]".to_owned(),
    }
}

fn described(what: &str, mime_type: &str, base64: &str) -> String {
    let bytes = base64.trim_end_matches('=').len() * 3 / 4;
    format!("[{what}: {mime_type}, {bytes} bytes]")
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use serde_json::json;

    use super::*;

    fn read(result: Value) -> String {
        let Output { text, is_error, .. } = output(&serde_json::from_value(result).unwrap(), None);
        if is_error { format!("error: {text}") } else { text }
    }

    #[test]
    fn texts_are_joined_and_the_rest_is_described() {
        assert_snapshot!(read(json!({"content": [
            {"type": "text", "text": "one"},
            {"type": "text", "text": "two"},
            {"type": "image", "mimeType": "image/png", "data": "aGVsbG8="},
            {"type": "audio", "mimeType": "audio/wav", "data": ""},
            {"type": "resource_link", "name": "readme", "uri": "file:///r.md"},
            {"type": "resource", "resource": {"uri": "mem://1", "text": "kept"}},
            {"type": "resource", "resource": {"uri": "mem://2", "blob": "AAAA"}},
        ]})), @r"
        one
        two
        [image: image/png, 5 bytes]
        [audio: audio/wav, 0 bytes]
        [resource readme: file:///r.md]
        [mem://1]
        kept
        [mem://2: application/octet-stream, 3 bytes]
        ");
    }

    #[test]
    fn structured_content_is_told_once() {
        let value = json!({"temperature": 21.5, "tags": ["a"]});
        let told = json!({"type": "text", "text": value.to_string()});
        let other = json!({"type": "text", "text": "It is warm."});
        assert_snapshot!(read(json!({"content": [other], "structuredContent": value})), @r#"
        It is warm.
        {"temperature":21.5,"tags":["a"]}
        "#);
        assert_snapshot!(read(json!({"content": [told], "structuredContent": value})), @r#"{"temperature":21.5,"tags":["a"]}"#);
    }

    #[test]
    fn errors_and_nothing() {
        assert_snapshot!(read(json!({"content": [{"type": "text", "text": "no such file"}], "isError": true})), @"error: no such file");
        assert_snapshot!(read(json!({"content": []})), @"(no output)");
    }
}
