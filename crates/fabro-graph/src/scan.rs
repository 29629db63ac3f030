//! One linear pass over a file before the grammar: it finds nesting that is too deep for a recursive
//! parser, and errors that the grammar would report far from their cause, and removes comments.

use std::borrow::Cow;

use fabro_types::{Diagnostic, Span};

/// The largest file that is read, in bytes.
pub const MAX_FILE_BYTES: usize = 16 * 1024 * 1024;

/// The deepest nesting of subgraphs.
pub const MAX_NESTING: usize = 128;

/// The most names, values, braces and brackets in a file: each costs memory, hundreds of bytes in all.
pub const MAX_PARTS: usize = 1_000_000;

/// A file without its comments.
pub(crate) struct Scanned<'a> {
    /// The source with spaces in place of its comments, so that spans stay the same.
    pub(crate) code: Cow<'a, str>,
    /// Where the comments are, in file order.
    pub(crate) comments: Vec<Span>,
    /// The first string whose closing quote looks like the opening quote of a later string.
    pub(crate) suspect: Option<Span>,
}

pub(crate) fn scan(source: &str) -> Result<Scanned<'_>, Diagnostic> {
    if source.len() > MAX_FILE_BYTES {
        let message = format!("the file has {} bytes, the limit is 16 MB", source.len());
        return Err(Diagnostic::error("file-too-large", Span::new(0, 0), message)
            .with_fix("move long prompts into files and name them with @path"));
    }
    let mut comments = Vec::new();
    let mut suspect = None;
    match find_comments(source, &mut comments, &mut suspect) {
        Ok(()) => Ok(Scanned { code: without_comments(source, &comments), comments, suspect }),
        Err(error) => Err(suspect.map_or(error, |text| open_string(text.start))),
    }
}

fn find_comments(
    source: &str,
    comments: &mut Vec<Span>,
    suspect: &mut Option<Span>,
) -> Result<(), Diagnostic> {
    let bytes = source.as_bytes();
    let mut depth = 0_usize;
    let mut at = if source.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let mut line_start = true;
    let mut last = b' ';
    let mut parts = 0_usize;
    let mut in_word = false;
    while let Some(&byte) = bytes.get(at) {
        let is_part = byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii();
        if is_part && !in_word || matches!(byte, b'"' | b'{' | b'[') {
            parts += 1;
            if parts > MAX_PARTS {
                return Err(too_large(at));
            }
        }
        in_word = is_part;
        if byte.is_ascii_alphanumeric() {
            // The common case: not the beginning of a comment, string or brace.
            (line_start, last) = (false, byte);
            at += 1;
            continue;
        }
        let end = match byte {
            b'"' => {
                let end = string_end(bytes, at).ok_or_else(|| open_string(at))?;
                if suspect.is_none() && contains_code(&source[at + 1..end - 1]) {
                    *suspect = Some(Span::new(at, end));
                }
                end
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => block_comment_end(source, at)?,
            b'/' if bytes.get(at + 1) == Some(&b'/') => line_end(source, at),
            b'#' if line_start => line_end(source, at),
            b'{' => {
                depth += 1;
                // The braces of the graph itself do not count.
                if depth > MAX_NESTING + 1 {
                    return Err(too_deep(at));
                }
                at + 1
            }
            b'}' => {
                depth = depth.saturating_sub(1);
                at + 1
            }
            b'#' => return Err(hash_inside_line(at)),
            b'<' if last == b'=' => return Err(html_label(at)),
            _ => at + 1,
        };
        let is_comment = byte == b'#' && line_start || byte == b'/' && end > at + 1;
        if is_comment {
            comments.push(Span::new(at, end));
        } else if !byte.is_ascii_whitespace() {
            last = byte;
        }
        line_start = byte == b'\n' || line_start && matches!(byte, b' ' | b'\t');
        at = end;
    }
    Ok(())
}

fn without_comments<'a>(source: &'a str, comments: &[Span]) -> Cow<'a, str> {
    if comments.is_empty() {
        return Cow::Borrowed(source);
    }
    let mut code = String::with_capacity(source.len());
    for comment in comments {
        code.push_str(&source[code.len()..comment.start]);
        code.extend(std::iter::repeat_n(' ', comment.end - comment.start));
    }
    code.push_str(&source[code.len()..]);
    Cow::Owned(code)
}

fn string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Whether the closing quote of a string looks like the opening quote of a later one: the string
/// has several lines and ends like `prompt=`.
fn contains_code(text: &str) -> bool {
    text.trim_end().ends_with('=') && text.contains('\n')
}

pub(crate) fn open_string(start: usize) -> Diagnostic {
    let message = "this string is never closed";
    Diagnostic::error("syntax", Span::new(start, start + 1), message)
        .with_fix("end it with \" and write \\\" for a quote inside it")
}

fn block_comment_end(source: &str, start: usize) -> Result<usize, Diagnostic> {
    match source[start + 2..].find("*/") {
        Some(length) => Ok(start + 2 + length + 2),
        None => Err(Diagnostic::error(
            "syntax",
            Span::new(start, start + 2),
            "this comment is never closed",
        )
        .with_fix("end it with */")),
    }
}

fn line_end(source: &str, start: usize) -> usize {
    source[start..].find('\n').map_or(source.len(), |length| start + length)
}

fn too_large(at: usize) -> Diagnostic {
    let message = format!("the file has more than {MAX_PARTS} names, values, braces and brackets");
    Diagnostic::error("too-large", Span::new(at, at + 1), message)
        .with_fix("move parts into workflows of their own")
}

fn too_deep(at: usize) -> Diagnostic {
    let message = format!("subgraphs are nested more than {MAX_NESTING} deep here");
    Diagnostic::error("nesting-too-deep", Span::new(at, at + 1), message)
        .with_fix("flatten the subgraphs, or move a part into a workflow of its own")
}

fn hash_inside_line(at: usize) -> Diagnostic {
    let message = "a `#` begins a comment only at the start of a line";
    Diagnostic::error("syntax", Span::new(at, at + 1), message)
        .with_fix("write `//` for a comment, or put the value with the `#` in quotes")
}

fn html_label(at: usize) -> Diagnostic {
    let message = "HTML-like labels are not part of the language";
    Diagnostic::error("html-label", Span::new(at, at + 1), message)
        .with_fix("write the label in double quotes")
}
