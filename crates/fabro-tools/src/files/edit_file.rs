use std::sync::Arc;

use fabro_sandbox::{Files, ReadFirst};
use fabro_types::Permissions;
use memchr::memmem;
use serde::Deserialize;
use serde_json::json;

use crate::call::{Stop, spec};
use crate::file_tool::{FileTool, message, read_to_change};
use crate::tool::{Output, Tool};

/// How many lines an error names.
const NAMED: usize = 10;

#[derive(Deserialize)]
struct Arguments {
    file_path: String,
    old_string: String,
    new_string: String,
    #[serde(default)]
    replace_all: bool,
}

/// The tool `edit_file`.
pub(super) fn edit_file(files: &Arc<dyn Files>) -> Arc<dyn Tool> {
    let description = "Replaces a piece of a text file of the working directory. old_string has \
        to be in the file exactly as given, blanks and line ends included, and only once: take \
        in lines before and after it until it is unique, or set replace_all. The line numbers \
        that read_file shows are no part of the file. The file has to be read first. To make a \
        file use write_file.";
    let properties = json!({
        "file_path": {
            "type": "string",
            "description": "Path of the file, relative to the working directory or absolute inside of it."
        },
        "old_string": { "type": "string", "description": "The text to replace." },
        "new_string": { "type": "string", "description": "What takes its place; empty to remove it." },
        "replace_all": {
            "type": "boolean",
            "description": "Whether to replace every occurrence. Default false."
        }
    });
    let required = ["file_path", "old_string", "new_string"];
    let spec = spec("edit_file", description, &properties, &required);
    FileTool::create(files, spec, Permissions::ReadWrite, edit)
}

fn edit(files: &ReadFirst, arguments: &Arguments, _: &Stop) -> Result<Output, String> {
    let Arguments { file_path, old_string, new_string, replace_all } = arguments;
    let (path, text) = read_to_change(files, file_path)?;
    let edited = replaced(&text, old_string, new_string, *replace_all)
        .map_err(|problem| format!("{path}: {problem}"))?;
    files.write(file_path, edited.text.as_bytes()).map_err(message)?;
    let text = match edited.lines.as_slice() {
        [line] => format!("replaced 1 occurrence in {path}, at line {line}"),
        lines => format!("replaced {} occurrences in {path}, {}", lines.len(), at(lines)),
    };
    Ok(Output { files_modified: vec![path], ..Output::ok(text) })
}

struct Edited {
    text: String,
    /// The lines where something was replaced.
    lines: Vec<usize>,
}

fn replaced(text: &str, old: &str, new: &str, all: bool) -> Result<Edited, String> {
    if old.is_empty() {
        return Err("old_string is empty: give the text to replace, or use write_file".to_owned());
    }
    if old == new {
        return Err("old_string and new_string are the same: there is nothing to do".to_owned());
    }
    // A model sees, and writes, plain line ends.
    let crlf = text.contains("\r\n") && !old.contains('\r') && !text.contains(old);
    if crlf && old.contains('\n') {
        return replaced(text, &with_crlf(old), &with_crlf(new), all);
    }
    let new = if text.contains("\r\n") && !new.contains('\r') && !has_bare_line_end(text) {
        with_crlf(new)
    } else {
        new.to_owned()
    };
    let mut found: Vec<_> = memmem::find_iter(text.as_bytes(), old).collect();
    if let ([first], false) = (&found[..], all) {
        let first = *first;
        // Another one that begins within the first: which is meant cannot be known.
        let rest = &text.as_bytes()[first + 1..];
        found.extend(memmem::find(rest, old.as_bytes()).map(|at| first + 1 + at));
    }
    let lines = line_numbers(text, &found);
    match found.len() {
        0 => Err(not_found(text, old)),
        1 => Ok(Edited { text: text.replacen(old, &new, 1), lines }),
        _ if all => {
            let text = text.replace(old, &new);
            Ok(Edited { text, lines })
        }
        count => Err(format!(
            "old_string occurs {count} times, {}: add lines around the one you mean, or set replace_all",
            at(&lines)
        )),
    }
}

fn with_crlf(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\n', "\r\n")
}

fn has_bare_line_end(text: &str) -> bool {
    let bytes = text.as_bytes();
    memchr::memchr_iter(b'\n', bytes).any(|end| end == 0 || bytes[end - 1] != b'\r')
}

/// The numbers of the lines, from 1, that these offsets are in. The offsets are in order.
fn line_numbers(text: &str, offsets: &[usize]) -> Vec<usize> {
    let mut line = 1;
    let mut from = 0;
    let numbers = offsets.iter().map(|&offset| {
        line += memchr::memchr_iter(b'\n', &text.as_bytes()[from..offset]).count();
        from = offset;
        line
    });
    numbers.collect()
}

fn at(lines: &[usize]) -> String {
    let named: Vec<_> = lines.iter().take(NAMED).map(usize::to_string).collect();
    let more = if lines.len() > NAMED { ", …" } else { "" };
    format!("at lines {}{more}", named.join(", "))
}

fn not_found(text: &str, old: &str) -> String {
    let wanted = old.lines().map(str::trim).find(|line| !line.is_empty());
    let near = text.lines().enumerate().filter(|(_, line)| Some(line.trim()) == wanted);
    let near: Vec<_> = near.map(|(index, _)| index + 1).take(NAMED).collect();
    if near.is_empty() {
        return "old_string was not found: read the file again, and copy the text exactly"
            .to_owned();
    }
    format!(
        "old_string was not found; its first line is, {}, so what follows or the whitespace differs: \
         read that part again, and copy the text exactly",
        at(&near)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, old: &str, new: &str, expected: &str) {
        let shown = match replaced(text, old, new, false) {
            Ok(edited) => format!("{:?} {:?}", edited.text, edited.lines),
            Err(problem) => problem,
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn exact_and_unique() {
        check("a\nb\nc", "b", "B", r#""a\nB\nc" [2]"#);
        check("a\nb\nc", "b\n", "", r#""a\nc" [2]"#);
        check("äöü", "ö", "oe", r#""äoeü" [1]"#);
        check("a", "a", "a", "old_string and new_string are the same: there is nothing to do");
        check("a", "", "a", "old_string is empty: give the text to replace, or use write_file");
        check(
            "a\nb\na a",
            "a",
            "x",
            "old_string occurs 3 times, at lines 1, 3, 3: add lines around the one you mean, or set replace_all",
        );
        check(
            "a\na\na",
            "a\na",
            "x",
            "old_string occurs 2 times, at lines 1, 2: add lines around the one you mean, or set replace_all",
        );
        check(
            "a",
            "b",
            "x",
            "old_string was not found: read the file again, and copy the text exactly",
        );
        check(
            "{\n    a\n    b\n}",
            "  a\n  b",
            "x",
            "old_string was not found; its first line is, at lines 2, so what follows or the whitespace differs: read that part again, and copy the text exactly",
        );
    }

    #[test]
    fn line_ends_stay_what_they_are() {
        check("a\r\nb\r\nc\r\n", "a\nb", "x\ny", r#""x\r\ny\r\nc\r\n" [1]"#);
        check("a\r\nb\r\n", "b", "x\ny", r#""a\r\nx\r\ny\r\n" [2]"#);
        check("a\r\nb\r\n", "a\r\nb", "x", r#""x\r\n" [1]"#);
        check("a\r\nb\nc\n", "b\nc", "x\ny", r#""a\r\nx\ny\n" [2]"#);
    }

    #[test]
    fn all_of_them() {
        let edited = replaced("a b a\na", "a", "ab", true).unwrap();
        assert_eq!((edited.text.as_str(), edited.lines), ("ab b ab\nab", vec![1, 1, 2]));
        let text = "x\n".repeat(100_000);
        assert_eq!(replaced(&text, "x", "yy", true).unwrap().text.len(), 300_000);
        let overlapping = "a".repeat(100_000);
        assert!(replaced(&overlapping, &"a".repeat(50_001), "", false).is_err());
    }
}
