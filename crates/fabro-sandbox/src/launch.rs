//! What a sandbox of this machine starts.

use std::path::{Path, PathBuf};

/// A program to be started in a sandbox.
pub(crate) struct Launch<'a> {
    pub(crate) program: &'a Path,
    pub(crate) cwd: &'a Path,
    /// Directories outside of the working directory that it reads.
    pub(crate) reads: &'a [PathBuf],
    /// A script file, which it finds at [`Sandbox::script_path`](crate::Sandbox).
    pub(crate) file: Option<&'a Path>,
}
