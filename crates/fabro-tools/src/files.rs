//! Reading and changing files.

mod edit_file;
mod read_file;
mod write_file;

use std::sync::Arc;

use async_trait::async_trait;
use fabro_llm::ToolSpec;
use fabro_sandbox::{FileError, Files, FindFiles, ReadFilesExt, ReadFirst, Seen};
use fabro_types::Permissions;
use serde::de::DeserializeOwned;

use crate::call::{Stop, arguments, blocking, canceled};
use crate::patch::apply_patch;
use crate::search::{glob, grep, list_dir};
use crate::{Call, Output, Tool};

/// The largest file that is changed in part, in bytes.
const CHANGED: u64 = 16 << 20;

/// The files of a working directory, in one call of an agent.
pub(crate) type SeenFiles = ReadFirst<Arc<dyn Files>>;

/// A tool that works on files: what it does with its arguments, which are typed.
pub(crate) struct FileTool<A> {
    pub(crate) spec: ToolSpec,
    pub(crate) needs: Permissions,
    /// Blocks, and stops early when [`Stop`] says so.
    pub(crate) run: fn(&SeenFiles, &A, &Stop) -> Result<Output, String>,
}

impl<A: DeserializeOwned + Send + 'static> FileTool<A> {
    pub(crate) fn with(self, files: &Arc<dyn Files>) -> Arc<dyn Tool> {
        let files = Arc::clone(files);
        Arc::new(ToolOnFiles { tool: Arc::new(self), files, seen: Seen::default() })
    }
}

/// A [`FileTool`] with the files of an agent.
struct ToolOnFiles<A> {
    tool: Arc<FileTool<A>>,
    files: Arc<dyn Files>,
    seen: Seen,
}

#[async_trait]
impl<A: DeserializeOwned + Send + 'static> Tool for ToolOnFiles<A> {
    fn spec(&self) -> &ToolSpec {
        &self.tool.spec
    }

    fn needs(&self) -> Permissions {
        self.tool.needs
    }

    fn seeing(&self, seen: &Seen) -> Option<Arc<dyn Tool>> {
        Some(Arc::new(Self {
            tool: Arc::clone(&self.tool),
            files: Arc::clone(&self.files),
            seen: seen.clone(),
        }))
    }

    async fn call(&self, call: Call<'_>) -> Output {
        let arguments: A = match arguments(&call) {
            Ok(arguments) => arguments,
            Err(output) => return output,
        };
        let files = ReadFirst::for_reader(Arc::clone(&self.files), self.seen.clone());
        let run = self.tool.run;
        let work = move |stop: &Stop| {
            let output = run(&files, &arguments, stop).unwrap_or_else(Output::error);
            if stop.is_canceled() && output.files_modified.is_empty() {
                return canceled();
            }
            Output { files_seen: files.noticed(), ..output }
        };
        blocking(call.cancel, work).await
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
#[expect(clippy::needless_pass_by_value, reason = "callers hand their files over")]
pub fn file_tools(files: Arc<dyn Files>) -> Vec<Arc<dyn Tool>> {
    vec![
        apply_patch().with(&files),
        edit_file::edit_file().with(&files),
        glob().with(&files),
        grep().with(&files),
        list_dir().with(&files),
        read_file::read_file().with(&files),
        write_file::write_file().with(&files),
    ]
}

/// The text of a file that is to be changed, and its path as results name it.
pub(crate) fn text_to_change(files: &SeenFiles, path: &str) -> Result<(String, String), String> {
    // First of all, because what it says comes before anything about the content.
    files.may_change(path).map_err(said)?;
    let content = files.inner().read(path, CHANGED).map_err(said)?;
    let text = String::from_utf8(content)
        .map_err(|_| format!("{path} is not UTF-8 text: it can only be replaced as a whole"))?;
    Ok((files.info(path).map_err(said)?.path, text))
}

#[expect(clippy::needless_pass_by_value, reason = "it stands where errors are mapped")]
pub(crate) fn said(error: FileError) -> String {
    error.to_string()
}
