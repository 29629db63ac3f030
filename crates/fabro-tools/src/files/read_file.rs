use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::ops::Range;
use std::sync::Arc;

use fabro_redact::Redactor;
use fabro_sandbox::{Files, ReadFirst};
use fabro_types::Permissions;
use serde::Deserialize;
use serde_json::json;

use crate::call::{Stop, spec};
use crate::file_tool::{FileTool, StoppableFile, message};
use crate::tool::{Output, Tool};

/// How many lines one call returns by default.
const LINES: u64 = 2_000;

/// How much of a line is shown, in characters.
const LINE: u64 = 2_000;

/// The same for a line that is read from a column on: less than what lines of outputs are cut to.
const PART: u64 = 8_000;

/// After how much text the rest is left for another call, in bytes: less than what outputs are cut
/// to, because a file cut in its middle is of no use.
const ENOUGH: usize = 26_000;

/// The longest part of a line, in bytes: no character has more than four.
const LINE_BYTES: usize = 32_000;

/// How much before and after a part of a line is looked at for secrets, in bytes.
const AROUND: usize = 4_096;

/// How much of a file is checked for whether it is text, in bytes.
const BINARY_CHECK: usize = 8_192;

const CHUNK: usize = 64 * 1024;

#[derive(Deserialize)]
struct Arguments {
    file_path: String,
    offset: Option<u64>,
    limit: Option<u64>,
    column: Option<u64>,
}

/// The tool `read_file`.
pub(super) fn read_file(files: &Arc<dyn Files>) -> Arc<dyn Tool> {
    let description = "Reads a text file of the working directory. Each line is given as its \
        number, a tab, and the line itself. Long files come in parts: the end of the output says \
        with which offset to read on. Lines of more than 2,000 characters are cut: their end says \
        with which offset and column to read on. Images and other binary files cannot be read. A \
        file has to be read before it is changed.";
    let properties = json!({
        "file_path": {
            "type": "string",
            "description": "Path of the file, relative to the working directory or absolute inside of it."
        },
        "offset": {
            "type": "integer", "minimum": 1,
            "description": "Number of the first line to read, from 1. Default 1."
        },
        "limit": {
            "type": "integer", "minimum": 1, "maximum": 20_000,
            "description": "How many lines to read at most. Default 2000."
        },
        "column": {
            "type": "integer", "minimum": 1,
            "description": "From which character on to read the first line, from 1: up to 8,000 characters of it are given then."
        }
    });
    let spec = spec("read_file", description, &properties, &["file_path"]);
    FileTool::create(files, spec, Permissions::ReadOnly, read)
}

fn read(files: &ReadFirst, arguments: &Arguments, stop: &Stop) -> Result<Output, String> {
    let path = &arguments.file_path;
    let file = files.open(path).map_err(message)?;
    let resolved = files.inner().info(path).map_err(message)?.path;
    let mut file = BufReader::with_capacity(CHUNK, StoppableFile { file, stop });
    let failed = |error: io::Error| match error.kind() {
        ErrorKind::TimedOut => {
            format!("reading {path} takes too long: read a part nearer to its start")
        }
        _ => format!("{path}: {error}"),
    };
    let start = file.fill_buf().map_err(failed)?;
    if memchr::memchr(0, &start[..start.len().min(BINARY_CHECK)]).is_some() {
        return Err(format!("{path} is a binary file{}: it cannot be read", binary_kind(path)));
    }
    let redactor = stop.redactor();
    let mut lines = NumberedLines { file, number: 1, text: String::new(), redactor };
    let first = arguments.offset.unwrap_or(1);
    let end = first.saturating_add(arguments.limit.unwrap_or(LINES));
    let mut has_more = true;
    while has_more && lines.number < end && lines.text.len() < ENOUGH {
        let column = arguments.column.filter(|column| *column > 0 && lines.number == first);
        let shown = column.map_or(0..LINE, |column| column - 1..(column - 1).saturating_add(PART));
        has_more = if lines.number < first { lines.skip_line() } else { lines.read_line(&shown) }
            .map_err(failed)?;
    }
    if has_more && !lines.file.fill_buf().map_err(failed)?.is_empty() {
        let next = lines.number;
        lines.text.extend([format!("[more lines follow: continue with offset {next}]")]);
    } else if lines.text.is_empty() {
        return match lines.number - 1 {
            0 => Ok(Output { files_read: vec![resolved], ..Output::ok("[the file is empty]") }),
            count => Err(format!("{path} has only {count} lines: choose a smaller offset")),
        };
    }
    Ok(Output { files_read: vec![resolved], ..Output::ok(lines.text) })
}

/// The lines of a file, as they are shown.
struct NumberedLines<'a> {
    file: BufReader<StoppableFile<'a>>,
    /// Of the next line.
    number: u64,
    text: String,
    /// For lines that are cut.
    redactor: &'a Redactor,
}

impl NumberedLines<'_> {
    /// Skips a line; false at the end of the file.
    fn skip_line(&mut self) -> io::Result<bool> {
        let skipped = self.file.skip_until(b'\n')?;
        self.number += u64::from(skipped > 0);
        Ok(skipped > 0)
    }

    /// Shows these characters of the next line; false at the end of the file. The line is read in
    /// pieces, for it may be of any length.
    fn read_line(&mut self, shown: &Range<u64>) -> io::Result<bool> {
        let mut line = Vec::new();
        // What stands before and after it, for secrets that are cut through.
        let mut around = [Vec::new(), Vec::new()];
        let mut chars = 0;
        let mut last = None;
        loop {
            let buffer = self.file.fill_buf()?;
            let end = memchr::memchr(b'\n', buffer);
            let piece = &buffer[..end.unwrap_or(buffer.len())];
            for &byte in piece {
                chars += u64::from(begins_char(byte));
                let is_shown = chars <= shown.end && (chars > shown.start || shown.start == 0);
                if is_shown && line.len() < LINE_BYTES {
                    line.push(byte);
                } else if chars <= shown.end {
                    around[0].push(byte);
                } else if around[1].len() < AROUND {
                    around[1].push(byte);
                }
                if around[0].len() >= 2 * AROUND {
                    around[0].drain(..AROUND);
                }
            }
            last = piece.last().copied().or(last);
            let is_end_of_file = buffer.is_empty();
            let count = piece.len() + usize::from(end.is_some());
            self.file.consume(count);
            if is_end_of_file && last.is_none() {
                return Ok(false);
            }
            if end.is_some() || is_end_of_file {
                break;
            }
        }
        let chars = chars - u64::from(last == Some(b'\r'));
        match self.redacted(&line, &around) {
            Some(redacted) => self.show_line(redacted.as_bytes(), chars, shown),
            None => self.show_line(&line, chars, shown),
        }
        Ok(true)
    }

    /// A part of a line together with what is around it, when there is a secret that the part begins or ends in.
    fn redacted(&self, line: &[u8], [before, after]: &[Vec<u8>; 2]) -> Option<String> {
        if before.is_empty() && after.is_empty() {
            return None;
        }
        let whole = [before, line, after].concat();
        match self.redactor.redact(&String::from_utf8_lossy(&whole)) {
            Cow::Borrowed(_) => None,
            Cow::Owned(redacted) => Some(redacted),
        }
    }

    fn show_line(&mut self, line: &[u8], chars: u64, shown: &Range<u64>) {
        let number = self.number;
        let more = chars.saturating_sub(shown.end);
        let line = String::from_utf8_lossy(line);
        let line = if more == 0 { line.strip_suffix('\r').unwrap_or(&line) } else { &line };
        self.text.extend([format!("{number:>6}\t{line}")]);
        if more > 0 {
            let column = shown.end + 1;
            self.text.extend([format!(
                " [… {more} more characters: read on with offset {number}, column {column}]"
            )]);
        } else if shown.start > 0 && chars <= shown.start {
            self.text.extend([format!("[the line has only {chars} characters]")]);
        }
        self.text.push('\n');
        self.number += 1;
    }
}

/// Whether a byte of UTF-8 is the first one of a character.
fn begins_char(byte: u8) -> bool {
    byte & 0xc0 != 0x80
}

/// The kind of a binary file, by its extension.
fn binary_kind(path: &str) -> &'static str {
    let extension = path.rsplit_once('.').map(|(_, end)| end.to_ascii_lowercase());
    match extension.as_deref().unwrap_or_default() {
        "png" | "jpg" | "jpeg" | "gif" | "webp" | "bmp" | "ico" | "tif" | "tiff" => " (an image)",
        "pdf" => " (a PDF)",
        "zip" | "gz" | "xz" | "bz2" | "zst" | "tar" | "7z" => " (an archive)",
        _ => "",
    }
}
