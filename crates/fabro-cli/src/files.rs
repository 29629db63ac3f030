//! Workflow files.

use std::path::Path;

use crate::error;

/// The text of a workflow file.
pub fn read_workflow(path: &Path) -> anyhow::Result<String> {
    fabro_run::read_text(path).map_err(|reason| {
        let message = format!("{} cannot be read: {reason}", path.display());
        error::usage(message, "name a .fabro file that can be read")
    })
}
