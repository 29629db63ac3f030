//! Where the texts of files come from, and their paths.

use std::collections::BTreeMap;

/// The source of the texts of `@file`s. A path is passed as it is written; the implementation
/// determines what it is relative to, and what `~` means.
pub trait Sources {
    /// The text of a file, or why it cannot be read (a fragment: `no such file`).
    fn read(&self, path: &str) -> Result<String, String>;
}

/// Files that exist in memory only, by path.
#[derive(Clone, Debug, Default)]
pub struct MemorySources(pub BTreeMap<String, String>);

impl Sources for MemorySources {
    fn read(&self, path: &str) -> Result<String, String> {
        self.0.get(path).cloned().ok_or_else(|| "no such file".to_owned())
    }
}

/// A path as seen from where `folder` is, which ends with a slash or is empty. `.` and `..` are resolved
/// as far as the text of the path allows, so that one file has one path.
pub fn join_path(folder: &str, path: &str) -> String {
    let is_absolute = path.starts_with(['/', '\\', '~']) || path.get(1..2) == Some(":");
    if is_absolute { path.to_owned() } else { tidy(&format!("{folder}{path}")) }
}

/// Without `.` and without `x/..`.
fn tidy(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for (at, part) in path.split('/').enumerate() {
        match part {
            "." => {}
            "" if at > 0 => {}
            ".." => match parts.last() {
                None | Some(&("" | ".." | "~")) => parts.push(part),
                Some(_) => {
                    parts.pop();
                }
            },
            part => parts.push(part),
        }
    }
    parts.join("/")
}
