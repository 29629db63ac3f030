use std::sync::Arc;

use fabro_sandbox::{FileKind, Files, ReadFirst};
use fabro_types::Permissions;
use serde::Deserialize;
use serde_json::json;

use super::walk::{Next, WalkEnd, walk};
use super::{ENOUGH, LIMIT, TIMEOUT_NOTE};
use crate::call::{Stop, spec};
use crate::file_tool::{FileTool, message};
use crate::tool::{Output, Tool};

#[derive(Deserialize)]
struct Arguments {
    path: Option<String>,
    depth: Option<usize>,
    limit: Option<usize>,
}

/// The tool `list_dir`.
pub(crate) fn list_dir(files: &Arc<dyn Files>) -> Arc<dyn Tool> {
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
    let spec = spec("list_dir", description, &properties, &[]);
    FileTool::create(files, spec, Permissions::ReadOnly, list)
}

fn list(files: &ReadFirst, arguments: &Arguments, stop: &Stop) -> Result<Output, String> {
    let files = files.inner();
    let path = arguments.path.as_deref().unwrap_or(".");
    let start = files.info(path).map_err(message)?.path;
    let depth = arguments.depth.unwrap_or(1);
    let limit = arguments.limit.unwrap_or(LIMIT);
    let mut text = String::new();
    let mut shown = 0;
    let end = walk(files, &start, stop, |it| {
        if shown == limit || text.len() >= ENOUGH {
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
        if it.is_ignored || it.depth == depth { Next::Skip } else { Next::Enter }
    });
    let end = end.map_err(message)?;
    if text.is_empty() {
        text.push_str("[the directory is empty]");
    }
    match end {
        WalkEnd::Enough => text.push_str("[there is more: list a directory below, or raise limit]"),
        WalkEnd::Timeout => text.push_str(TIMEOUT_NOTE),
        WalkEnd::Complete { .. } => {}
    }
    text.truncate(text.trim_end().len());
    Ok(Output::ok(text))
}
