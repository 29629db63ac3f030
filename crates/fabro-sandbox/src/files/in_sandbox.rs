use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

use super::{Entry, FileError, FileInfo, Files};
use crate::Sandbox;

/// Files of a working directory under the paths that programs in a [`Sandbox`] know: a copy of it may be elsewhere, and
/// values of runs in its `.fabro`.
pub struct InSandbox<F> {
    files: F,
    sandbox: Arc<Sandbox>,
    work_dir: PathBuf,
    value_dirs: Vec<PathBuf>,
}

impl<F: Files> InSandbox<F> {
    /// The same files; values are in `value_dirs`, and `files` has them.
    pub fn new(
        files: F,
        sandbox: Arc<Sandbox>,
        work_dir: PathBuf,
        value_dirs: Vec<PathBuf>,
    ) -> Self {
        Self { files, sandbox, work_dir, value_dirs }
    }

    fn with<T>(&self, path: &str, work: impl FnOnce(&F, &str) -> T) -> T {
        work(&self.files, &self.sandbox.local_path(path, &self.work_dir, &self.value_dirs))
    }
}

impl<F: Files> Files for InSandbox<F> {
    fn open(&self, path: &str) -> Result<Box<dyn Read + Send>, FileError> {
        self.with(path, F::open)
    }

    fn write(&self, path: &str, content: &[u8]) -> Result<(), FileError> {
        self.with(path, |files, path| files.write(path, content))
    }

    fn remove(&self, path: &str) -> Result<(), FileError> {
        self.with(path, F::remove)
    }

    fn info(&self, path: &str) -> Result<FileInfo, FileError> {
        self.with(path, F::info)
    }

    fn list(&self, path: &str) -> Result<Vec<Entry>, FileError> {
        self.with(path, F::list)
    }

    fn resolve(&self, path: &str) -> Result<String, FileError> {
        self.with(path, F::resolve)
    }
}
