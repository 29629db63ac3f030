//! Programs started by [bubblewrap](https://github.com/containers/bubblewrap), which see a part of this machine.

mod limit;
mod view;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use limit::ProcessLimit;
use view::View;
pub(crate) use view::repository;

use crate::control::Scope;
use crate::launch::Launch;
use crate::{SandboxError, programs};

/// What programs in a bubblewrap sandbox see and may do.
#[derive(Clone, Debug)]
pub struct BwrapSettings {
    /// The working directory, which they may write.
    pub work_dir: PathBuf,
    /// A directory for what is kept between two programs, such as their `/tmp`. It is created.
    pub state_dir: PathBuf,
    /// Directories that they do not see, the record of runs among them.
    pub hidden: Vec<PathBuf>,
    /// The home directory of the user, which they do not see, except for toolchains.
    pub home: Option<PathBuf>,
    /// Whether they use the network of this machine; otherwise they have none.
    pub network: bool,
    /// Files and directories that they may read although they would be hidden.
    pub read: Vec<PathBuf>,
    /// Files and directories that they may also write.
    pub write: Vec<PathBuf>,
    /// Whether they may write `.git` in the working directory.
    pub write_git: bool,
    /// The size of `/tmp` in bytes: it is in memory and begins empty for each program. `None`: it is a directory
    /// of `state_dir`, as large as the disk.
    pub tmp_size: Option<u64>,
    /// How many processes and threads they may have together.
    pub max_processes: u32,
}

/// A bubblewrap sandbox.
#[derive(Debug)]
pub(crate) struct Bwrap {
    program: PathBuf,
    view: View,
    network: bool,
    limit: ProcessLimit,
}

impl Bwrap {
    pub(crate) fn new(settings: &BwrapSettings) -> Result<Self, SandboxError> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let program = programs::in_path("bwrap").ok_or(SandboxError::Missing {
            program: "bwrap",
            install: "install bubblewrap (`apt-get install bubblewrap`, `dnf install bubblewrap`)",
        })?;
        let network = settings.network;
        let limit = ProcessLimit::new(settings.max_processes);
        Ok(Self { program, view: View::new(settings, &path)?, network, limit })
    }

    /// Where a script in this directory could create control files.
    pub(crate) fn scope(&self, cwd: &Path) -> std::io::Result<Scope> {
        self.view.scope(cwd)
    }

    /// The command that starts a program in the sandbox; its arguments follow.
    pub(crate) fn command(&self, launch: &Launch<'_>) -> std::io::Result<Command> {
        let mut args: Vec<OsString> = vec![self.program.clone().into()];
        let namespaces = ["user", "pid", "ipc", "uts"].map(|it| format!("--unshare-{it}"));
        args.extend(namespaces.map(OsString::from));
        args.push("--unshare-cgroup-try".into());
        if !self.network {
            args.push("--unshare-net".into());
        }
        args.extend(["--cap-drop", "ALL"].map(OsString::from));
        args.extend(self.view.arguments(launch, self.network)?);
        args.extend(["--chdir".into(), launch.cwd.into(), "--".into()]);
        args.extend(self.limit.inner_arguments());
        args.push(launch.program.into());
        let outer = self.limit.outer_arguments()?;
        let mut all = outer.into_iter().chain(args);
        let mut command = Command::new(all.next().unwrap_or_default());
        command.args(all);
        Ok(command)
    }

    /// The path under which a program in the sandbox finds a script file.
    pub(crate) const SCRIPT: &str = "/run/fabro/script";

    pub(crate) fn hidden_in(&self, work_dir: &Path) -> Vec<PathBuf> {
        self.view.hidden_in(work_dir)
    }
}
