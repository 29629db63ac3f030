use std::iter::Peekable;
use std::str::Lines;

/// A patch for `apply_patch`, as a model wrote it.
///
/// ```
/// use fabro_tools::{Change, Patch};
///
/// let patch = Patch::parse("\
/// *** Begin Patch
/// *** Update File: src/main.rs
/// @@ fn main() {
/// -    println!(\"hello\");
/// +    println!(\"goodbye\");
///  }
/// *** Delete File: notes.md
/// *** End Patch")?;
/// assert!(matches!(&patch.changes[1], Change::Delete { path } if path == "notes.md"));
/// # Ok::<(), fabro_tools::PatchError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// In the order they are written; at least one.
    pub changes: Vec<Change>,
}

/// What a patch does to one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A new file.
    Add {
        /// Its path.
        path: String,
        /// Its lines, without their ends.
        lines: Vec<String>,
    },
    /// A deleted file.
    Delete {
        /// Its path.
        path: String,
    },
    /// A file that is changed, moved, or both.
    Update {
        /// Its path.
        path: String,
        /// Its new path, if it is moved.
        to: Option<String>,
        /// What changes, in the order of the file.
        hunks: Vec<Hunk>,
    },
}

/// A change at one location of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hunk {
    /// Lines somewhere before the changed lines, each after the one before: those after `@@`.
    pub headers: Vec<String>,
    /// The lines of context, and the removed and added lines.
    pub lines: Vec<Line>,
    /// Whether the hunk is at the end of the file.
    pub at_end: bool,
}

/// A line of a hunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// It stays.
    Context(String),
    /// It is removed.
    Remove(String),
    /// It is added.
    Add(String),
}

/// A text that is not a patch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the patch: {problem}")]
pub struct PatchError {
    /// Where, from 1.
    pub line: usize,
    /// What is wrong, and what to do.
    pub problem: &'static str,
}

const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const ADD: &str = "*** Add File:";
const DELETE: &str = "*** Delete File:";
const UPDATE: &str = "*** Update File:";
const MOVE: &str = "*** Move to:";
const END_OF_FILE: &str = "*** End of File";

impl Patch {
    /// Parses a patch. Text around `*** Begin Patch` and `*** End Patch` is ignored if it is whitespace
    /// or the here-document that some models wrap a patch in.
    ///
    /// # Errors
    ///
    /// The first line that does not fit.
    pub fn parse(text: &str) -> Result<Self, PatchError> {
        let mut reader = Reader { lines: text.lines().peekable(), number: 0 };
        reader.begin()?;
        let mut changes = Vec::new();
        loop {
            let Some(line) = reader.next() else {
                return Err(reader.error("it breaks off: end it with `*** End Patch`"));
            };
            let line = line.trim();
            if line == END {
                break;
            }
            if let Some(path) = line.strip_prefix(ADD) {
                let path = reader.path(path)?;
                changes.push(Change::Add { path, lines: reader.added()? });
            } else if let Some(path) = line.strip_prefix(DELETE) {
                changes.push(Change::Delete { path: reader.path(path)? });
            } else if let Some(path) = line.strip_prefix(UPDATE) {
                changes.push(reader.update(path)?);
            } else if !line.is_empty() {
                return Err(reader.error(
                    "`*** Add File: `, `*** Delete File: `, `*** Update File: ` or `*** End Patch` \
                     is expected here",
                ));
            }
        }
        if changes.is_empty() {
            return Err(reader.error("the patch changes nothing: add a file section"));
        }
        reader.rest()?;
        Ok(Self { changes })
    }
}

struct Reader<'a> {
    lines: Peekable<Lines<'a>>,
    /// Of the line read last.
    number: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let line = self.lines.next()?;
        self.number += 1;
        Some(line)
    }

    fn next_if(&mut self, wanted: impl Fn(&str) -> bool) -> Option<&'a str> {
        let line = self.lines.next_if(|line| wanted(line))?;
        self.number += 1;
        Some(line)
    }

    fn error(&self, problem: &'static str) -> PatchError {
        PatchError { line: self.number.max(1), problem }
    }

    fn begin(&mut self) -> Result<(), PatchError> {
        while let Some(line) = self.next() {
            let line = line.trim();
            if line == BEGIN {
                return Ok(());
            }
            if !line.is_empty() && !line.contains("<<") {
                break;
            }
        }
        Err(self.error("a patch begins with `*** Begin Patch`"))
    }

    /// Only the end of a here-document may follow: a second patch would be ignored.
    fn rest(&mut self) -> Result<(), PatchError> {
        while let Some(line) = self.next() {
            if line.trim_start().starts_with("***") {
                return Err(
                    self.error("nothing may follow `*** End Patch`: put it all into one patch")
                );
            }
        }
        Ok(())
    }

    fn path(&self, path: &str) -> Result<String, PatchError> {
        match path.trim() {
            "" => Err(self.error("a path is missing")),
            path => Ok(path.to_owned()),
        }
    }

    fn added(&mut self) -> Result<Vec<String>, PatchError> {
        let mut lines = Vec::new();
        while let Some(line) = self.next_if(|line| !is_marker(line)) {
            match line.strip_prefix('+') {
                Some(line) => lines.push(line.to_owned()),
                // Between two sections.
                None if line.trim().is_empty() => {}
                None => return Err(self.error("each line of a new file begins with `+`")),
            }
        }
        Ok(lines)
    }

    fn update(&mut self, path: &str) -> Result<Change, PatchError> {
        let path = self.path(path)?;
        let to = match self.next_if(|line| line.trim_start().starts_with(MOVE)) {
            Some(line) => Some(self.path(&line.trim_start()[MOVE.len()..])?),
            None => None,
        };
        let mut hunks = Vec::new();
        while self.lines.peek().is_some_and(|line| !is_marker(line)) {
            let hunk = self.hunk()?;
            if !hunk.lines.is_empty() {
                hunks.push(hunk);
            } else if !hunk.headers.is_empty() {
                return Err(self.error("a hunk has no lines: add ` `, `-` or `+` lines below `@@`"));
            }
        }
        if hunks.is_empty() && to.is_none() {
            return Err(self.error("the file is not changed: add a hunk with `-` and `+` lines"));
        }
        Ok(Change::Update { path, to, hunks })
    }

    fn hunk(&mut self) -> Result<Hunk, PatchError> {
        let mut hunk = Hunk::default();
        let mut is_begun = false;
        while let Some(line) = self.next_if(|line| line.starts_with("@@")) {
            is_begun = true;
            hunk.headers.extend(header(line).map(str::to_owned));
        }
        while let Some(line) = self.next_if(|line| !is_marker(line) && !line.starts_with("@@")) {
            is_begun = true;
            hunk.lines.push(self.line(line)?);
        }
        // An empty line before the next section or hunk is a separator.
        if self.lines.peek().is_some_and(|line| !is_end_of_file(line)) {
            while hunk.lines.last().is_some_and(|line| *line == Line::Context(String::new())) {
                hunk.lines.pop();
            }
        }
        if is_begun && self.next_if(is_end_of_file).is_some() {
            hunk.at_end = true;
        }
        Ok(hunk)
    }

    fn line(&self, line: &str) -> Result<Line, PatchError> {
        let rest = |line: &str| line[1..].to_owned();
        match line.as_bytes().first() {
            // Many models omit the space of an empty line of context.
            None => Ok(Line::Context(String::new())),
            Some(b' ') => Ok(Line::Context(rest(line))),
            Some(b'-') => Ok(Line::Remove(rest(line))),
            Some(b'+') => Ok(Line::Add(rest(line))),
            Some(_) => Err(self.error(
                "a line of a hunk begins with a space (unchanged), `-` (removed) or `+` (added)",
            )),
        }
    }
}

/// Whether a line ends the section before. No line of a hunk or a new file begins like this.
fn is_marker(line: &str) -> bool {
    line.starts_with("*** ")
}

fn is_end_of_file(line: &str) -> bool {
    line.trim_end() == END_OF_FILE
}

/// The text after `@@`; ranges of lines, as `diff` writes them, are ignored.
fn header(line: &str) -> Option<&str> {
    let mut header = line.trim_start_matches('@').trim();
    if header.starts_with('-') && header.contains(" +") {
        header = header.split_once("@@").map_or("", |(_, after)| after.trim());
    }
    (!header.is_empty()).then_some(header)
}
