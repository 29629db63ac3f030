//! Reading and changing files.

mod edit_file;
mod read_file;
mod write_file;

use std::sync::Arc;

use fabro_sandbox::{FileError, Files, FindFiles, ReadFilesExt, ReadFirst, Seen};
use tokio_util::sync::CancellationToken;

use crate::call::{Stop, blocking};
use crate::patch::ApplyPatch;
use crate::search::{Glob, Grep, ListDir};
use crate::{Output, Tool};

/// The largest file that is changed in part, in bytes.
const CHANGED: u64 = 16 << 20;

/// The files of a working directory, in one call of an agent.
pub(crate) type SeenFiles = ReadFirst<Arc<dyn Files>>;

/// The same for all calls of an agent.
#[derive(Clone)]
pub(crate) struct AgentFiles {
    files: Arc<dyn Files>,
    seen: Seen,
}

impl AgentFiles {
    pub(crate) fn seeing(&self, seen: &Seen) -> Self {
        Self { files: Arc::clone(&self.files), seen: seen.clone() }
    }

    /// Does the work of a call, and says what it has shown the agent.
    pub(crate) async fn work(
        &self,
        cancel: &CancellationToken,
        work: impl FnOnce(&SeenFiles, &Stop) -> Result<Output, String> + Send + 'static,
    ) -> Output {
        let files = ReadFirst::for_reader(Arc::clone(&self.files), self.seen.clone());
        let work = move |stop: &Stop| {
            let output = output(work(&files, stop));
            Output { files_seen: files.noticed(), ..output }
        };
        blocking(cancel, work).await
    }
}

/// The tools for files: `read_file`, `list_dir`, `glob`, `grep`, and, for agents that may write,
/// `write_file`, `edit_file` and `apply_patch`.
///
/// A file that exists is changed only by an agent that has read it with `read_file` and has seen its
/// last state. What was read is remembered by the [`ToolSet`](crate::ToolSet) that they are in; a
/// call that was dropped or interrupted does not count.
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
pub fn file_tools(files: Arc<dyn Files>) -> Vec<Arc<dyn Tool>> {
    let seen = AgentFiles { files: Arc::clone(&files), seen: Seen::default() };
    vec![
        Arc::new(ApplyPatch::new(seen.clone())),
        Arc::new(edit_file::EditFile::new(seen.clone())),
        Arc::new(Glob::new(Arc::clone(&files))),
        Arc::new(Grep::new(Arc::clone(&files))),
        Arc::new(ListDir::new(files)),
        Arc::new(read_file::ReadFile::new(seen.clone())),
        Arc::new(write_file::WriteFile::new(seen)),
    ]
}

/// The text of a file that is to be changed, and its path as results name it.
pub(crate) fn text_to_change(files: &SeenFiles, path: &str) -> Result<(String, String), String> {
    // First of all, because what it says comes before anything about the content.
    files.may_change(path).map_err(said)?;
    let content = files.inner().read(path, CHANGED).map_err(said)?;
    let text = String::from_utf8(content)
        .map_err(|_| format!("{path} is no UTF-8 text: it can only be replaced as a whole"))?;
    Ok((files.info(path).map_err(said)?.path, text))
}

#[expect(clippy::needless_pass_by_value, reason = "it stands where errors are mapped")]
pub(crate) fn said(error: FileError) -> String {
    error.to_string()
}

/// A failure is an output too.
pub(crate) fn output(result: Result<Output, String>) -> Output {
    result.unwrap_or_else(Output::error)
}
