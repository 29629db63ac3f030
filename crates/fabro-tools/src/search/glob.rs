use std::cmp::Reverse;
use std::fmt::Write;
use std::sync::Arc;

use async_trait::async_trait;
use fabro_llm::ToolSpec;
use fabro_sandbox::{FileKind, Files};
use fabro_types::Permissions;
use serde::Deserialize;
use serde_json::json;

use super::walk::{Ended, Next, walk};
use super::{ENOUGH, NOT_ALL, glob};
use crate::call::{Stop, arguments, blocking, canceled, spec};
use crate::files::{output, said};
use crate::{Call, Output, Tool};

/// How many paths are kept in memory at most.
const KEPT: usize = 200_000;

/// `glob`
pub(crate) struct Glob {
    spec: ToolSpec,
    files: Arc<dyn Files>,
}

#[derive(Deserialize)]
struct Arguments {
    pattern: String,
    #[serde(default = "here")]
    path: String,
    #[serde(default)]
    sort: Sort,
    #[serde(default = "limit")]
    limit: usize,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Sort {
    #[default]
    Name,
    Modified,
}

fn here() -> String {
    ".".to_owned()
}

fn limit() -> usize {
    200
}

impl Glob {
    pub(crate) fn new(files: Arc<dyn Files>) -> Self {
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
        Self { spec: spec("glob", description, &properties, &["pattern"]), files }
    }
}

#[async_trait]
impl Tool for Glob {
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
        blocking(call.cancel, move |stop| output(search(&*files, &arguments, stop))).await
    }
}

fn search(files: &dyn Files, arguments: &Arguments, stop: &Stop) -> Result<Output, String> {
    let matcher = glob(&arguments.pattern)?;
    let start = files.info(&arguments.path).map_err(said)?.path;
    let prefix = if start == "." { String::new() } else { format!("{start}/") };
    let mut found: Vec<String> = Vec::new();
    let ended = walk(files, &start, stop, |it| {
        if it.is_ignored {
            return Next::Over;
        }
        let relative = it.path.strip_prefix(&prefix).unwrap_or(it.path);
        if it.kind != FileKind::Directory && matcher.is_match(relative) {
            found.push(it.path.to_owned());
        }
        if found.len() < KEPT { Next::Into } else { Next::End }
    });
    let ended = ended.map_err(said)?;
    if stop.is_canceled() {
        return Ok(canceled());
    }
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
