//! Splits text into chunks at headings and paragraphs.

use std::path::Path;
use std::sync::Arc;

/// The most characters of a chunk.
pub(crate) const CHUNK_CHARS: usize = 1_200;

/// A part of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) path: Arc<str>,
    /// From 1.
    pub(crate) line: usize,
    /// Without empty lines around it.
    pub(crate) text: String,
}

/// The chunks of a text, in order; together they have everything but empty lines.
pub(crate) fn chunks(path: &str, text: &str) -> Vec<Chunk> {
    let mut splitter = Splitter {
        path: path.into(),
        done: Vec::new(),
        text: String::new(),
        chars: 0,
        line: 1,
        has_body: false,
    };
    let has_headings = Path::new(path).extension().is_some_and(|extension| {
        ["md", "markdown", "mdx", "txt"].iter().any(|known| extension.eq_ignore_ascii_case(known))
    });
    let mut fence: Option<&str> = None;
    let mut paragraph = Paragraph::default();
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        let is_open = fence.is_some();
        if has_headings {
            fence = after_line(fence, line);
        }
        let is_heading = has_headings && !is_open && fence.is_none() && is_heading(line);
        if is_heading {
            splitter.add(std::mem::take(&mut paragraph));
            splitter.close_before_heading();
        }
        paragraph.add(number, line);
        if line.trim().is_empty() && fence.is_none() {
            splitter.add(std::mem::take(&mut paragraph));
        }
    }
    splitter.add(paragraph);
    splitter.close();
    splitter.done
}

/// Lines that belong together, with the empty ones after them.
#[derive(Default)]
struct Paragraph<'a> {
    lines: Vec<(usize, &'a str)>,
    chars: usize,
}

impl<'a> Paragraph<'a> {
    fn add(&mut self, number: usize, line: &'a str) {
        self.lines.push((number, line));
        self.chars += line.chars().count();
    }
}

struct Splitter {
    path: Arc<str>,
    done: Vec<Chunk>,
    /// The current chunk, which begins with a line that is not empty, and its characters.
    text: String,
    chars: usize,
    line: usize,
    /// Whether it has more than headings.
    has_body: bool,
}

impl Splitter {
    /// Adds a paragraph to the current chunk, or to a new one if that has no room.
    fn add(&mut self, paragraph: Paragraph<'_>) {
        if self.chars + paragraph.chars > CHUNK_CHARS {
            self.close();
        }
        for (number, line) in paragraph.lines {
            self.add_line(number, line);
        }
    }

    fn add_line(&mut self, number: usize, line: &str) {
        let mut rest = line;
        loop {
            let room = CHUNK_CHARS - self.chars;
            let Some((end, _)) = rest.char_indices().nth(room) else {
                return self.push(number, rest);
            };
            if self.chars > 0 {
                self.close();
                continue;
            }
            // The line is longer than a chunk: split it between words if possible.
            let blank = rest[..end].rfind(char::is_whitespace).filter(|blank| *blank > 0);
            let (head, tail) = rest.split_at(blank.unwrap_or(end));
            self.push(number, head);
            self.close();
            rest = tail;
        }
    }

    fn push(&mut self, number: usize, text: &str) {
        let is_blank = text.trim().is_empty();
        if self.chars == 0 {
            if is_blank {
                return;
            }
            self.line = number;
        }
        self.has_body |= !is_blank && !is_heading(text);
        self.text.push_str(text);
        self.chars += text.chars().count();
    }

    /// A heading begins a chunk, unless there are only headings before it.
    fn close_before_heading(&mut self) {
        if self.has_body {
            self.close();
        }
    }

    fn close(&mut self) {
        let text = std::mem::take(&mut self.text);
        self.chars = 0;
        self.has_body = false;
        let text = text.trim_end();
        if !text.is_empty() {
            let text = text.to_owned();
            self.done.push(Chunk { path: Arc::clone(&self.path), line: self.line, text });
        }
    }
}

/// Whether a line is a heading of Markdown.
fn is_heading(line: &str) -> bool {
    let title = line.trim_start_matches('#');
    let level = line.len() - title.len();
    (1..=6).contains(&level) && title.starts_with([' ', '\t'])
}

/// The mark of the code fence that is open after a line.
fn after_line<'a>(open: Option<&'a str>, line: &'a str) -> Option<&'a str> {
    let line = line.trim();
    let mark = |c: char| &line[..line.len() - line.trim_start_matches(c).len()];
    match open {
        Some(open) => {
            let closes = line.len() >= open.len() && line.trim_start_matches(&open[..1]).is_empty();
            (!closes).then_some(open)
        }
        None => [mark('`'), mark('~')].into_iter().find(|mark| mark.len() >= 3),
    }
}
