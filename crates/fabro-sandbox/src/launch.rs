//! What a sandbox of this machine starts.

use std::path::{Path, PathBuf};

use crate::control::ControlFiles;

/// A program to be started in a sandbox.
pub(crate) struct Launch<'a> {
    pub(crate) program: &'a Path,
    pub(crate) cwd: &'a Path,
    /// Directories outside of the working directory that it reads.
    pub(crate) reads: &'a [PathBuf],
    /// The control files of the working directory; `None` for a program that is trusted, whose working directory is not
    /// guarded.
    pub(crate) control: Option<&'a ControlFiles>,
    /// A script file, which it finds at [`Sandbox::script_path`](crate::Sandbox).
    pub(crate) file: Option<&'a Path>,
}

impl Launch<'_> {
    /// A shell for a program or a person that is trusted.
    pub(crate) fn shell(cwd: &Path) -> Launch<'_> {
        Launch { program: Path::new("/bin/sh"), cwd, reads: &[], control: None, file: None }
    }
}
