//! Another machine, by the `ssh` of the user with the user's own settings and keys. Nothing is installed there.

use std::fs::{DirBuilder, Metadata};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::docker::last_line;
use super::program::{BOOT, quote};
use crate::SandboxError;
use crate::group::GroupLeader;
use crate::programs;

/// How long the connection that others share may take to be there; without it each program has one of its own.
const CONNECTING: Duration = Duration::from_secs(5);

/// Another machine.
#[derive(Clone, Debug)]
pub struct SshSettings {
    /// The machine, as `ssh` takes it: `user@host`, or a name of the user's settings.
    pub host: String,
    /// The directory there in which each run has its own, absolute or relative to the home directory; `fabro` when
    /// `None`.
    pub directory: Option<String>,
    /// The file with the settings of `ssh`; those of the user and the system when `None`.
    pub config: Option<PathBuf>,
}

/// The client, and the connection that programs share.
#[derive(Debug)]
pub(super) struct Ssh {
    client: PathBuf,
    settings: SshSettings,
    /// The socket of the shared connection.
    socket: PathBuf,
    shared: Mutex<Option<(Child, GroupLeader)>>,
}

impl Ssh {
    pub(super) fn new(settings: SshSettings, run: &str) -> Result<Self, SandboxError> {
        let client = programs::in_path("ssh").ok_or(SandboxError::Missing {
            program: "ssh",
            install: "install OpenSSH (`apt-get install openssh-client`)",
        })?;
        if settings.host.starts_with('-') || settings.host.contains(char::is_whitespace) {
            return Err(SandboxError::Unusable {
                message: format!("`{}` is not the name of a machine", settings.host),
                fix: "set `run.sandbox.host` to `user@host` or a name of ~/.ssh/config".to_owned(),
            });
        }
        // The path of a socket has at most about a hundred bytes, so it is not in the directory of the run.
        let user = rustix::process::geteuid().as_raw();
        let dir = PathBuf::from(format!("/tmp/fabro-ssh-{user}"));
        let failed = |source| SandboxError::Directory { path: dir.clone(), source };
        let made = DirBuilder::new().mode(0o700).create(&dir);
        if let Err(error) = made
            && error.kind() != std::io::ErrorKind::AlreadyExists
        {
            return Err(failed(error));
        }
        let found = std::fs::symlink_metadata(&dir).map_err(failed)?;
        let is_private = |found: &Metadata| {
            found.is_dir() && found.uid() == user && found.mode().trailing_zeros() >= 6
        };
        if !is_private(&found) {
            return Err(SandboxError::Unusable {
                message: format!("{} belongs to another user", dir.display()),
                fix: "have it removed".to_owned(),
            });
        }
        Ok(Self { client, settings, socket: dir.join(run), shared: Mutex::new(None) })
    }

    pub(super) fn describe(&self) -> String {
        self.settings.host.clone()
    }

    /// The directory in which each run has its own.
    pub(super) fn directory(&self) -> &str {
        let dir = self.settings.directory.as_deref().unwrap_or("fabro");
        let dir = dir.strip_prefix("~/").unwrap_or(dir).trim_end_matches('/');
        if dir.is_empty() || dir == "~" { "." } else { dir }
    }

    fn ssh(&self) -> Command {
        let mut command = Command::new(&self.client);
        if let Some(config) = &self.settings.config {
            command.arg("-F").arg(config);
        }
        command.args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=20"]);
        command.args(["-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3"]);
        // The other machine gets nothing of this one, also where the settings of the user say so.
        command.args([
            "-o",
            "ForwardAgent=no",
            "-o",
            "ForwardX11=no",
            "-o",
            "ClearAllForwardings=yes",
        ]);
        command.args(["-o", "PermitLocalCommand=no", "-o", "LogLevel=ERROR"]);
        command.arg("-o").arg(format!("ControlPath={}", self.socket.display()));
        command
    }

    /// A shell there that reads its program.
    pub(super) fn shell(&self) -> Command {
        let mut command = self.ssh();
        command.args(["-T", "-o", "ControlMaster=no", "--", &self.settings.host]);
        // The shell of a login may be any.
        command.arg(format!("exec sh -c {}", quote(BOOT)));
        command
    }

    /// A shell for a person; its arguments follow.
    pub(super) fn interactive(&self, cwd: &str, terminal: bool, args: &[String]) -> Command {
        let mut command = self.ssh();
        command.args([if terminal { "-t" } else { "-T" }, "-o", "ControlMaster=no", "--"]);
        let words: Vec<String> = args.iter().map(|arg| quote(arg)).collect();
        let script = format!("cd {} && exec sh {}", quote(cwd), words.join(" "));
        command.arg(&self.settings.host).arg(format!("exec sh -c {}", quote(&script)));
        command
    }

    /// Whether the connection that programs share is there.
    pub(super) fn is_connected(&self) -> bool {
        let mut command = self.ssh();
        command.args(["-O", "check", "--", &self.settings.host]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.socket.exists() && command.status().is_ok_and(|status| status.success())
    }

    /// Opens the connection that programs share. One that an earlier driver has left is closed.
    pub(super) fn connect(&self) -> Result<(), SandboxError> {
        self.disconnect();
        let mut command = self.ssh();
        command.args(["-T", "-o", "ControlMaster=no", "--", &self.settings.host, "exec true"]);
        let tried = command.stdin(Stdio::null()).output();
        let tried = tried.map_err(|error| self.unreachable(&error.to_string()))?;
        if !tried.status.success() {
            return Err(self.unreachable(&last_line(&tried)));
        }
        let mut command = self.ssh();
        command.args(["-N", "-T", "-o", "ControlMaster=yes", "-o", "ControlPersist=no", "--"]);
        command.arg(&self.settings.host);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        {
            use std::os::unix::process::CommandExt as _;
            command.process_group(0);
        }
        let spawned = GroupLeader::spawn(|| command.spawn(), |child| Some(child.id()));
        let spawned = spawned.map_err(|error| self.unreachable(&error.to_string()))?;
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = Some(spawned);
        let start = Instant::now();
        while !Path::exists(&self.socket) && start.elapsed() < CONNECTING {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Closes the connection that programs share, also that of another process.
    pub(super) fn disconnect(&self) {
        if self.socket.exists() {
            let mut command = self.ssh();
            command.args(["-O", "exit", "--", &self.settings.host]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            // A socket that no process listens at is replaced.
            let _ = command.status();
            let _ = std::fs::remove_file(&self.socket);
        }
        let child = self.shared.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((mut child, _leader)) = child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub(super) fn unreachable(&self, message: &str) -> SandboxError {
        let host = &self.settings.host;
        SandboxError::Unusable {
            message: format!("{host} cannot be reached: {message}"),
            fix: format!("make `ssh -o BatchMode=yes {host} true` work, without a password"),
        }
    }
}

impl Drop for Ssh {
    fn drop(&mut self) {
        // That of another process stays: it may be that of the driver.
        let shared = self.shared.get_mut().unwrap_or_else(PoisonError::into_inner);
        if shared.is_some() {
            self.disconnect();
        }
    }
}
