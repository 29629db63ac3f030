use std::cmp::Reverse;
use std::sync::Arc;

use fabro_sandbox::{FileKind, Files, ReadFirst};
use fabro_types::Permissions;
use serde::Deserialize;
use serde_json::json;

use super::walk::{Next, WalkEnd, walk};
use super::{ENOUGH, LIMIT, TIMEOUT_NOTE, compile_glob};
use crate::call::{Stop, spec};
use crate::file_tool::{FileTool, message};
use crate::tool::{Output, Tool};

/// How many paths are kept in memory at most.
const KEPT: usize = 200_000;

#[derive(Deserialize)]
struct Arguments {
    pattern: String,
    path: Option<String>,
    #[serde(default)]
    sort: Sort,
    limit: Option<usize>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Sort {
    #[default]
    Name,
    Modified,
}

/// The tool `glob`.
pub(crate) fn glob(files: &Arc<dyn Files>) -> Arc<dyn Tool> {
    let description = "Finds files by their path: `**/*.rs`, `src/*.{ts,tsx}`, `Cargo.toml`. \
        `*` and `?` stand for characters of one name, `**` for any directories. A pattern \
        without `/` finds names in every directory. Files that .gitignore leaves out are left \
        out, unless path is inside such a directory.";
    let properties = json!({
        "pattern": { "type": "string", "description": "The glob, relative to path." },
        "path": {
            "type": "string",
            "description": "The directory to look in. Default: the working directory."
        },
        "sort": {
            "enum": ["name", "modified"],
            "description": "By name, or the last modified first. Default name."
        },
        "limit": {
            "type": "integer", "minimum": 1, "maximum": 2_000,
            "description": "How many paths to give at most. Default 200."
        }
    });
    let spec = spec("glob", description, &properties, &["pattern"]);
    FileTool::create(files, spec, Permissions::ReadOnly, search)
}

fn search(files: &ReadFirst, arguments: &Arguments, stop: &Stop) -> Result<Output, String> {
    let files = files.inner();
    let matcher = compile_glob(&arguments.pattern)?;
    let start = files.info(arguments.path.as_deref().unwrap_or(".")).map_err(message)?.path;
    let mut found: Vec<String> = Vec::new();
    let end = walk(files, &start, stop, |it| {
        if it.is_ignored {
            return Next::Skip;
        }
        if it.kind != FileKind::Directory && matcher.is_match(it.below) {
            found.push(it.path.to_owned());
        }
        if found.len() < KEPT { Next::Enter } else { Next::End }
    });
    let end = end.map_err(message)?;
    match arguments.sort {
        Sort::Name => found.sort_unstable(),
        Sort::Modified => {
            let age = |path: &String| files.info(path).ok().and_then(|info| info.modified);
            found.sort_by_cached_key(|path| (Reverse(age(path)), path.clone()));
        }
    }
    Ok(Output::ok(shown_paths(&found, arguments.limit.unwrap_or(LIMIT), &end)))
}

fn shown_paths(found: &[String], limit: usize, end: &WalkEnd) -> String {
    let mut text = String::new();
    let mut shown = 0;
    for path in found.iter().take(limit) {
        if text.len() + path.len() > ENOUGH {
            break;
        }
        text.push_str(path);
        text.push('\n');
        shown += 1;
    }
    if found.is_empty() {
        text.push_str("no files\n");
    }
    if shown < found.len() {
        let at_least = if *end == WalkEnd::Enough { "at least " } else { "" };
        let rest = found.len() - shown;
        text.extend([format!("[{at_least}{rest} more: choose a narrower pattern or path]\n")]);
    }
    match end {
        WalkEnd::Timeout => text.push_str(TIMEOUT_NOTE),
        WalkEnd::Complete { unreadable } if *unreadable > 0 => {
            text.extend([format!("[directories that cannot be read: {unreadable}]")]);
        }
        WalkEnd::Complete { .. } | WalkEnd::Enough => {}
    }
    text.truncate(text.trim_end().len());
    text
}
