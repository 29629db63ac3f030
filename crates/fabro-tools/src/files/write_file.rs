use fabro_sandbox::{FileError, FindFiles, WriteFiles};
use fabro_types::Permissions;
use serde::Deserialize;
use serde_json::json;

use super::{FileTool, SeenFiles, said};
use crate::Output;
use crate::call::spec;

#[derive(Deserialize)]
pub(crate) struct Arguments {
    file_path: String,
    content: String,
}

/// The tool `write_file`.
pub(super) fn write_file() -> FileTool<Arguments> {
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
    FileTool {
        spec: spec("write_file", description, &properties, &["file_path", "content"]),
        needs: Permissions::ReadWrite,
        run: |files, arguments, _| write(files, arguments).map_err(said),
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
