//! Why there is no sandbox.

use std::path::PathBuf;

/// A sandbox that this machine does not have.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// Its program is not installed.
    #[error("the program `{program}` is not installed")]
    Missing {
        /// The program.
        program: &'static str,
        /// How to install it.
        install: &'static str,
    },
    /// A directory that it needs cannot be used.
    #[error("{}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The working directory contains the system or what is to be hidden from programs in it.
    #[error("the working directory {} contains files of the system", .0.display())]
    WorkingDirectory(PathBuf),
    /// It cannot be used.
    #[error("{message}")]
    Unusable {
        /// Why.
        message: String,
        /// How to fix it.
        fix: String,
    },
    /// No program starts in it.
    #[error("`{program}` cannot start a program: {message}")]
    Broken {
        /// The program that makes the sandbox.
        program: &'static str,
        /// The last line that it printed.
        message: String,
    },
}

impl SandboxError {
    /// How to fix it.
    pub fn fix(&self) -> String {
        match self {
            Self::Missing { install, .. } => (*install).to_owned(),
            Self::Unusable { fix, .. } => fix.clone(),
            Self::Directory { .. } => "create the directory, or correct its path".to_owned(),
            Self::WorkingDirectory(_) => "start the run in the directory of the project".to_owned(),
            Self::Broken { .. } => {
                "allow user namespaces (on Ubuntu: an AppArmor profile for bwrap; \
                in a container: an unconfined seccomp profile), and install bubblewrap 0.8 or later"
                    .to_owned()
            }
        }
    }
}
