//! Walking directories, names in order, without following links.

use std::vec::IntoIter;

use fabro_sandbox::{Entry, FileError, FileKind, Files};
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::call::Stop;

/// The names of ignore files; the later one wins.
const RULES: [&str; 2] = [".gitignore", ".ignore"];

/// The largest such file that is read, in bytes.
const RULES_BYTES: u64 = 1 << 20;

/// An entry that was found.
pub(super) struct Found<'a> {
    /// Relative to the root.
    pub(super) path: &'a str,
    /// Relative to the start.
    pub(super) below: &'a str,
    pub(super) kind: FileKind,
    /// How deep it is below the start; 1 for what is right there.
    pub(super) depth: usize,
    /// Whether `.gitignore` or `.ignore` exclude it, or it is git's own.
    pub(super) is_ignored: bool,
}

/// What to do next.
#[derive(PartialEq, Eq)]
pub(super) enum Next {
    /// Continue, and enter this if it is a directory.
    Enter,
    /// Continue, but do not enter this.
    Skip,
    /// End the walk.
    End,
}

/// How a walk ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WalkEnd {
    /// Everything was visited, except so many directories that cannot be read.
    Complete { unreadable: usize },
    /// The visitor ended it.
    Enough,
    /// The call was canceled, or had its timeout.
    Timeout,
}

/// Visits everything below a directory, which is given by its resolved path.
pub(super) fn walk(
    files: &dyn Files,
    start: &str,
    stop: &Stop,
    mut visit: impl FnMut(Found<'_>) -> Next,
) -> Result<WalkEnd, FileError> {
    let mut rules = Vec::new();
    let mut above = String::new();
    let parts: Vec<&str> = start.split('/').filter(|part| *part != ".").collect();
    for part in &parts {
        rules.push(rules_of(files, &above));
        above = join(&above, part);
    }
    let mut stack = vec![Frame::new(above, files.list(start)?)];
    rules.push(rules_of(files, &stack[0].path));
    let prefix = join(&stack[0].path, "");
    let mut unreadable = 0;
    while let Some(frame) = stack.last_mut() {
        if stop.is_due() {
            return Ok(WalkEnd::Timeout);
        }
        let Some(entry) = frame.entries.next() else {
            stack.pop();
            rules.pop();
            continue;
        };
        let path = join(&frame.path, &entry.name);
        let is_directory = entry.kind == FileKind::Directory;
        let is_ignored = entry.name == ".git" || is_ignored(&rules, &path, is_directory);
        let depth = stack.len();
        let below = path.strip_prefix(&prefix).unwrap_or(&path);
        match visit(Found { path: &path, below, kind: entry.kind, depth, is_ignored }) {
            Next::Enter if is_directory => match files.list(&path) {
                Ok(entries) => {
                    rules.push(rules_of(files, &path));
                    stack.push(Frame::new(path, entries));
                }
                Err(_) => unreadable += 1,
            },
            Next::Enter | Next::Skip => {}
            Next::End => return Ok(WalkEnd::Enough),
        }
    }
    Ok(WalkEnd::Complete { unreadable })
}

struct Frame {
    /// Empty for the root.
    path: String,
    entries: IntoIter<Entry>,
}

impl Frame {
    fn new(path: String, entries: Vec<Entry>) -> Self {
        Self { path, entries: entries.into_iter() }
    }
}

/// The rules of a directory, for paths from the root.
fn rules_of(files: &dyn Files, directory: &str) -> Option<Gitignore> {
    let mut builder = GitignoreBuilder::new(directory);
    for name in RULES {
        let Ok(text) = files.read(&join(directory, name), RULES_BYTES) else { continue };
        for line in String::from_utf8_lossy(&text).lines() {
            // An invalid pattern matches nothing, as in git.
            let _ = builder.add_line(None, line);
        }
    }
    builder.build().ok().filter(|rules| !rules.is_empty())
}

/// The innermost rule that matches a path wins.
fn is_ignored(rules: &[Option<Gitignore>], path: &str, is_directory: bool) -> bool {
    let mut matches = rules.iter().rev().flatten().map(|rules| rules.matched(path, is_directory));
    matches.find(|found| !found.is_none()).is_some_and(|found| found.is_ignore())
}

fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}
