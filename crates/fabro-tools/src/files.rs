//! Reading and changing files.

mod edit_file;
mod read_file;
mod write_file;

use std::sync::Arc;

use fabro_sandbox::Files;

use crate::patch::apply_patch;
use crate::search::{glob, grep, list_dir};
use crate::tool::Tool;

/// The tools for files: `read_file`, `list_dir`, `glob`, `grep`, and, for agents that may write,
/// `write_file`, `edit_file` and `apply_patch`.
///
/// A file that exists is changed only by an agent that has read it with `read_file`, and while it has
/// not changed since. What was read is remembered by the [`ToolSet`](crate::ToolSet) that they are in;
/// a call that was dropped or interrupted does not count.
///
/// ```
/// use std::sync::Arc;
/// use fabro_sandbox::MemoryFiles;
/// use fabro_tools::{ToolSet, file_tools};
/// use fabro_types::Permissions;
///
/// let files = Arc::new(MemoryFiles::new([("src/lib.rs", "//! A library.\n")]));
/// let tools = file_tools(files).into_iter().fold(ToolSet::new(), ToolSet::with);
/// let names = tools.allowed(Permissions::ReadOnly).names();
/// assert_eq!(names, ["glob", "grep", "list_dir", "read_file"]);
/// ```
#[expect(clippy::needless_pass_by_value, reason = "callers hand their files over")]
pub fn file_tools(files: Arc<dyn Files>) -> Vec<Arc<dyn Tool>> {
    vec![
        apply_patch(&files),
        edit_file::edit_file(&files),
        glob(&files),
        grep(&files),
        list_dir(&files),
        read_file::read_file(&files),
        write_file::write_file(&files),
    ]
}
