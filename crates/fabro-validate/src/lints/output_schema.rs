use std::collections::{HashMap, HashSet};

use fabro_graph::{Attr, Diagnostic, Span};
use fabro_routing::{Schema, SchemaError};

use crate::checking::{Checking, syntax_error};

/// Schemas that answers cannot be checked with: not JSON, not a schema, or leading outside of itself.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Vec<Diagnostic>) {
    let mut seen = HashSet::new();
    // One file is compiled once, however many nodes name it.
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
        if let Some(Problem { message, span, fix }) = problem {
            let said = (message.as_str(), span, Some(fix));
            findings.push(syntax_error(checking.source, "output-schema", attr, said));
        }
    }
}

#[derive(Clone)]
struct Problem {
    message: String,
    span: Span,
    fix: &'static str,
}

/// The file is missing, which is an error of its own.
fn is_unread(attr: &Attr, text: &str) -> bool {
    attr.file.is_none() && text.starts_with('@') && !text.starts_with("@@")
}

fn problem(text: &str) -> Option<Problem> {
    if matches!(text.trim(), "" | "routing") {
        return None;
    }
    let error = Schema::compile(text).err()?;
    let span = match &error {
        SchemaError::NotJson { line, column, .. } => {
            let at = offset(text, *line, *column);
            Span::new(at, at + 1)
        }
        _ => Span::new(0, text.len()),
    };
    let fix = match &error {
        SchemaError::NotJson { .. } | SchemaError::NotAnObject => {
            "write `routing`, a JSON Schema such as {\"type\": \"object\"}, or @ and the path of one"
        }
        SchemaError::OutsideReference { .. } => {
            "copy what it refers to into `$defs`, and write #/$defs/NAME"
        }
        SchemaError::MissingReference { .. } => "define it in `$defs`, or correct the reference",
        _ => {
            "correct it there; the keywords are those of JSON Schema, draft 2020-12 unless `$schema` names another"
        }
    };
    Some(Problem { message: error.to_string(), span, fix })
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
        insta::assert_snapshot!(told("output-schema", r#"start -> a -> exit; a [output_schema="{\"properties\": {\"n\": {\"type\": \"int\"}}}"]"#), @r#"
        1:51 error: the schema is wrong at /properties/n/type: "int" is none of "array", "boolean", "integer", "null", "number", "object", "string"
          at: {\"properties\": {\"n\": {\"type\": \"int\"}}}
          fix: correct it there; the keywords are those of JSON Schema, draft 2020-12 unless `$schema` names another
        "#);
        insta::assert_snapshot!(told_with("output-schema", r#"start -> a -> exit; a [output_schema="@out.json"]"#, &[("out.json", r#"{"$ref": "https://example.com/s.json"}"#)], None), @r#"
        1:50 error: out.json, line 1: the schema refers to `https://example.com/s.json` at /$ref, but nothing outside of the schema itself is read: copy it into `$defs`
          at: "@out.json"
          fix: copy what it refers to into `$defs`, and write #/$defs/NAME
        "#);
        insta::assert_snapshot!(told("output-schema", r##"start -> a -> exit; a [output_schema="{\"$ref\": \"#/$defs/a\"}"]"##), @r##"
        1:51 error: the schema refers to `#/$defs/a` at /$ref, which is not there
          at: {\"$ref\": \"#/$defs/a\"}
          fix: define it in `$defs`, or correct the reference
        "##);
        insta::assert_snapshot!(told("output-schema", r#"start -> a -> b -> exit; a [output_schema=routing]; b [output_schema="{\"type\": \"object\"}"]"#), @"nothing");
        insta::assert_snapshot!(told("output-schema", r#"start -> a -> exit; a [output_schema="@gone.json"]"#), @"nothing");
    }
}
