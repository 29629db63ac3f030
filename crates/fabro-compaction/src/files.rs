use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::sections::{Section, parts};

/// The files that were used in a conversation, as its tools know them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// Files that were read.
    pub read: BTreeSet<String>,
    /// Files that were written, changed or removed.
    pub modified: BTreeSet<String>,
}

/// The most files that a summary lists.
const MOST_FILES: usize = 1_000;

impl Files {
    /// Adds those of another list.
    pub fn merge(&mut self, other: Self) {
        self.read.extend(other.read);
        self.modified.extend(other.modified);
    }

    /// How many files there are; one that was read and modified counts once.
    pub fn count(&self) -> usize {
        self.modified.union(&self.read).count()
    }

    /// The section File Operations: a heading and a line for each file, in at most `max_chars`
    /// characters, modified files first. The number of omitted files is noted. Empty when
    /// there are no files.
    pub fn block(&self, max_chars: usize) -> String {
        if self.count() == 0 {
            return String::new();
        }
        let mut text = format!("## {}\n", Section::FileOperations.title());
        let only_read: BTreeSet<_> = self.read.difference(&self.modified).cloned().collect();
        let mut room = Room { chars: max_chars.saturating_sub(text.len() + 64), files: MOST_FILES };
        let omitted = list(MODIFIED, &self.modified, &mut room, &mut text)
            + list(READ, &only_read, &mut room, &mut text);
        if omitted > 0 {
            let _ = writeln!(text, "({omitted} more files are not listed)");
        }
        text.truncate(text.trim_end().len());
        text
    }

    /// The files that the section File Operations of an earlier summary lists; only the last one
    /// counts, because that is the one that was added here.
    pub fn parse(summary: &str) -> Self {
        let mut files = Self::default();
        let parts = parts(summary);
        let ours =
            |part: &&crate::sections::Part<'_>| part.section == Some(Section::FileOperations);
        let Some(part) = parts.iter().rfind(ours) else { return files };
        let mut into = None;
        for line in part.body.lines() {
            match line {
                MODIFIED => into = Some(&mut files.modified),
                READ => into = Some(&mut files.read),
                _ => {
                    if let (Some(into), Some(name)) = (&mut into, line.strip_prefix("- ")) {
                        into.insert(unquoted(name));
                    }
                }
            }
        }
        files
    }
}

const MODIFIED: &str = "Modified:";
const READ: &str = "Read:";

/// What may still be listed.
struct Room {
    chars: usize,
    files: usize,
}

/// Writes as many files as there is room for, and returns how many there are besides.
fn list(title: &str, files: &BTreeSet<String>, room: &mut Room, out: &mut String) -> usize {
    let mut listed = 0;
    for file in files {
        let name = quoted(file);
        let heading = if listed == 0 { title.len() + 1 } else { 0 };
        let chars = name.chars().count() + "- \n".len() + heading;
        if chars > room.chars || room.files == 0 {
            break;
        }
        if listed == 0 {
            let _ = writeln!(out, "{title}");
        }
        let _ = writeln!(out, "- {name}");
        room.chars -= chars;
        room.files -= 1;
        listed += 1;
    }
    files.len() - listed
}

/// A name that could be taken for something else on its line becomes a JSON string.
fn quoted(name: &str) -> String {
    let is_plain = !name.is_empty()
        && name.trim() == name
        && !name.starts_with('"')
        && !name.chars().any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'));
    if is_plain { name.to_owned() } else { serde_json::Value::from(name).to_string() }
}

fn unquoted(name: &str) -> String {
    serde_json::from_str(name).unwrap_or_else(|_| name.to_owned())
}
