use std::sync::Arc;

use fabro_sandbox::{FileError, Files, ReadFirst};
use fabro_types::Permissions;
use serde::Deserialize;
use serde_json::json;

use crate::call::spec;
use crate::file_tool::{FileTool, message};
use crate::tool::{Output, Tool};

#[derive(Deserialize)]
struct Arguments {
    file_path: String,
    content: String,
}

/// The tool `write_file`.
pub(super) fn write_file(files: &Arc<dyn Files>) -> Arc<dyn Tool> {
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
    let spec = spec("write_file", description, &properties, &["file_path", "content"]);
    FileTool::create(files, spec, Permissions::ReadWrite, |files, arguments: &Arguments, _| {
        write(files, arguments).map_err(message)
    })
}

fn write(files: &ReadFirst, arguments: &Arguments) -> Result<Output, FileError> {
    let Arguments { file_path, content } = arguments;
    let is_new = matches!(files.inner().info(file_path), Err(FileError::NotFound(_)));
    files.write(file_path, content.as_bytes())?;
    let path = files.inner().info(file_path)?.path;
    let lines = content.lines().count();
    let done = if is_new { "made" } else { "replaced" };
    let text = format!("{done} {path}: {} bytes, {lines} lines", content.len());
    Ok(Output { files_modified: vec![path], ..Output::ok(text) })
}
