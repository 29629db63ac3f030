//! Tools for files.

use std::io::{self, Read};
use std::sync::Arc;

use async_trait::async_trait;
use fabro_llm::ToolSpec;
use fabro_sandbox::{FileError, Files, KnownFiles, ReadFirst};
use fabro_types::Permissions;
use serde::de::DeserializeOwned;

use crate::call::{Stop, arguments, blocking, canceled};
use crate::tool::{Call, Output, Tool};

/// The largest file that is changed in part, in bytes.
const MAX_TO_CHANGE: u64 = 16 << 20;

/// What a tool does with its arguments, which are typed. It blocks, and ends early when [`Stop`] says
/// so.
type Run<A> = fn(&ReadFirst, &A, &Stop) -> Result<Output, String>;

/// A tool with the files of an agent.
pub(crate) struct FileTool<A> {
    spec: ToolSpec,
    needs: Permissions,
    run: Run<A>,
    files: Arc<dyn Files>,
    known: KnownFiles,
}

impl<A: DeserializeOwned + Send + 'static> FileTool<A> {
    /// For an agent that has read no files yet.
    pub(crate) fn create(
        files: &Arc<dyn Files>,
        spec: ToolSpec,
        needs: Permissions,
        run: Run<A>,
    ) -> Arc<dyn Tool> {
        let files = Arc::clone(files);
        Arc::new(Self { spec, needs, run, files, known: KnownFiles::default() })
    }
}

#[async_trait]
impl<A: DeserializeOwned + Send + 'static> Tool for FileTool<A> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn needs(&self) -> Permissions {
        self.needs
    }

    fn with_known_files(&self, known: &KnownFiles) -> Option<Arc<dyn Tool>> {
        let files = Arc::clone(&self.files);
        Some(Arc::new(Self { spec: self.spec.clone(), files, known: known.clone(), ..*self }))
    }

    async fn call(&self, call: Call<'_>) -> Output {
        let arguments: A = match arguments(&call) {
            Ok(arguments) => arguments,
            Err(problem) => return Output::error(problem),
        };
        let files = ReadFirst::new(Arc::clone(&self.files), self.known.clone());
        let run = self.run;
        let work = move |stop: &Stop| {
            let output = run(&files, &arguments, stop).unwrap_or_else(Output::error);
            if stop.is_canceled() && output.files_modified.is_empty() {
                return canceled();
            }
            Output { files_seen: files.recorded(), ..output }
        };
        blocking(&call, work).await
    }
}

/// The text of a file that is to be changed, and its resolved path.
pub(crate) fn read_to_change(files: &ReadFirst, path: &str) -> Result<(String, String), String> {
    // First, because this error comes before anything about the content.
    files.may_change(path).map_err(message)?;
    let content = files.inner().read(path, MAX_TO_CHANGE).map_err(message)?;
    let text = String::from_utf8(content)
        .map_err(|_| format!("{path} is not UTF-8 text: it can only be replaced as a whole"))?;
    Ok((files.inner().info(path).map_err(message)?.path, text))
}

#[expect(clippy::needless_pass_by_value, reason = "it is used to map errors")]
pub(crate) fn message(error: FileError) -> String {
    error.to_string()
}

/// A file of which reading fails when the call should stop.
pub(crate) struct StoppableFile<'a> {
    pub(crate) file: Box<dyn Read + Send>,
    pub(crate) stop: &'a Stop,
}

impl Read for StoppableFile<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.is_due() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.file.read(buffer)
    }
}
