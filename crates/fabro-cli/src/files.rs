//! Workflow files and the files they name.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use crate::error;

/// The text of a workflow file.
pub fn read_workflow(path: &Path) -> anyhow::Result<String> {
    read(path).map_err(|reason| {
        let message = format!("{} cannot be read: {reason}", path.display());
        error::usage(message, "name a .fabro file that can be read")
    })
}

/// The text of a file that a workflow in `dir` names. `~` is the home directory.
pub fn read_beside(dir: &Path, home: Option<&Path>, path: &str) -> Result<String, String> {
    let full = match (path.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => dir.join(path),
    };
    read(&full)
}

/// A whole text file of at most 16 MB. A pipe or a device is refused: reading one may never end.
pub fn read(path: &Path) -> Result<String, String> {
    let limit = fabro_graph::MAX_FILE_BYTES as u64;
    let meta = fs::metadata(path).map_err(|error| reason(&error))?;
    if !meta.is_file() {
        return Err("it is no file".to_owned());
    }
    // One more, so that the end is found without growing.
    let mut bytes = Vec::with_capacity(usize::try_from(meta.len().min(limit)).unwrap_or(0) + 1);
    let file = File::open(path).map_err(|error| reason(&error))?;
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|error| reason(&error))?;
    if bytes.len() as u64 > limit {
        return Err(format!("it is larger than {} MB", limit >> 20));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("it is no text: byte {at} is not UTF-8")
    })
}

/// Whether that is why the file cannot be read.
pub fn is_too_large(path: &Path) -> bool {
    let limit = fabro_graph::MAX_FILE_BYTES as u64;
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() > limit)
}

fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}
