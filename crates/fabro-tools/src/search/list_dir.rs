use fabro_sandbox::FileKind;
use fabro_types::Permissions;
use serde::Deserialize;
use serde_json::json;

use super::walk::{Ended, Next, walk};
use super::{ENOUGH, NOT_ALL, default_limit, working_directory};
use crate::Output;
use crate::call::{Stop, spec};
use crate::files::{FileTool, SeenFiles, said};

#[derive(Deserialize)]
pub(crate) struct Arguments {
    #[serde(default = "working_directory")]
    path: String,
    #[serde(default = "depth")]
    depth: usize,
    #[serde(default = "default_limit")]
    limit: usize,
}

fn depth() -> usize {
    1
}

/// The tool `list_dir`.
pub(crate) fn list_dir() -> FileTool<Arguments> {
    let description = "Lists what is in a directory: directories end with `/`, links with `@`, \
        what is deeper is indented. Directories that .gitignore leaves out are named, but not \
        gone into.";
    let properties = json!({
        "path": {
            "type": "string",
            "description": "The directory. Default: the working directory."
        },
        "depth": {
            "type": "integer", "minimum": 1, "maximum": 10,
            "description": "How many levels to go down. Default 1."
        },
        "limit": {
            "type": "integer", "minimum": 1, "maximum": 2_000,
            "description": "How many entries to give at most. Default 200."
        }
    });
    FileTool {
        spec: spec("list_dir", description, &properties, &[]),
        needs: Permissions::ReadOnly,
        run: list,
    }
}

fn list(files: &SeenFiles, arguments: &Arguments, stop: &Stop) -> Result<Output, String> {
    let files = &**files.inner();
    let start = files.info(&arguments.path).map_err(said)?.path;
    let mut text = String::new();
    let mut shown = 0;
    let ended = walk(files, &start, stop, |it| {
        if shown == arguments.limit || text.len() >= ENOUGH {
            return Next::End;
        }
        shown += 1;
        let name = it.path.rsplit('/').next().unwrap_or(it.path);
        text.push_str(&"  ".repeat(it.depth - 1));
        text.push_str(name);
        text.push_str(match it.kind {
            FileKind::Directory => "/\n",
            FileKind::Link => "@\n",
            FileKind::File | FileKind::Other => "\n",
        });
        if it.is_ignored || it.depth == arguments.depth { Next::Over } else { Next::Into }
    });
    let ended = ended.map_err(said)?;
    if text.is_empty() {
        text.push_str("[the directory is empty]");
    }
    match ended {
        Ended::Enough => text.push_str("[there is more: list a directory below, or raise limit]"),
        Ended::Stopped => text.push_str(NOT_ALL),
        Ended::Whole { .. } => {}
    }
    text.truncate(text.trim_end().len());
    Ok(Output::ok(text))
}
