//! Where programs are confined: the seam between what starts them and what confines them.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::bwrap::{Bwrap, BwrapSettings};
use crate::control::Scope;
use crate::guard::{ControlGuard, check_again};
use crate::launch::Launch;
use crate::remote::{Remote, RemoteSettings};
use crate::{Environment, ExecError, SandboxError, agent_env};

/// Confines the scripts of a [`LocalExec`](crate::LocalExec) and the programs of a
/// [`Process`](crate::Process). What it promises is in `docs/sandboxes.md` of the project.
#[derive(Debug)]
pub struct Sandbox {
    provider: Provider,
}

#[derive(Debug)]
enum Provider {
    Bwrap(Bwrap, PathBuf),
    Remote(Arc<Remote>),
}

impl Sandbox {
    /// A bubblewrap sandbox.
    ///
    /// # Errors
    ///
    /// `bwrap` is not installed, or a directory cannot be used.
    pub fn bwrap(settings: &BwrapSettings) -> Result<Self, SandboxError> {
        let state_dir = settings.state_dir.clone();
        Ok(Self { provider: Provider::Bwrap(Bwrap::new(settings)?, state_dir) })
    }

    /// A sandbox in a container or on another machine. Nothing is started before [`start`](Self::start).
    ///
    /// # Errors
    ///
    /// The program that reaches it is not installed, or a directory cannot be used.
    pub fn remote(settings: RemoteSettings) -> Result<Self, SandboxError> {
        Ok(Self { provider: Provider::Remote(Arc::new(Remote::new(settings)?)) })
    }

    /// Starts a program in it that does nothing, and waits for it. An image that is not there is pulled.
    ///
    /// # Errors
    ///
    /// It does not start.
    pub fn check(&self) -> Result<(), SandboxError> {
        let bwrap = match &self.provider {
            Provider::Bwrap(bwrap, _) => bwrap,
            Provider::Remote(remote) => return remote.check(),
        };
        let broken = |message: String| SandboxError::Broken { program: "bwrap", message };
        let root = Path::new("/");
        let unusable = |error: std::io::Error| SandboxError::Unusable {
            message: error.to_string(),
            fix: "remove the files, or name their directories in `write` of [run.sandbox]"
                .to_owned(),
        };
        let mut command = bwrap.command(&Launch::shell(root)).map_err(unusable)?;
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

    /// Starts what scripts need: the container with the working directory, or the connection to the other machine and
    /// the copy there. What an earlier driver of the run has left running there is killed. A sandbox of this machine
    /// needs nothing.
    ///
    /// # Errors
    ///
    /// It does not start, or cannot be reached.
    pub async fn start(&self) -> Result<(), SandboxError> {
        match &self.provider {
            Provider::Bwrap(..) => Ok(()),
            Provider::Remote(remote) => remote.start().await,
        }
    }

    /// Ends what runs in it, and removes the container or the copy on the other machine. This blocks the thread.
    ///
    /// # Errors
    ///
    /// It cannot be reached.
    pub fn remove(&self) -> Result<(), SandboxError> {
        match &self.provider {
            Provider::Bwrap(..) => Ok(()),
            Provider::Remote(remote) => remote.remove(),
        }
    }

    /// A command that runs `/bin/sh` in the sandbox with these arguments and variables, for a person at a terminal or
    /// for a program. Another machine gets no variables.
    ///
    /// # Errors
    ///
    /// A directory cannot be used, or the sandbox is not there.
    pub fn interactive(
        &self,
        cwd: &Path,
        env: &[(String, String)],
        args: &[String],
        terminal: bool,
    ) -> Result<Command, SandboxError> {
        let bwrap = match &self.provider {
            Provider::Bwrap(bwrap, _) => bwrap,
            Provider::Remote(remote) => return remote.interactive(env, args, terminal),
        };
        let failed = |source| SandboxError::Directory { path: cwd.to_owned(), source };
        let mut command = bwrap.command(&Launch::shell(cwd)).map_err(failed)?;
        command.args(args).env_clear().envs(env.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    /// The files and directories below a working directory that programs in it do not see.
    pub fn hidden_in(&self, work_dir: &Path) -> Vec<PathBuf> {
        match &self.provider {
            Provider::Bwrap(bwrap, _) => bwrap.hidden_in(work_dir),
            Provider::Remote(remote) => remote.hidden_in(work_dir),
        }
    }

    /// A text for programs in it: files of this machine below these directories, and those of the working directory,
    /// have the paths that they have there. Scripts can name files of `dirs` both ways.
    pub fn shown<'t>(&self, text: &'t str, work_dir: &Path, dirs: &[PathBuf]) -> Cow<'t, str> {
        match &self.provider {
            Provider::Bwrap(..) => Cow::Borrowed(text),
            Provider::Remote(remote) => remote.shown(text, work_dir, dirs),
        }
    }

    /// The path of this machine for one that a program in it may name. `dirs` have the values of runs.
    pub fn local_path<'p>(&self, path: &'p str, work_dir: &Path, dirs: &[PathBuf]) -> Cow<'p, str> {
        match &self.provider {
            Provider::Bwrap(..) => Cow::Borrowed(path),
            Provider::Remote(remote) => remote.local_path(path, work_dir, dirs),
        }
    }

    pub(crate) fn as_remote(&self) -> Option<&Arc<Remote>> {
        match &self.provider {
            Provider::Bwrap(..) => None,
            Provider::Remote(remote) => Some(remote),
        }
    }

    /// Checks the working directory again after a script whose end could not be checked: one that was dropped, or that
    /// failed with [`ExecError::Unguarded`]. Returns a line for each file that was renamed. Does nothing otherwise.
    ///
    /// # Errors
    ///
    /// The working directory cannot be searched, or a file not be renamed.
    pub fn check_again(&self, work_dir: &Path) -> Result<String, ExecError> {
        // A directory that was removed has no files.
        let Ok(Some(scope)) = self.scope(work_dir) else { return Ok(String::new()) };
        check_again(scope).result()
    }

    /// Where a script in this directory could create control files; `None` where it works on a copy.
    fn scope(&self, cwd: &Path) -> std::io::Result<Option<Scope>> {
        match &self.provider {
            Provider::Bwrap(bwrap, _) => bwrap.scope(cwd).map(Some),
            Provider::Remote(remote) => Ok(remote.scope(&cwd.canonicalize()?)),
        }
    }

    /// Guards the working directory of a script of this machine.
    pub(crate) fn guard(&self, cwd: &Path) -> Result<Option<ControlGuard>, ExecError> {
        let Provider::Bwrap(bwrap, state_dir) = &self.provider else { return Ok(None) };
        let scope = bwrap.scope(cwd).map_err(|_| ExecError::WorkingDirectory(cwd.to_owned()))?;
        ControlGuard::begin(scope, state_dir).map(Some)
    }

    /// The command for a program of this machine in the sandbox.
    pub(crate) fn command(&self, launch: &Launch<'_>) -> std::io::Result<Command> {
        match &self.provider {
            Provider::Bwrap(bwrap, _) => bwrap.command(launch),
            Provider::Remote(_) => Err(std::io::Error::new(
                std::io::ErrorKind::Unsupported,
                "programs with pipes run on this machine only",
            )),
        }
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
