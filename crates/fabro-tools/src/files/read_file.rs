use fabro_sandbox::{FindFiles, ReadFiles};
use fabro_types::Permissions;
use serde::Deserialize;
use serde_json::json;
use std::fmt::Write;
use std::io::Read;
use std::ops::Range;

use super::{FileTool, SeenFiles, said};
use crate::Output;
use crate::call::{Stop, canceled, spec};

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

/// How much of a file is looked at to see whether it is text, in bytes.
const LOOKED_AT: usize = 8_192;

const CHUNK: usize = 64 * 1024;

#[derive(Deserialize)]
pub(crate) struct Arguments {
    file_path: String,
    #[serde(default = "first")]
    offset: u64,
    #[serde(default = "all")]
    limit: u64,
    column: Option<u64>,
}

fn first() -> u64 {
    1
}

fn all() -> u64 {
    LINES
}

/// The tool `read_file`.
pub(super) fn read_file() -> FileTool<Arguments> {
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
    FileTool {
        spec: spec("read_file", description, &properties, &["file_path"]),
        needs: Permissions::ReadOnly,
        run: read,
    }
}

fn read(files: &SeenFiles, arguments: &Arguments, stop: &Stop) -> Result<Output, String> {
    let path = &arguments.file_path;
    let mut file = files.open(path).map_err(said)?;
    let shown = files.info(path).map_err(said)?.path;
    let mut lines = Lines::new(arguments);
    let mut chunk = vec![0; CHUNK];
    let mut looked_at = 0;
    loop {
        if stop.is_canceled() {
            return Ok(canceled());
        }
        if stop.is_due() {
            return Err(format!("reading {path} takes too long: read a part nearer to its start"));
        }
        let count = match file.read(&mut chunk) {
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(format!("{path}: {error}")),
        };
        let bytes = &chunk[..count];
        let looked = &bytes[..count.min(LOOKED_AT.saturating_sub(looked_at))];
        if memchr::memchr(0, looked).is_some() {
            return Err(format!("{path} is a binary file{}: it cannot be read", what(path)));
        }
        looked_at += looked.len();
        if count == 0 || lines.take(bytes) {
            break;
        }
    }
    let text = lines.finish(path)?;
    Ok(Output { files_read: vec![shown], ..Output::ok(text) })
}

/// The lines asked for, out of what comes.
struct Lines {
    text: String,
    /// The part to show of the line at hand.
    line: Vec<u8>,
    /// How many characters the line at hand has so far.
    chars: u64,
    /// The last byte of the line at hand; `None` before there is any.
    last: Option<u8>,
    /// Its number.
    number: u64,
    first: u64,
    /// The number of the line after the last one.
    end: u64,
    /// Which characters are shown of the first line when not those from its start.
    part: Option<Range<u64>>,
}

impl Lines {
    fn new(arguments: &Arguments) -> Self {
        let part = |column: u64| column - 1..(column - 1).saturating_add(PART);
        Self {
            text: String::new(),
            line: Vec::new(),
            chars: 0,
            last: None,
            number: 1,
            first: arguments.offset,
            end: arguments.offset.saturating_add(arguments.limit),
            part: arguments.column.filter(|column| *column > 0).map(part),
        }
    }

    /// Takes a piece of the file. Whether no more is needed.
    fn take(&mut self, mut bytes: &[u8]) -> bool {
        while !self.is_full() {
            let Some(end) = memchr::memchr(b'\n', bytes) else {
                self.add(bytes);
                return false;
            };
            self.add(&bytes[..end]);
            self.end_line();
            bytes = &bytes[end + 1..];
        }
        // Whether there is more is seen from a line that has begun.
        self.last = self.last.or(bytes.first().copied());
        self.last.is_some()
    }

    fn is_full(&self) -> bool {
        self.number >= self.end || self.text.len() >= ENOUGH
    }

    /// The characters that are shown of the line at hand.
    fn shown(&self) -> Range<u64> {
        let part = self.part.clone().filter(|_| self.number == self.first);
        part.unwrap_or(0..LINE)
    }

    fn add(&mut self, bytes: &[u8]) {
        self.last = bytes.last().copied().or(self.last);
        if self.number < self.first {
            return;
        }
        let shown = self.shown();
        let mut rest = bytes;
        while let Some((&byte, after)) = rest.split_first() {
            if begins_char(byte) {
                if self.chars >= shown.end {
                    break;
                }
                self.chars += 1;
            }
            if (self.chars > shown.start || shown.start == 0) && self.line.len() < LINE_BYTES {
                self.line.push(byte);
            }
            rest = after;
        }
        self.chars += rest.iter().filter(|byte| begins_char(**byte)).count() as u64;
    }

    fn end_line(&mut self) {
        if self.number >= self.first {
            self.show_line();
        }
        self.number += 1;
        self.line.clear();
        self.chars = 0;
        self.last = None;
    }

    fn show_line(&mut self) {
        let shown = self.shown();
        let all = self.chars - u64::from(self.last == Some(b'\r'));
        let more = all.saturating_sub(shown.end);
        let line = String::from_utf8_lossy(&self.line);
        let line = if more == 0 { line.strip_suffix('\r').unwrap_or(&line) } else { &line };
        // Writing to a string cannot fail.
        let _ = write!(self.text, "{:>6}\t{line}", self.number);
        if more > 0 {
            let number = self.number;
            let column = shown.end + 1;
            let _ = write!(
                self.text,
                " [… {more} more characters: read on with offset {number}, column {column}]"
            );
        } else if shown.start > 0 && all <= shown.start {
            let _ = write!(self.text, "[the line has only {all} characters]");
        }
        self.text.push('\n');
    }

    fn finish(mut self, path: &str) -> Result<String, String> {
        let more = self.is_full() && self.last.is_some();
        if !more && self.last.is_some() {
            self.end_line();
        }
        if more {
            let next = self.number;
            let _ = write!(self.text, "[the file goes on: read on with offset {next}]");
        } else if self.text.is_empty() {
            return match self.number - 1 {
                0 => Ok("[the file is empty]".to_owned()),
                count => Err(format!("{path} has only {count} lines: choose a smaller offset")),
            };
        }
        Ok(self.text)
    }
}

/// Whether a byte of UTF-8 is the first one of a character.
fn begins_char(byte: u8) -> bool {
    byte & 0xc0 != 0x80
}

/// What kind of binary file a name speaks of.
fn what(path: &str) -> &'static str {
    let extension = path.rsplit_once('.').map(|(_, end)| end.to_ascii_lowercase());
    match extension.as_deref().unwrap_or_default() {
        "png" | "jpg" | "jpeg" | "gif" | "webp" | "bmp" | "ico" | "tif" | "tiff" => " (an image)",
        "pdf" => " (a PDF)",
        "zip" | "gz" | "xz" | "bz2" | "zst" | "tar" | "7z" => " (an archive)",
        _ => "",
    }
}
