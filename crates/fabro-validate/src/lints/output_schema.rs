use std::collections::{HashMap, HashSet};

use fabro_graph::{Attr, Diagnostic, Span};
use serde_json::Value;

use crate::checking::{Checking, syntax_error};

/// A schema that is no JSON object. What it says is looked at when the node is made ready.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Vec<Diagnostic>) {
    let mut seen = HashSet::new();
    // One file is parsed once, however many nodes name it.
    let mut files: HashMap<&str, Option<Problem>> = HashMap::new();
    for node in checking.workflow.nodes() {
        let Some(attr) = node.attrs.get("output_schema") else { continue };
        let Some(text) = attr.value.text() else { continue };
        if !seen.insert(attr.span) || is_unread(attr, text) {
            continue;
        }
        let problem = match &attr.file {
            Some(file) => files.entry(file).or_insert_with(|| problem(text)).clone(),
            None => problem(text),
        };
        if let Some(Problem { message, span }) = problem {
            let fix = "write `routing`, a JSON Schema such as {\"type\": \"object\"}, or @ and the path of one";
            let said = (message.as_str(), span, Some(fix));
            findings.push(syntax_error(checking.source, "output-schema", attr, said));
        }
    }
}

#[derive(Clone)]
struct Problem {
    message: String,
    span: Span,
}

/// The file is missing, which is an error of its own.
fn is_unread(attr: &Attr, text: &str) -> bool {
    attr.file.is_none() && text.starts_with('@') && !text.starts_with("@@")
}

fn problem(text: &str) -> Option<Problem> {
    if matches!(text.trim(), "" | "routing") {
        return None;
    }
    let whole = Span::new(0, text.len());
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(_)) => None,
        Ok(_) => Some(Problem { message: "the schema is no JSON object".to_owned(), span: whole }),
        Err(error) => {
            let message = error.to_string();
            let message = message.split(" at line ").next().unwrap_or(&message);
            let at = offset(text, error.line(), error.column());
            let message = format!("the schema is not JSON: {message}");
            Some(Problem { message, span: Span::new(at, at + 1) })
        }
    }
}

/// Of a line and a column in bytes, both from 1.
fn offset(text: &str, line: usize, column: usize) -> usize {
    let lines = text.split_inclusive('\n').take(line.saturating_sub(1));
    let at = lines.map(str::len).sum::<usize>() + column.saturating_sub(1);
    text.floor_char_boundary(at.min(text.len().saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use crate::testing::{told, told_with};

    #[test]
    fn a_schema_is_a_json_object() {
        insta::assert_snapshot!(told("output-schema", r#"start -> a -> exit; a [output_schema="{\"type\": \"object\",}"]"#), @r#"
        1:73 error: the schema is not JSON: trailing comma
          at: }
          fix: write `routing`, a JSON Schema such as {"type": "object"}, or @ and the path of one
        "#);
        insta::assert_snapshot!(told("output-schema", r#"start -> a -> exit; a [output_schema="[1]"]"#), @r#"
        1:51 error: the schema is no JSON object
          at: [1]
          fix: write `routing`, a JSON Schema such as {"type": "object"}, or @ and the path of one
        "#);
        insta::assert_snapshot!(told_with("output-schema", r#"start -> a -> exit; a [output_schema="@out.json"]"#, &[("out.json", r#"{
  "type" "object"
}"#)], None), @r#"
        1:50 error: out.json, line 2: the schema is not JSON: expected `:`
          at: "@out.json"
          fix: write `routing`, a JSON Schema such as {"type": "object"}, or @ and the path of one
        "#);
        insta::assert_snapshot!(told("output-schema", r#"start -> a -> b -> exit; a [output_schema=routing]; b [output_schema="{\"type\": \"object\"}"]"#), @"nothing");
        insta::assert_snapshot!(told("output-schema", r#"start -> a -> exit; a [output_schema="@gone.json"]"#), @"nothing");
    }
}
