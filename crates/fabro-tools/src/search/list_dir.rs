use std::sync::Arc;

use async_trait::async_trait;
use fabro_llm::ToolSpec;
use fabro_sandbox::{FileKind, Files};
use fabro_types::Permissions;
use serde::Deserialize;
use serde_json::json;

use super::walk::{Ended, Next, walk};
use super::{ENOUGH, NOT_ALL};
use crate::call::{Stop, arguments, blocking, canceled, spec};
use crate::files::{output, said};
use crate::{Call, Output, Tool};

/// `list_dir`
pub(crate) struct ListDir {
    spec: ToolSpec,
    files: Arc<dyn Files>,
}

#[derive(Deserialize)]
struct Arguments {
    #[serde(default = "here")]
    path: String,
    #[serde(default = "depth")]
    depth: usize,
    #[serde(default = "limit")]
    limit: usize,
}

fn here() -> String {
    ".".to_owned()
}

fn depth() -> usize {
    1
}

fn limit() -> usize {
    200
}

impl ListDir {
    pub(crate) fn new(files: Arc<dyn Files>) -> Self {
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
        Self { spec: spec("list_dir", description, &properties, &[]), files }
    }
}

#[async_trait]
impl Tool for ListDir {
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
        blocking(call.cancel, move |stop| output(list(&*files, &arguments, stop))).await
    }
}

fn list(files: &dyn Files, arguments: &Arguments, stop: &Stop) -> Result<Output, String> {
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
    if stop.is_canceled() {
        return Ok(canceled());
    }
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
