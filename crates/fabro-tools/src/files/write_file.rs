use std::sync::Arc;

use async_trait::async_trait;
use fabro_llm::ToolSpec;
use fabro_sandbox::{FileError, FindFiles, Seen, WriteFiles};
use fabro_types::Permissions;
use serde::Deserialize;
use serde_json::json;

use super::{AgentFiles, SeenFiles, said};
use crate::call::{arguments, spec};
use crate::{Call, Output, Tool};

/// `write_file`
pub(super) struct WriteFile {
    spec: ToolSpec,
    files: AgentFiles,
}

#[derive(Deserialize)]
struct Arguments {
    file_path: String,
    content: String,
}

impl WriteFile {
    pub(super) fn new(files: AgentFiles) -> Self {
        let description = "Writes a whole file of the working directory: makes it, with the \
            directories it needs, or replaces all of its content. A file that exists has to be read \
            with read_file first. To change a part of a file use edit_file.";
        let properties = json!({
            "file_path": {
                "type": "string",
                "description": "Path of the file, relative to the working directory or absolute inside of it."
            },
            "content": { "type": "string", "description": "All of the new content." }
        });
        Self {
            spec: spec("write_file", description, &properties, &["file_path", "content"]),
            files,
        }
    }
}

#[async_trait]
impl Tool for WriteFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn needs(&self) -> Permissions {
        Permissions::ReadWrite
    }

    fn seeing(&self, seen: &Seen) -> Option<Arc<dyn Tool>> {
        Some(Arc::new(Self { spec: self.spec.clone(), files: self.files.seeing(seen) }))
    }

    async fn call(&self, call: Call<'_>) -> Output {
        let arguments: Arguments = match arguments(&call) {
            Ok(arguments) => arguments,
            Err(output) => return output,
        };
        self.files.work(call.cancel, move |files, _| write(files, &arguments).map_err(said)).await
    }
}

fn write(files: &SeenFiles, arguments: &Arguments) -> Result<Output, FileError> {
    let Arguments { file_path, content } = arguments;
    let is_new = matches!(files.info(file_path), Err(FileError::NotFound { .. }));
    files.write(file_path, content.as_bytes())?;
    let path = files.info(file_path)?.path;
    let lines = content.lines().count();
    let done = if is_new { "made" } else { "replaced" };
    let text = format!("{done} {path}: {} bytes, {lines} lines", content.len());
    Ok(Output { files_modified: vec![path], ..Output::ok(text) })
}
