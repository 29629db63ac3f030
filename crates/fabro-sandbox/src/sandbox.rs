//! Where programs are confined: the seam between what starts them and what confines them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::bwrap::{Bwrap, BwrapSettings};
use crate::{Environment, agent_env};

/// Confines the scripts of a [`LocalExec`](crate::LocalExec) and the programs of a
/// [`Process`](crate::Process). What it promises is in `docs/sandboxes.md` of the project.
#[derive(Debug)]
pub struct Sandbox {
    bwrap: Bwrap,
}

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

/// A program to be started in a sandbox.
pub(crate) struct Launch<'a> {
    pub(crate) program: &'a Path,
    pub(crate) cwd: &'a Path,
    /// Directories outside of the working directory that it reads.
    pub(crate) reads: &'a [PathBuf],
    /// A script file, which it finds at [`Sandbox::script_path`].
    pub(crate) file: Option<&'a Path>,
}

impl Sandbox {
    /// A bubblewrap sandbox.
    ///
    /// # Errors
    ///
    /// `bwrap` is not installed, or a directory cannot be used.
    pub fn bwrap(settings: &BwrapSettings) -> Result<Self, SandboxError> {
        Ok(Self { bwrap: Bwrap::new(settings)? })
    }

    /// Starts a program in it that does nothing, and waits for it.
    ///
    /// # Errors
    ///
    /// It does not start.
    pub fn check(&self) -> Result<(), SandboxError> {
        let broken = |message: String| SandboxError::Broken { program: "bwrap", message };
        let root = Path::new("/");
        let launch = Launch { program: Path::new("/bin/sh"), cwd: root, reads: &[], file: None };
        let mut command = self.command(&launch).map_err(|error| broken(error.to_string()))?;
        let output = command.args(["-c", ":"]).stdin(Stdio::null()).output();
        let output = output.map_err(|error| broken(error.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
        let last = last.map_or_else(|| output.status.to_string(), str::to_owned);
        Err(broken(last.trim_start_matches("bwrap: ").to_owned()))
    }

    /// A command that runs a program of this machine in the sandbox, with these variables and no others, for a
    /// person at a terminal.
    ///
    /// # Errors
    ///
    /// A directory cannot be used.
    pub fn interactive(
        &self,
        program: &Path,
        cwd: &Path,
        env: &[(String, String)],
    ) -> std::io::Result<Command> {
        let mut command = self.command(&Launch { program, cwd, reads: &[], file: None })?;
        command.env_clear().envs(env.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    /// The files and directories below a working directory that programs in it do not see.
    pub fn hidden_in(&self, work_dir: &Path) -> Vec<PathBuf> {
        self.bwrap.hidden_in(work_dir)
    }

    pub(crate) fn command(&self, launch: &Launch<'_>) -> std::io::Result<Command> {
        self.bwrap.command(launch)
    }

    /// Where a program finds the script file of its [`Launch`].
    pub(crate) fn script_path() -> OsString {
        Bwrap::SCRIPT.into()
    }
}

/// All variables of a program in a sandbox.
pub(crate) fn variables(env: Environment<'_>) -> Vec<(String, String)> {
    // They name directories of this machine that are not there.
    const TEMPORARY: [&str; 3] = ["TMPDIR", "TEMP", "TMP"];
    let own = match env {
        Environment::Inherit(own) => {
            let user = std::env::vars_os().filter_map(|(name, value)| {
                Some((name.into_string().ok()?, value.into_string().ok()?))
            });
            let user = user.filter(|(name, _)| !TEMPORARY.contains(&&**name));
            return agent_env(user, own.iter().cloned());
        }
        Environment::Only(own) => own.iter(),
    };
    own.filter(|(name, value)| !TEMPORARY.contains(&&**name) || value.starts_with("/tmp"))
        .cloned()
        .collect()
}
