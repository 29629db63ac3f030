//! Containers, by the `docker` of the user: it knows contexts, `DOCKER_HOST` and logins at registries.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use super::program::BOOT;
use crate::SandboxError;
use crate::programs;

/// Keeps the container alive, and removes processes that ended and have no parent. A signal of a script cannot end it.
const KEEP: &str = "trap \"exit 0\" TERM; while :; do sleep 86400 & wait $!; done";

/// What root may do in a container with a copy of the working directory, of what Docker allows by default: enough to
/// install packages, and to end what runs as another user.
const CAPABILITIES: [&str; 6] = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETGID", "SETUID"];

/// The label of a container with the user of its scripts, where that is not its own.
const USER_LABEL: &str = "fabro.user";

/// Where programs in the container keep what they know of each other: in memory, so it is gone when the container stops,
/// and with it what they know of.
pub(super) const BASE: &str = "/run/fabro";

/// The size of that, in bytes: long scripts are in it.
const BASE_BYTES: u64 = 256 << 20;

/// A user without rights.
const NO_USER: &str = "65534:65534";

/// A container for a run.
#[derive(Clone, Debug)]
pub struct DockerSettings {
    /// The name of its image.
    pub image: String,
    /// Its memory, in bytes; swap is not added to it.
    pub memory: Option<u64>,
    /// Its processors.
    pub cpus: Option<f64>,
    /// How many processes and threads it may have.
    pub max_processes: u32,
    /// Whether it has the default network of the engine; otherwise it has none.
    pub network: bool,
    /// The size of `/tmp`, in bytes: it is in memory then.
    pub tmp_size: Option<u64>,
    /// Whether the working directory is copied; otherwise it is mounted.
    pub copy: bool,
    /// Files and directories of this machine that are mounted too, to be read.
    pub read: Vec<PathBuf>,
    /// The same, to be written.
    pub write: Vec<PathBuf>,
}

/// The client, and the container.
#[derive(Debug)]
pub(super) struct Docker {
    client: PathBuf,
    settings: DockerSettings,
    name: String,
    run: String,
    /// The ids of the user and group of scripts; `None` for those of the image.
    user: Option<String>,
    /// That of the image, once it is known: empty where it is root.
    of_image: OnceLock<String>,
}

impl Docker {
    pub(super) fn new(settings: DockerSettings, run: &str) -> Result<Self, SandboxError> {
        let client = programs::in_path("docker").ok_or(SandboxError::Missing {
            program: "docker",
            install: "install Docker (`apt-get install docker.io`, or see https://docs.docker.com/engine/install)",
        })?;
        let ids = (rustix::process::geteuid(), rustix::process::getegid());
        let user = format!("{}:{}", ids.0.as_raw(), ids.1.as_raw());
        Ok(Self {
            client,
            name: format!("fabro-{}", run.to_ascii_lowercase()),
            run: run.to_owned(),
            user: (!settings.copy).then_some(user),
            of_image: OnceLock::new(),
            settings,
        })
    }

    pub(super) fn settings(&self) -> &DockerSettings {
        &self.settings
    }

    /// A name for messages.
    pub(super) fn describe(&self) -> String {
        format!("the container {}", self.name)
    }

    fn docker<const N: usize>(&self, args: [&str; N]) -> Command {
        let mut command = Command::new(&self.client);
        command.args(args).stdin(Stdio::null());
        command
    }

    /// A shell in the container that reads its program.
    pub(super) fn shell(&self) -> Command {
        let mut command = self.docker(["exec", "-i", "-w", "/"]);
        self.add_user(&mut command);
        command.arg(&self.name).args(["sh", "-c", BOOT]);
        command
    }

    /// A shell for a person, with or without a terminal; its arguments follow.
    pub(super) fn interactive(
        &self,
        cwd: &str,
        env: &[(String, String)],
        terminal: bool,
    ) -> Command {
        let mut command = Command::new(&self.client);
        command.args(["exec", if terminal { "-it" } else { "-i" }, "-w", cwd]);
        self.add_user(&mut command);
        for (name, value) in env {
            // The client reads the value from its own environment, so it is in no command line.
            command.args(["-e", name]).env(name, value);
        }
        command.arg(&self.name).arg("sh");
        command
    }

    fn add_user(&self, command: &mut Command) {
        match &self.user {
            Some(user) => _ = command.args(["-u", user]),
            None => match self.labeled_user().as_str() {
                "" => {}
                user => _ = command.args(["-u", user]),
            },
        }
    }

    /// The user of the image, as the container's label says. Without an answer of the engine commands fail; if they do
    /// not, they must not run as root.
    fn labeled_user(&self) -> String {
        if let Some(known) = self.of_image.get() {
            return known.clone();
        }
        let format = format!("{{{{index .Config.Labels \"{USER_LABEL}\"}}}}");
        match Self::output(self.docker(["container", "inspect", "--format", &format, &self.name])) {
            Ok(found) if found.status.success() => {
                let user = String::from_utf8_lossy(&found.stdout).trim().to_owned();
                self.of_image.get_or_init(|| user).clone()
            }
            _ => NO_USER.to_owned(),
        }
    }

    /// The user that the image names, where that is not root.
    fn user_of_image(&self) -> Result<Option<String>, SandboxError> {
        if !self.settings.copy {
            return Ok(None);
        }
        let image = &self.settings.image;
        let args = ["image", "inspect", "--format", "{{.Config.User}}", "--", image];
        let found = Self::output(self.docker(args))?;
        if !found.status.success() {
            return Err(unreachable(&last_line(&found)));
        }
        let user = String::from_utf8_lossy(&found.stdout).trim().to_owned();
        let is_root = ["", "0", "root"].contains(&user.split(':').next().unwrap_or_default());
        Ok(Some(user).filter(|_| !is_root))
    }

    /// Gets the image if it is not there, and starts a container of the same kind that ends at once.
    pub(super) fn check(&self, needed: &str, mounts: &[Mount]) -> Result<(), SandboxError> {
        let image = &self.settings.image;
        let found =
            Self::output(self.docker(["image", "inspect", "--format", "{{.Id}}", "--", image]))?;
        if !found.status.success() {
            if !is_missing(&found) {
                return Err(unreachable(&last_line(&found)));
            }
            let pulled = Self::output(self.docker(["pull", "-q", "--", image]))?;
            if !pulled.status.success() {
                return Err(SandboxError::Unusable {
                    message: format!("there is no image `{image}`: {}", last_line(&pulled)),
                    fix: "correct `run.sandbox.image`, build the image, or log in at its registry"
                        .to_owned(),
                });
            }
        }
        let mut command = self.docker(["run", "--rm"]);
        self.configure(&mut command, mounts);
        command.args(["--entrypoint", "sh", "--", image, "-c", needed]);
        let ran = Self::output(command)?;
        if ran.status.success() {
            return Ok(());
        }
        let (message, fix) = match ran.status.code() {
            Some(3) => (
                format!("the image `{image}` has no program `{}`", last_line(&ran)),
                "use an image with a shell, sed, grep, find, xargs and tar, such as `debian` or `alpine`",
            ),
            Some(4) => (
                "its engine does not see the working directory: it runs on another machine"
                    .to_owned(),
                "set `run.sandbox.workspace = \"copy\"`",
            ),
            Some(5) => (
                "the user of the container cannot write the working directory".to_owned(),
                "set `run.sandbox.workspace = \"copy\"`, or use an engine that runs as root",
            ),
            _ => (
                format!("a container of the image `{image}` does not start: {}", last_line(&ran)),
                "correct the settings of `run.sandbox`, or use another image",
            ),
        };
        Err(SandboxError::Unusable { message, fix: fix.to_owned() })
    }

    /// Starts the container, in which this of the machine is seen. One that an earlier driver has left is used again; what
    /// ran in it is killed.
    pub(super) fn start(&self, mounts: &[Mount]) -> Result<(), SandboxError> {
        let format = "{{.State.Running}}";
        let found =
            Self::output(self.docker(["container", "inspect", "--format", format, &self.name]))?;
        if found.status.success() {
            if found.stdout.starts_with(b"true") {
                Self::done(self.docker(["kill", &self.name]))?;
            }
            return Self::done(self.docker(["start", &self.name]));
        }
        if !is_missing(&found) {
            return Err(unreachable(&last_line(&found)));
        }
        let mut command = self.docker(["run", "-d", "--name", &self.name, "--pull", "never"]);
        self.configure(&mut command, mounts);
        if let Some(user) = self.user_of_image()? {
            // Where the user of a container is not root, root has no capabilities in it either, and cannot make the
            // working directory. Scripts have the user of the image.
            command.args(["-u", "0:0", "--label", &format!("{USER_LABEL}={user}")]);
        }
        command.args(["--entrypoint", "sh", "--", &self.settings.image, "-c", KEEP]);
        Self::done(command).inspect_err(|_| {
            // One that was created and does not start is of no use to the next driver.
            let _ = self.remove();
        })
    }

    /// Makes a directory of the container that belongs to the user of scripts.
    pub(super) fn make_directory(&self, path: &str) -> Result<(), SandboxError> {
        let mut ids = self.docker(["exec", "-w", "/"]);
        self.add_user(&mut ids);
        ids.arg(&self.name).args(["sh", "-c", "echo $(id -u):$(id -g)"]);
        let ids = Self::output(ids)?;
        let ids = String::from_utf8_lossy(&ids.stdout).trim().to_owned();
        let mut make = self.docker(["exec", "-w", "/", "-u", "0:0"]);
        let script = "mkdir -p \"$1\" && chown \"$2\" \"$1\"";
        make.arg(&self.name).args(["sh", "-c", script, "sh", path, &ids]);
        Self::done(make)
    }

    /// Starts the container if it has stopped; false when there is none.
    pub(super) fn wake(&self) -> Result<bool, SandboxError> {
        let woken = Self::output(self.docker(["start", &self.name]))?;
        if woken.status.success() {
            return Ok(true);
        }
        if is_missing(&woken) { Ok(false) } else { Err(unreachable(&last_line(&woken))) }
    }

    /// Whether the engine answers and the container runs.
    pub(super) fn runs(&self) -> bool {
        let format = "{{.State.Running}}";
        let found =
            Self::output(self.docker(["container", "inspect", "--format", format, &self.name]));
        found.is_ok_and(|found| found.stdout.starts_with(b"true"))
    }

    /// Whether programs can be started in it: not when a script has left as many processes as it may have.
    pub(super) fn starts_programs(&self) -> bool {
        let mut command = self.docker(["exec", "-w", "/"]);
        self.add_user(&mut command);
        let script = "x=$(echo | sed s/^/x/ | sed s/x/xx/) && [ \"$x\" = xx ]";
        command.arg(&self.name).args(["sh", "-c", script]);
        Self::output(command).is_ok_and(|output| output.status.success())
    }

    /// Kills and removes the container, if there is one.
    pub(super) fn remove(&self) -> Result<(), SandboxError> {
        let removed = Self::output(self.docker(["rm", "-f", "-v", &self.name]))?;
        if removed.status.success() || is_missing(&removed) {
            return Ok(());
        }
        Err(unreachable(&last_line(&removed)))
    }

    fn configure(&self, command: &mut Command, mounts: &[Mount]) {
        let settings = &self.settings;
        command.args(["--label", &format!("fabro.run={}", self.run)]);
        command.args(["--hostname", "fabro", "--workdir", "/", "--log-driver", "none"]);
        command.args(["--cap-drop", "ALL", "--security-opt", "no-new-privileges"]);
        command.args(["--pids-limit", &settings.max_processes.to_string()]);
        if !settings.network {
            command.args(["--network", "none"]);
        }
        if let Some(bytes) = settings.memory {
            let bytes = bytes.to_string();
            command.args(["--memory", &bytes, "--memory-swap", &bytes]);
        }
        if let Some(cpus) = settings.cpus {
            command.args(["--cpus", &cpus.to_string()]);
        }
        if let Some(bytes) = settings.tmp_size {
            command.arg("--mount").arg(Mount::Memory("/tmp".into(), Some(bytes)).argument());
        }
        if let Some(user) = &self.user {
            command.args(["-u", user]);
        }
        if settings.copy {
            for name in CAPABILITIES {
                command.args(["--cap-add", name]);
            }
            command.args(["--cap-add", "KILL"]);
        }
        let base = Mount::Memory(BASE.into(), Some(BASE_BYTES));
        for mount in mounts.iter().chain([&base]) {
            command.arg("--mount").arg(mount.argument());
        }
    }

    fn done(command: Command) -> Result<(), SandboxError> {
        let output = Self::output(command)?;
        if output.status.success() { Ok(()) } else { Err(unreachable(&last_line(&output))) }
    }

    fn output(mut command: Command) -> Result<Output, SandboxError> {
        command.output().map_err(|error| unreachable(&error.to_string()))
    }
}

/// Something of this machine at the same path in the container.
#[derive(Clone, Debug)]
pub(super) enum Mount {
    Read(PathBuf),
    Write(PathBuf),
    /// A directory in memory, of this size or of half of the memory.
    Memory(PathBuf, Option<u64>),
    /// An empty directory that cannot be written.
    Empty(PathBuf),
}

impl Mount {
    fn argument(&self) -> OsString {
        match self {
            Self::Read(path) => fields(&[
                Field::Word("type=bind"),
                Field::Path("src", path),
                Field::Path("dst", path),
                Field::Word("readonly"),
            ]),
            Self::Write(path) => fields(&[
                Field::Word("type=bind"),
                Field::Path("src", path),
                Field::Path("dst", path),
            ]),
            Self::Memory(path, bytes) => {
                let size = bytes.map(|bytes| format!("tmpfs-size={bytes}"));
                let mut all = vec![
                    Field::Word("type=tmpfs"),
                    Field::Path("dst", path),
                    Field::Word("tmpfs-mode=1777"),
                ];
                all.extend(size.as_deref().map(Field::Word));
                fields(&all)
            }
            Self::Empty(path) => fields(&[
                Field::Word("type=tmpfs"),
                Field::Path("dst", path),
                Field::Word("readonly"),
                Field::Word("tmpfs-mode=0555"),
            ]),
        }
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Read(path) | Self::Write(path) | Self::Memory(path, _) | Self::Empty(path) => {
                path
            }
        }
    }
}

enum Field<'a> {
    Word(&'a str),
    Path(&'a str, &'a Path),
}

/// The fields of a mount, which Docker reads as a line of CSV.
fn fields(fields: &[Field<'_>]) -> OsString {
    let mut line = OsString::new();
    for (index, field) in fields.iter().enumerate() {
        if index > 0 {
            line.push(",");
        }
        match field {
            Field::Word(word) => line.push(word),
            Field::Path(name, path) => {
                let text = path.to_string_lossy();
                line.push(format!("\"{name}={}\"", text.replace('"', "\"\"")));
            }
        }
    }
    line
}

/// Whether an object is not there, as far as the engine knows. An engine that is not reached knows nothing of it: then
/// there is "no such host" or "no such file".
fn is_missing(output: &Output) -> bool {
    let text = String::from_utf8_lossy(&output.stderr).to_ascii_lowercase();
    ["container", "image", "object"].iter().any(|it| text.contains(&format!("no such {it}: ")))
}

fn unreachable(message: &str) -> SandboxError {
    SandboxError::Unusable {
        message: format!("`docker` failed: {message}"),
        fix:
            "start the Docker engine, or let the user use it (`docker info` says whether it works)"
                .to_owned(),
    }
}

/// The last line that says something.
pub(super) fn last_line(output: &Output) -> String {
    let text = [&output.stdout[..], b"\n", &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut lines = lines.filter(|line| !line.starts_with("See '") && !line.starts_with("Run '"));
    lines.next_back().map_or_else(|| output.status.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_is_not_reached_is_not_a_missing_object() {
        let check = |stderr: &str, expected: bool| {
            let output = Output {
                status: std::process::ExitStatus::default(),
                stdout: Vec::new(),
                stderr: stderr.as_bytes().to_vec(),
            };
            assert_eq!(is_missing(&output), expected, "{stderr}");
        };
        check("Error: No such container: fabro-x", true);
        check("Error response from daemon: No such container: fabro-x", true);
        check("Error: No such image: x:1", true);
        check("Error: No such object: x", true);
        check("error during connect: dial tcp: lookup nonexistent.invalid: no such host", false);
        check("dial unix /nowhere.sock: connect: no such file or directory", false);
    }

    #[test]
    fn a_path_in_a_mount_may_have_commas_and_quotes() {
        let mount = Mount::Read("/a,\"b\"".into()).argument();
        assert_eq!(mount, "type=bind,\"src=/a,\"\"b\"\"\",\"dst=/a,\"\"b\"\"\",readonly");
    }
}
