use std::borrow::Cow;
use std::io::{self, Read};
use std::sync::Arc;

use fabro_redact::Redactor;
use fabro_sandbox::{FileError, FileKind, Files, ReadFirst};
use fabro_types::Permissions;
use grep_matcher::Matcher;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{
    BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkFinish, SinkMatch,
};
use serde::Deserialize;
use serde_json::json;

use super::walk::{Next, WalkEnd, walk};
use super::{ENOUGH, PATTERN, PathGlob, TIMEOUT_NOTE, compile_glob};
use crate::call::{Stop, spec};
use crate::file_tool::{FileTool, StoppableFile, message};
use crate::limit::push_line;
use crate::tool::{Output, Tool};

/// The default number of matching lines.
const LIMIT: usize = 100;

/// How much of a line is shown, in characters.
const LINE: usize = 500;

/// How much of it stands before the match when the line does not fit, in characters.
const BEFORE: usize = 100;

/// The longest line that is searched, in bytes; files with longer ones are skipped.
const LONGEST_LINE: usize = 16 << 20;

/// How large a compiled pattern may be, in bytes.
const COMPILED: usize = 4 << 20;

#[derive(Deserialize)]
struct Arguments {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    #[serde(default)]
    ignore_case: bool,
    #[serde(default)]
    context: usize,
    limit: Option<usize>,
}

/// The tool `grep`.
pub(crate) fn grep(files: &Arc<dyn Files>) -> Arc<dyn Tool> {
    let description = "Searches the lines of files for a regular expression (Rust syntax, no \
        look-around). Gives the path of each file, below it the matching lines as \
        `number:line`, lines of context as `number-line`; of a long line 500 characters with the \
        match, after the column they begin at. Binary files are passed over, and so is \
        what .gitignore leaves out, unless path names it.";
    let properties = json!({
        "pattern": { "type": "string", "description": "The regular expression." },
        "path": {
            "type": "string",
            "description": "The file or directory to search. Default: the working directory."
        },
        "glob": {
            "type": "string",
            "description": "Only files whose path below `path` matches, such as `*.rs` or `src/**/*.ts`."
        },
        "ignore_case": { "type": "boolean", "description": "Default false." },
        "context": {
            "type": "integer", "minimum": 0, "maximum": 20,
            "description": "How many lines to show before and after each match. Default 0."
        },
        "limit": {
            "type": "integer", "minimum": 1, "maximum": 1_000,
            "description": "How many matching lines to give at most. Default 100."
        }
    });
    let spec = spec("grep", description, &properties, &["pattern"]);
    FileTool::create(files, spec, Permissions::ReadOnly, search)
}

fn search(files: &ReadFirst, arguments: &Arguments, stop: &Stop) -> Result<Output, String> {
    let files = files.inner();
    let mut search = Search {
        matcher: matcher(&arguments.pattern, arguments.ignore_case)?,
        searcher: SearcherBuilder::new()
            .line_number(true)
            .binary_detection(BinaryDetection::quit(0))
            .before_context(arguments.context)
            .after_context(arguments.context)
            .heap_limit(Some(LONGEST_LINE))
            .build(),
        found: Matches {
            text: String::new(),
            left: arguments.limit.unwrap_or(LIMIT),
            redactor: stop.redactor().clone(),
        },
        unreadable: 0,
    };
    let only = arguments.glob.as_deref().map(compile_glob).transpose()?;
    let start = files.info(arguments.path.as_deref().unwrap_or(".")).map_err(message)?;
    if start.kind == FileKind::Directory {
        search.directory(files, &start.path, only.as_ref(), stop).map_err(message)?;
    } else {
        let file = files.open(&start.path).map_err(message)?;
        search.file(&start.path, file, stop);
    }
    Ok(Output::ok(search.text(stop)))
}

/// Compiles the pattern. It is matched in linear time, and cannot grow beyond [`COMPILED`].
fn matcher(pattern: &str, ignore_case: bool) -> Result<RegexMatcher, String> {
    if pattern.len() > PATTERN {
        return Err(format!("the pattern is longer than {PATTERN} bytes: shorten it"));
    }
    RegexMatcherBuilder::new()
        .case_insensitive(ignore_case)
        .line_terminator(Some(b'\n'))
        .size_limit(COMPILED)
        .dfa_size_limit(COMPILED)
        .build(pattern)
        .map_err(|error| format!("the pattern is wrong: {error}"))
}

struct Search {
    matcher: RegexMatcher,
    searcher: Searcher,
    found: Matches,
    /// Files and directories that could not be searched to their end.
    unreadable: usize,
}

impl Search {
    fn directory(
        &mut self,
        files: &dyn Files,
        start: &str,
        only: Option<&PathGlob>,
        stop: &Stop,
    ) -> Result<(), FileError> {
        let end = walk(files, start, stop, |it| {
            if it.is_ignored {
                return Next::Skip;
            }
            if it.kind == FileKind::File && only.is_none_or(|only| only.is_match(it.below)) {
                match files.open(it.path) {
                    Ok(file) => self.file(it.path, file, stop),
                    Err(_) => self.unreadable += 1,
                }
            }
            if self.found.is_full() { Next::End } else { Next::Enter }
        })?;
        if let WalkEnd::Complete { unreadable } = end {
            self.unreadable += unreadable;
        }
        Ok(())
    }

    fn file(&mut self, path: &str, file: Box<dyn Read + Send>, stop: &Stop) {
        let before = self.found.text.len();
        if before > 0 {
            self.found.text.push('\n');
        }
        self.found.text.push_str(path);
        self.found.text.push('\n');
        let mut sink = FileMatches {
            before: self.found.text.len(),
            found: &mut self.found,
            any: false,
            matcher: &self.matcher,
        };
        let searched =
            self.searcher.search_reader(&self.matcher, StoppableFile { file, stop }, &mut sink);
        if !sink.any {
            self.found.text.truncate(before);
        }
        if searched.is_err() && !stop.is_due() {
            self.unreadable += 1;
        }
    }

    fn text(self, stop: &Stop) -> String {
        let mut notes = Vec::new();
        if self.found.is_full() {
            let what = if self.found.left == 0 { "the limit is reached" } else { "this is much" };
            notes.push(format!("[{what}: there may be more. Narrow the search, or raise limit.]"));
        } else if stop.is_due() {
            notes.push(TIMEOUT_NOTE.to_owned());
        }
        if self.unreadable > 0 {
            let count = self.unreadable;
            notes.push(format!("[files and directories that could not be searched: {count}]"));
        }
        let mut text = self.found.text;
        if text.is_empty() {
            text.push_str("no matches\n");
        }
        text += &notes.join("\n");
        text.truncate(text.trim_end().len());
        text
    }
}

/// The matches so far, as they are shown.
struct Matches {
    text: String,
    /// How many more lines may match.
    left: usize,
    /// For lines that are cut.
    redactor: Redactor,
}

impl Matches {
    fn is_full(&self) -> bool {
        self.left == 0 || self.text.len() >= ENOUGH
    }

    /// Shows a line from `start` on, which is in bytes.
    fn push(&mut self, number: Option<u64>, mark: &str, line: &[u8], start: usize) {
        let number = number.map(|number| number.to_string()).unwrap_or_default();
        self.text.extend([&number, mark]);
        if let Cow::Owned(redacted) = self.redactor.redact(&String::from_utf8_lossy(line)) {
            // What is cut there leaves no part of a secret. The match may be behind the end.
            push_line(&mut self.text, redacted.trim_end_matches(['\n', '\r']), LINE);
            self.text.push('\n');
            return;
        }
        if start > 0 {
            let column = String::from_utf8_lossy(&line[..start]).chars().count() + 1;
            self.text.extend([format!("[from column {column}] ")]);
        }
        let line = String::from_utf8_lossy(&line[start..]);
        push_line(&mut self.text, line.trim_end_matches(['\n', '\r']), LINE);
        self.text.push('\n');
    }
}

/// The matches in one file.
struct FileMatches<'a> {
    found: &'a mut Matches,
    matcher: &'a RegexMatcher,
    /// Where the text about this file begins.
    before: usize,
    any: bool,
}

impl Sink for FileMatches<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        if self.found.is_full() {
            return Ok(false);
        }
        self.any = true;
        let start = start_to_show(self.matcher, found.bytes());
        self.found.push(found.line_number(), ":", found.bytes(), start);
        self.found.left -= 1;
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> Result<bool, io::Error> {
        self.found.push(context.line_number(), "-", context.bytes(), 0);
        Ok(self.found.text.len() < ENOUGH)
    }

    fn context_break(&mut self, _: &Searcher) -> Result<bool, io::Error> {
        if self.found.is_full() {
            return Ok(false);
        }
        self.found.text.push_str("--\n");
        Ok(true)
    }

    fn finish(&mut self, _: &Searcher, finish: &SinkFinish) -> Result<(), io::Error> {
        if finish.binary_byte_offset().is_some() {
            // Matches before the first zero byte are binary content too.
            self.found.text.truncate(self.before);
            self.any = false;
        }
        Ok(())
    }
}

/// Where to begin showing a line so that its first match is visible, in bytes.
fn start_to_show(matcher: &RegexMatcher, line: &[u8]) -> usize {
    if line.len() <= LINE {
        return 0;
    }
    let Ok(Some(found)) = matcher.find(line.strip_suffix(b"\n").unwrap_or(line)) else { return 0 };
    let before = String::from_utf8_lossy(&line[..found.start()]);
    if before.chars().count() + BEFORE <= LINE {
        return 0;
    }
    let shown: usize = before.chars().rev().take(BEFORE).map(char::len_utf8).sum();
    found.start().saturating_sub(shown)
}
