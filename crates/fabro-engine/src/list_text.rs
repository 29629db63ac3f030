//! Parses the elements of a list from text: JSON as written by a model or a command, or lines.

use fabro_types::parse_json;
use serde_json::Value;

/// The elements of a text: a JSON array, which may be in a code block or at the end of the text; JSON
/// objects or arrays, one per line; otherwise the lines.
///
/// Text that looks like JSON but does not parse is an error, never lines: text that begins with `[`
/// (except a task list check box) or with a JSON object, a JSON code block, and an array at the end.
/// The error says what the text contains instead.
pub(crate) fn elements(text: &str) -> Result<Vec<Value>, String> {
    let text = Part::new(text);
    if let Some(json) = text.json() {
        return json;
    }
    if let Some(block) = text.code_block()? {
        return Ok(block);
    }
    if let Some(array) = text.array_at_the_end() {
        return array;
    }
    Ok(text.lines())
}

/// A trimmed part of the text and the line where it begins.
#[derive(Clone, Copy)]
struct Part<'a> {
    text: &'a str,
    /// The number of lines before it in the whole text.
    line: usize,
}

impl<'a> Part<'a> {
    fn new(text: &'a str) -> Self {
        let byte_order_mark = '\u{feff}';
        Part { text: text.trim_start_matches(byte_order_mark), line: 0 }.trimmed()
    }

    fn trimmed(self) -> Self {
        let start = self.text.trim_start();
        let before = &self.text[..self.text.len() - start.len()];
        Part { text: start.trim_end(), line: self.line + before.matches('\n').count() }
    }

    fn from(self, at: usize) -> Self {
        Part { text: &self.text[at..], line: self.line + self.text[..at].matches('\n').count() }
    }

    /// The elements, if the whole text looks like JSON.
    fn json(self) -> Option<Result<Vec<Value>, String>> {
        let is_json = self.text.starts_with('[') && !begins_with_check_box(self.text)
            || begins_with_object(self.text);
        is_json.then(|| self.parsed())
    }

    fn parsed(self) -> Result<Vec<Value>, String> {
        let error = match parse_json(self.text) {
            Ok(Value::Array(items)) => return Ok(items),
            Ok(Value::Object(_)) => return Err("a JSON object".to_owned()),
            Ok(other) => return Err(format!("`{other}`")),
            Err(error) => error,
        };
        let is_container = |value: &Value| value.is_object() || value.is_array();
        let mut items = Vec::new();
        for (number, line) in self.text.lines().enumerate() {
            match parse_json(line) {
                _ if line.trim().is_empty() => {}
                Ok(value) if is_container(&value) => items.push(value),
                Err(error) if !items.is_empty() => return Err(self.parse_error(&error, number)),
                // It is one value that spans several lines.
                _ => return Err(self.parse_error(&error, 0)),
            }
        }
        Ok(items)
    }

    fn parse_error(self, error: &serde_json::Error, lines_before: usize) -> String {
        let line = self.line + lines_before + error.line();
        let place = format!("at line {line}, column {}", error.column().max(1));
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or(&message);
        if error.is_eof() {
            format!("truncated JSON {place}")
        } else {
            format!("invalid JSON {place} ({message})")
        }
    }

    /// The elements of the last code block that has any; `None` without code blocks.
    fn code_block(self) -> Result<Option<Vec<Value>>, String> {
        let blocks = self.blocks()?;
        for block in blocks.iter().rev() {
            let is_array = block.body.text.starts_with('[');
            let json = if block.is_json { Some(block.body.parsed()) } else { block.body.json() };
            match json {
                Some(Ok(items)) => return Ok(Some(items)),
                // This block may be an example, and the list in another block.
                Some(Err(holds)) if is_array || blocks.len() == 1 => return Err(holds),
                _ => {}
            }
        }
        match blocks.as_slice() {
            [] => Ok(None),
            [block] => Ok(Some(block.body.lines())),
            _ => Err(format!("{} code blocks, none of them a JSON array", blocks.len())),
        }
    }

    fn blocks(self) -> Result<Vec<Block<'a>>, String> {
        let mut blocks = Vec::new();
        // The open block: its start offset, its line, and whether it is marked as JSON.
        let mut open: Option<(usize, usize, bool)> = None;
        let mut at = 0;
        for (line, text) in (self.line..).zip(self.text.split_inclusive('\n')) {
            let next = at + text.len();
            let fence = ['`', '~'].into_iter().find_map(|mark| {
                let rest = text.trim().trim_start_matches(mark);
                (text.trim().len() - rest.len() >= 3).then_some(rest)
            });
            match (fence, open) {
                (Some(""), Some((start, line, is_json))) => {
                    let body = Part { text: &self.text[start..at], line }.trimmed();
                    blocks.push(Block { body, is_json });
                    open = None;
                }
                (Some(info), None) => match info.strip_suffix("```") {
                    Some(text) => {
                        let body = Part { text, line }.trimmed();
                        blocks.push(Block { body, is_json: false });
                    }
                    None => open = Some((next, line + 1, info.trim().eq_ignore_ascii_case("json"))),
                },
                _ => {}
            }
            at = next;
        }
        match open {
            Some((_, line, _)) => Err(format!("an unclosed code block, from line {line}")),
            None => Ok(blocks),
        }
    }

    /// The array that begins a line and ends the text. Without a `]` at the end it is cut off, or something follows
    /// it.
    fn array_at_the_end(self) -> Option<Result<Vec<Value>, String>> {
        let is_closed = self.text.ends_with(']');
        let is_array = |text: &str| {
            let opens = |inner: &str| inner.trim_start().starts_with(['"', '{', '[']);
            begins_like_array(text) && (is_closed || opens(&text[1..]))
        };
        let mut starts = self.text.match_indices("\n[").map(|(at, _)| at + 1);
        let start = starts.find(|at| is_array(&self.text[*at..]))?;
        let array = self.from(start);
        Some(array.parsed())
    }

    fn lines(self) -> Vec<Value> {
        let lines = self.text.lines().map(str::trim_end);
        lines.filter(|line| !line.trim().is_empty()).map(Value::from).collect()
    }
}

struct Block<'a> {
    body: Part<'a>,
    /// Whether the info string is `json`.
    is_json: bool,
}

/// Whether the text begins with a task list item, such as `[x] done`.
fn begins_with_check_box(text: &str) -> bool {
    ["[ ] ", "[x] ", "[X] "].iter().any(|check_box| text.starts_with(check_box))
}

fn begins_with_object(text: &str) -> bool {
    let inner = text.strip_prefix('{').map(str::trim_start);
    inner.is_some_and(|inner| inner.starts_with(['"', '\'', '}']))
}

/// Whether a JSON value follows the `[`, as opposed to a link or a check box.
fn begins_like_array(text: &str) -> bool {
    let inner = text[1..].trim_start();
    let literals = ["true", "false", "null", "NaN", "Infinity"];
    !begins_with_check_box(text)
        && (inner.starts_with(['"', '\'', '{', '[', ']', '-'])
            || inner.starts_with(|first: char| first.is_ascii_digit())
            || literals.iter().any(|literal| inner.starts_with(literal)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &str) {
        let found = elements(text).map(|items| Value::Array(items).to_string());
        assert_eq!(found.unwrap_or_else(|holds| holds), expect, "{text:?}");
    }

    #[test]
    fn arrays_and_lines() {
        check(" [1, \"a\"]\n", r#"[1,"a"]"#);
        check("\u{feff}[1]", "[1]");
        check("a\r\n\n  b\n", r#"["a","  b"]"#);
        check("", "[]");
        check("5", r#"["5"]"#);
        check("[x] done\n[ ] open", r#"["[x] done","[ ] open"]"#);
        check("{name}.txt\nb", r#"["{name}.txt","b"]"#);
        check("{\"a\": 1}\n\n{\"a\": 2}", r#"[{"a":1},{"a":2}]"#);
        check("[\"a\",1]\n[\"b\",2]", r#"[["a",1],["b",2]]"#);
        check("Here they are:\n[\"a\",\n \"b\"]", r#"["a","b"]"#);
        check("Here:\n[1]\n[2]", "[[1],[2]]");
        check("[note](x)\nand\n[\"a\"]", "invalid JSON at line 1, column 3 (expected ident)");
        check("See\n[note](x):\n[\"a\"]", r#"["a"]"#);
        check("a\n[id]", r#"["a","[id]"]"#);
    }

    #[test]
    fn large_integers_keep_their_digits() {
        check("[123456789012345678901, 7]", r#"["123456789012345678901",7]"#);
        check("{\"id\": 123456789012345678901}\n{}", r#"[{"id":"123456789012345678901"},{}]"#);
    }

    #[test]
    fn invalid_json_fails_with_line_and_column() {
        check("[1,2,", "truncated JSON at line 1, column 5");
        check("[\n  \"a\",\n  {\"b\"", "truncated JSON at line 3, column 6");
        check("[NaN, 1]", "invalid JSON at line 1, column 2 (expected value)");
        check("[\n NaN,\n 1\n]", "invalid JSON at line 2, column 2 (expected value)");
        check("\n\n[\"a\",]", "invalid JSON at line 3, column 6 (trailing comma)");
        check("[1e400]", "invalid JSON at line 1, column 6 (number out of range)");
        check("['a']", "invalid JSON at line 1, column 2 (expected value)");
        check("{\"files\": [1]}", "a JSON object");
        check("{\"a\": 1}\n{\"a\": 2,}", "invalid JSON at line 2, column 9 (trailing comma)");
        check("{\"a\": 1,}\n{\"a\": 2}", "invalid JSON at line 1, column 9 (trailing comma)");
        check("{'a': 1}\n{'a': 2}", "invalid JSON at line 1, column 2 (key must be a string)");
        check("{\"a\": 1}\nand more", "invalid JSON at line 2, column 1 (expected value)");
        check("[\"a\"]\n[\"b\"", "truncated JSON at line 2, column 4");
        check("Here:\n[NaN, 1]", "invalid JSON at line 2, column 2 (expected value)");
        check("Files:\n[\"a\", \"b\"", "truncated JSON at line 2, column 9");
        check("Files:\n[\"a\"]\nDone.", "invalid JSON at line 3, column 1 (expected value)");
        check("Notes:\n[1] one", r#"["Notes:","[1] one"]"#);
    }

    #[test]
    fn code_blocks() {
        check("Here:\n```json\n[\"a\"]\n```\nDone.", r#"["a"]"#);
        check("```\n[1]\n```", "[1]");
        check("```[1]```", "[1]");
        check("~~~json\n[\"a\"]\n~~~", r#"["a"]"#);
        check("```json\n[\"use ```x``` here\"]\n```", r#"["use ```x``` here"]"#);
        check("```\n{\"a\": 1}\n{\"a\": 2}\n```", r#"[{"a":1},{"a":2}]"#);
        check("Draft:\n```json\n[1]\n```\nFinal:\n```json\n[2]\n```", "[2]");
        check("```json\n[1]\n```\nwith\n```json\n{\"an\": \"example\"}\n```", "[1]");
        check("The files:\n```text\na\nb\n```", r#"["a","b"]"#);
        check("```json\n[\"a\",]\n```", "invalid JSON at line 2, column 6 (trailing comma)");
        check("```json\na\n```", "invalid JSON at line 2, column 1 (expected value)");
        check(
            "```json\n[1]\n```\nno:\n```json\n[NaN]\n```",
            "invalid JSON at line 6, column 2 (expected value)",
        );
        check("one\n```\ntwo", "an unclosed code block, from line 2");
        check("```\na\n```\n```\nb\n```", "2 code blocks, none of them a JSON array");
    }
}
