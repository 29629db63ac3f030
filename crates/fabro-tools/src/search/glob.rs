use fabro_sandbox::FileKind;
use fabro_types::Permissions;
use serde::Deserialize;
use serde_json::json;
use std::cmp::Reverse;
use std::fmt::Write;

use super::walk::{Ended, Next, walk};
use super::{ENOUGH, NOT_ALL, compile_glob, default_limit, working_directory};
use crate::Output;
use crate::call::{Stop, spec};
use crate::files::{FileTool, SeenFiles, said};

/// How many paths are kept in memory at most.
const KEPT: usize = 200_000;

#[derive(Deserialize)]
pub(crate) struct Arguments {
    pattern: String,
    #[serde(default = "working_directory")]
    path: String,
    #[serde(default)]
    sort: Sort,
    #[serde(default = "default_limit")]
    limit: usize,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Sort {
    #[default]
    Name,
    Modified,
}

/// The tool `glob`.
pub(crate) fn glob() -> FileTool<Arguments> {
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
    FileTool {
        spec: spec("glob", description, &properties, &["pattern"]),
        needs: Permissions::ReadOnly,
        run: search,
    }
}

fn search(files: &SeenFiles, arguments: &Arguments, stop: &Stop) -> Result<Output, String> {
    let files = &**files.inner();
    let matcher = compile_glob(&arguments.pattern)?;
    let start = files.info(&arguments.path).map_err(said)?.path;
    let mut found: Vec<String> = Vec::new();
    let ended = walk(files, &start, stop, |it| {
        if it.is_ignored {
            return Next::Over;
        }
        if it.kind != FileKind::Directory && matcher.is_match(it.below) {
            found.push(it.path.to_owned());
        }
        if found.len() < KEPT { Next::Into } else { Next::End }
    });
    let ended = ended.map_err(said)?;
    match arguments.sort {
        Sort::Name => found.sort_unstable(),
        Sort::Modified => {
            let age = |path: &String| files.info(path).ok().and_then(|info| info.modified);
            found.sort_by_cached_key(|path| (Reverse(age(path)), path.clone()));
        }
    }
    Ok(Output::ok(told(&found, arguments.limit, &ended)))
}

fn told(found: &[String], limit: usize, ended: &Ended) -> String {
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
    let more = if *ended == Ended::Enough { "at least " } else { "" };
    if shown < found.len() {
        let rest = found.len() - shown;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "[{more}{rest} more: choose a narrower pattern or path]");
    }
    match ended {
        Ended::Stopped => text.push_str(NOT_ALL),
        Ended::Whole { unreadable } if *unreadable > 0 => {
            let _ = write!(text, "[directories that cannot be read: {unreadable}]");
        }
        Ended::Whole { .. } | Ended::Enough => {}
    }
    text.truncate(text.trim_end().len());
    text
}
