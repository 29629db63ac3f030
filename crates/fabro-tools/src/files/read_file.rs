use std::fmt::Write;
use std::io::Read;
use std::sync::Arc;

use async_trait::async_trait;
use fabro_llm::ToolSpec;
use fabro_sandbox::{FindFiles, ReadFiles};
use fabro_types::Permissions;
use serde::Deserialize;
use serde_json::json;

use super::{SeenFiles, output, said};
use crate::call::{Stop, arguments, blocking, canceled, spec};
use crate::limit::push_line;
use crate::{Call, Output, Tool};

/// How many lines one call gives unless it is told otherwise.
const LINES: u64 = 2_000;

/// How much of a line is shown, in characters.
const LINE: usize = 2_000;

/// After how much text the rest is left for another call, in bytes: less than what outputs are cut
/// to, because a file cut in its middle is of no use.
const ENOUGH: usize = 26_000;

/// How much of a file is looked at to see whether it is text, in bytes.
const LOOKED_AT: usize = 8_192;

const CHUNK: usize = 64 * 1024;

/// `read_file`
pub(super) struct ReadFile {
    spec: ToolSpec,
    files: Arc<SeenFiles>,
}

#[derive(Deserialize)]
struct Arguments {
    file_path: String,
    #[serde(default = "first")]
    offset: u64,
    #[serde(default = "all")]
    limit: u64,
}

fn first() -> u64 {
    1
}

fn all() -> u64 {
    LINES
}

impl ReadFile {
    pub(super) fn new(files: Arc<SeenFiles>) -> Self {
        let description = "Reads a text file of the working directory. Each line is given as its \
            number, a tab, and the line itself. Long files come in parts: the end of the output says \
            with which offset to read on. Lines of more than 2,000 characters are cut. Images and \
            other binary files cannot be read. A file has to be read before it is changed.";
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
            }
        });
        Self { spec: spec("read_file", description, &properties, &["file_path"]), files }
    }
}

#[async_trait]
impl Tool for ReadFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn needs(&self) -> Permissions {
        Permissions::ReadOnly
    }

    async fn call(&self, call: Call<'_>) -> Output {
        let arguments: Arguments = match arguments(&call) {
            Ok(arguments) => arguments,
            Err(output) => return output,
        };
        let files = Arc::clone(&self.files);
        blocking(call.cancel, move |stop| output(read(&files, &arguments, stop))).await
    }
}

fn read(files: &SeenFiles, arguments: &Arguments, stop: &Stop) -> Result<Output, String> {
    let path = &arguments.file_path;
    let mut file = files.open(path).map_err(said)?;
    let shown = files.info(path).map_err(said)?.path;
    let mut lines = Lines {
        text: String::new(),
        line: Vec::new(),
        number: 1,
        first: arguments.offset,
        end: arguments.offset.saturating_add(arguments.limit),
    };
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
    /// The start of the line at hand.
    line: Vec<u8>,
    /// Its number.
    number: u64,
    first: u64,
    /// The number of the line after the last one.
    end: u64,
}

impl Lines {
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
        self.add(bytes);
        !self.line.is_empty()
    }

    fn is_full(&self) -> bool {
        self.number >= self.end || self.text.len() >= ENOUGH
    }

    fn add(&mut self, bytes: &[u8]) {
        // A character has up to four bytes, and whether one is missing has to be seen.
        let room = (4 * LINE + 4).saturating_sub(self.line.len());
        self.line.extend_from_slice(&bytes[..room.min(bytes.len())]);
    }

    fn end_line(&mut self) {
        if self.number >= self.first {
            let line = String::from_utf8_lossy(&self.line);
            let line = line.strip_suffix('\r').unwrap_or(&line);
            // Writing to a string cannot fail.
            let _ = write!(self.text, "{:>6}\t", self.number);
            push_line(&mut self.text, line, LINE);
            self.text.push('\n');
        }
        self.number += 1;
        self.line.clear();
    }

    fn finish(mut self, path: &str) -> Result<String, String> {
        let more = self.is_full() && !self.line.is_empty();
        if !more && !self.line.is_empty() {
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
