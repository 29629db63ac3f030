//! Which files of this machine a program sees, as arguments of bubblewrap.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{Bwrap, BwrapSettings};
use crate::SandboxError;
use crate::control::{ControlFiles, Scope, protected_paths};
use crate::launch::Launch;
use crate::stores::hide_stores;

/// Directories of users, of other machines and of services. Sockets in `/run` would give away the machine.
const HIDDEN: [&str; 6] = ["/home", "/root", "/run", "/mnt", "/media", "/var/spool"];

/// What only root can read: of use here when the user is root.
const SECRETS_OF_SYSTEM: [&str; 12] = [
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssl/private",
    "/etc/wireguard",
    "/etc/NetworkManager/system-connections",
    "/var/lib/docker",
    "/var/lib/NetworkManager",
    "/var/lib/private",
];

/// Settings of the kernel for all of this machine. They belong to root, so a script of root could write them without
/// any capability, and `kernel.core_pattern` names a program that the kernel starts outside of the sandbox.
const KERNEL_SETTINGS: [&str; 11] = [
    "/proc/sys",
    "/proc/sysrq-trigger",
    "/proc/irq",
    "/proc/bus",
    "/proc/fs",
    "/proc/acpi",
    "/proc/scsi",
    "/proc/driver",
    "/proc/asound",
    "/proc/mtrr",
    "/proc/pressure",
];

/// Directories of toolchains in a home directory, which can be read.
const TOOLCHAINS: [&str; 39] = [
    ".cargo",
    ".rustup",
    ".local/bin",
    ".local/lib",
    ".local/pipx",
    ".local/share/fnm",
    ".local/share/mise",
    ".local/share/pipx",
    ".local/share/pnpm",
    ".local/share/uv",
    ".local/share/virtualenvs",
    ".nvm",
    ".fnm",
    ".volta",
    ".bun",
    ".deno",
    ".npm-global",
    ".yarn",
    ".pyenv",
    ".rbenv",
    ".rvm",
    ".gem",
    ".asdf",
    ".sdkman",
    ".jenv",
    ".nodenv",
    ".goenv",
    "go",
    "sdk",
    ".m2",
    ".dotnet",
    ".ghcup",
    ".cabal",
    ".stack",
    ".opam",
    ".elan",
    ".nix-profile",
    "miniconda3",
    "anaconda3",
];

/// Files and directories of a home directory that hold logins, where they would be seen because the working
/// directory or a toolchain contains them.
const SECRETS_OF_HOME: [&str; 59] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".netrc",
    ".git-credentials",
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".vault-token",
    ".boto",
    ".s3cfg",
    ".fly",
    ".heroku",
    ".terraform.d",
    ".terraformrc",
    ".password-store",
    ".mozilla",
    ".thunderbird",
    ".subversion",
    ".claude",
    ".claude.json",
    ".codex",
    ".gemini",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".psql_history",
    ".node_repl_history",
    ".local/share/keyrings",
    ".local/share/fish",
    ".local/share/TelegramDesktop",
    ".config/fabro",
    ".config/gcloud",
    ".config/gh",
    ".config/glab-cli",
    ".config/hub",
    ".config/git/credentials",
    ".config/op",
    ".config/rclone",
    ".config/doctl",
    ".config/sops",
    ".config/age",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/Code",
    ".config/Slack",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".gradle/gradle.properties",
    ".config/pypoetry",
];

/// The size of file systems in memory other than `/tmp`, in bytes.
const MEMORY: u64 = 256 << 20;

/// What a program sees at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Mount {
    /// An empty directory in memory.
    Empty,
    /// An empty directory in memory that it may write, of this size in bytes.
    Memory(u64),
    /// Nothing of a file.
    NoFile,
    /// A file or directory of this machine.
    Read(PathBuf),
    /// One that it may also write.
    Write(PathBuf),
}

#[derive(Debug)]
pub(super) struct View {
    /// Those that are the same for all programs. A path is below those that sort before it.
    mounts: BTreeMap<PathBuf, Mount>,
    work_dir: PathBuf,
    write_git: bool,
    hidden: Vec<PathBuf>,
    home: Option<PathBuf>,
}

impl View {
    pub(super) fn new(settings: &BwrapSettings, path: &OsStr) -> Result<Self, SandboxError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| SandboxError::Directory { path, source }
        };
        let work_dir = settings.work_dir.canonicalize().map_err(failed(&settings.work_dir))?;
        let is_system = |system: &str| Path::new(system).starts_with(&work_dir);
        if ["/usr", "/etc", "/var", "/tmp", "/dev", "/proc"].iter().any(|it| is_system(it)) {
            return Err(SandboxError::WorkingDirectory(work_dir));
        }
        let mut hidden: Vec<PathBuf> =
            settings.hidden.iter().filter_map(|it| it.canonicalize().ok()).collect();
        hide_stores(&work_dir, &mut hidden, &settings.write)?;
        let mut mounts = BTreeMap::new();
        for path in HIDDEN.into_iter().map(PathBuf::from).filter(|it| is_dir(it)) {
            mounts.insert(path, Mount::Empty);
        }
        for path in &hidden {
            mounts.insert(path.clone(), Mount::Empty);
        }
        let home = settings.home.as_deref().and_then(|home| home.canonicalize().ok());
        let home = home.filter(|home| home.parent().is_some() && home.is_dir());
        if let Some(home) = &home {
            mounts.insert(home.clone(), Mount::Memory(MEMORY));
            let below = std::env::split_paths(path).filter_map(|it| it.canonicalize().ok());
            let below = below.filter(|it| it.starts_with(home) && it != home && it.is_dir());
            let toolchains = TOOLCHAINS.iter().map(|name| home.join(name));
            for path in toolchains.filter(|it| it.is_dir()).chain(below) {
                mounts.insert(path.clone(), Mount::Read(path));
            }
        }
        for (at, name) in [("/tmp", "tmp"), ("/var/tmp", "var-tmp")] {
            let mount = if let Some(bytes) = settings.tmp_size {
                Mount::Memory(bytes)
            } else {
                let dir = settings.state_dir.join(name);
                fs::create_dir_all(&dir).map_err(failed(&dir))?;
                Mount::Write(dir.canonicalize().map_err(failed(&dir))?)
            };
            mounts.insert(at.into(), mount);
        }
        if let Some(path) = repository(&work_dir, home.as_deref()) {
            mounts.insert(path.clone(), Mount::Read(path));
        }
        for path in &settings.read {
            let path = path.canonicalize().map_err(failed(path))?;
            mounts.insert(path.clone(), Mount::Read(path));
        }
        for path in &settings.write {
            let path = path.canonicalize().map_err(failed(path))?;
            mounts.insert(path.clone(), Mount::Write(path));
        }
        let asked: Vec<PathBuf> = settings.read.iter().chain(&settings.write).cloned().collect();
        let asked: Vec<_> = asked.iter().filter_map(|path| path.canonicalize().ok()).collect();
        let secrets = home.iter().flat_map(|home| SECRETS_OF_HOME.map(|name| home.join(name)));
        let secrets = secrets.chain(SECRETS_OF_SYSTEM.map(PathBuf::from)).chain(host_keys());
        for path in secrets.filter(|it| !asked.contains(it)) {
            // Not through a link: what it leads to is seen, or hidden, where it is.
            match fs::symlink_metadata(&path) {
                Ok(found) if found.is_dir() => mounts.insert(path, Mount::Empty),
                Ok(found) if found.is_file() => mounts.insert(path, Mount::NoFile),
                _ => None,
            };
        }
        let view = Self { mounts, work_dir, write_git: settings.write_git, hidden, home };
        // The directories that lead to the working directory where `/tmp` is one of ours.
        view.with_cwd(&view.work_dir, &[], None).map_err(failed(&view.work_dir))?;
        Ok(view)
    }

    pub(super) fn hidden_in(&self, work_dir: &Path) -> Vec<PathBuf> {
        let Ok(root) = work_dir.canonicalize() else { return Vec::new() };
        let is_hidden = |mount: &Mount| !matches!(mount, Mount::Read(_) | Mount::Write(_));
        let below = self
            .mounts
            .iter()
            .filter(|(at, mount)| is_hidden(mount) && at.starts_with(&root) && **at != root);
        below.map(|(at, _)| at.clone()).collect()
    }

    /// Where a program in this directory could create control files.
    pub(super) fn scope(&self, cwd: &Path) -> io::Result<Scope> {
        let cwd = cwd.canonicalize()?;
        let root = if cwd.starts_with(&self.work_dir) { self.work_dir.clone() } else { cwd };
        let is_inside = |at: &&PathBuf| at.starts_with(&root) && **at != root;
        let mut skipped: BTreeSet<PathBuf> =
            self.mounts.keys().filter(is_inside).cloned().collect();
        skipped.extend(self.write_git.then(|| root.join(".git")));
        Ok(Scope { root, skipped })
    }

    /// All mounts for a program in this directory with these control files, which are looked for if they are not given.
    fn with_cwd(
        &self,
        cwd: &Path,
        reads: &[PathBuf],
        control: Option<&ControlFiles>,
    ) -> io::Result<BTreeMap<PathBuf, Mount>> {
        let mut mounts = self.mounts.clone();
        let scope = self.scope(cwd)?;
        let root = scope.root.clone();
        mounts.insert(root.clone(), Mount::Write(root.clone()));
        let searched;
        let control = if let Some(control) = control {
            control
        } else {
            let (found, walked) = scope.control_files();
            walked.map_err(io::Error::other)?;
            searched = found;
            &searched
        };
        for path in protected_paths(&root, control) {
            mounts.entry(path.clone()).or_insert(Mount::Read(path));
        }
        // Not one that has more in it than the stage.
        let contains = |path: &Path, inner: &PathBuf| inner.starts_with(path);
        let is_narrow = |path: &PathBuf| {
            !self.hidden.iter().chain(&self.home).any(|inner| contains(path, inner))
                && !mounts.contains_key(path)
                && !is_visible(&mounts, path)
        };
        let reads = reads.iter().filter_map(|it| it.canonicalize().ok());
        for path in reads.filter(is_narrow).collect::<Vec<_>>() {
            mounts.insert(path.clone(), Mount::Read(path));
        }
        let all = mounts.clone();
        mounts.retain(|at, mount| {
            !matches!(mount, Mount::Empty | Mount::NoFile) || is_visible(&all, at)
        });
        pin(&mut mounts)?;
        Ok(mounts)
    }

    /// The arguments of bubblewrap for the view of a program.
    pub(super) fn arguments(
        &self,
        launch: &Launch<'_>,
        network: bool,
    ) -> io::Result<Vec<OsString>> {
        let mut args = Arguments(Vec::new());
        args.put(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]);
        for path in KERNEL_SETTINGS.iter().map(Path::new).filter(|path| path.exists()) {
            args.put(["--ro-bind"]).path(path).path(path);
        }
        // With the user's terminal a program could type on it.
        args.put(["--dev-bind", "/dev/null", "/dev/tty"]);
        args.put(["--size", &MEMORY.to_string(), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]);
        let root = Path::new("/");
        let cwd = if launch.cwd == root { &self.work_dir } else { launch.cwd };
        let mounts = self.with_cwd(cwd, launch.reads, launch.control)?;
        let mut empty = Vec::new();
        for (at, mount) in &mounts {
            match mount {
                Mount::Empty => {
                    args.put(["--size", &MEMORY.to_string(), "--tmpfs"]).path(at);
                    empty.push(at);
                }
                Mount::Memory(bytes) => {
                    args.put(["--size", &bytes.to_string(), "--tmpfs"]).path(at);
                }
                Mount::NoFile => {
                    args.put(["--ro-bind", "/dev/null"]).path(at);
                }
                Mount::Read(from) => {
                    args.put(["--ro-bind"]).path(from).path(at);
                }
                Mount::Write(from) => {
                    args.put(["--bind"]).path(from).path(at);
                }
            }
        }
        // Where services of this machine are looked up by name, and the system of NixOS.
        let resolver = network.then(|| fs::canonicalize("/etc/resolv.conf").ok()).flatten();
        let system = ["/run/current-system", "/run/opengl-driver", "/run/wrappers"];
        let system = system.iter().map(PathBuf::from).filter(|path| path.exists());
        for path in resolver.filter(|path| path.starts_with("/run")).into_iter().chain(system) {
            args.put(["--ro-bind"]).path(&path).path(&path);
        }
        if let Some(file) = launch.file {
            args.put(["--ro-bind"]).path(file).path(Path::new(Bwrap::SCRIPT));
        }
        for at in empty {
            args.put(["--remount-ro"]).path(at);
        }
        if args.0.len() > MAX_ARGUMENTS {
            return Err(io::Error::other(format!(
                "protecting the files that later runs obey needs {} mounts, more than bubblewrap supports",
                mounts.len()
            )));
        }
        Ok(args.0)
    }
}

/// Whether what is at this path of this machine would be seen there, if nothing were mounted on it.
fn is_visible(mounts: &BTreeMap<PathBuf, Mount>, at: &Path) -> bool {
    let mut above = at.ancestors().skip(1);
    let covering = above.find_map(|above| Some((above, mounts.get(above)?)));
    match covering {
        None => true,
        Some((above, Mount::Read(from) | Mount::Write(from))) => from == above,
        Some((_, Mount::Empty | Mount::Memory(_) | Mount::NoFile)) => false,
    }
}

/// Bubblewrap accepts 9,000 arguments, including those of the program.
const MAX_ARGUMENTS: usize = 8_900;

/// The repository above the working directory, or of which it is a linked worktree, so that git works there.
pub(crate) fn repository(work_dir: &Path, home: Option<&Path>) -> Option<PathBuf> {
    let top = work_dir.ancestors().find(|above| above.join(".git").exists())?;
    let found = top.join(".git");
    if found.is_dir() {
        let is_home = home.is_some_and(|home| home.starts_with(top));
        return (top != work_dir && !is_home).then(|| top.to_owned());
    }
    let text = fs::read_to_string(&found).ok()?;
    let git_dir = top.join(text.strip_prefix("gitdir:")?.trim()).canonicalize().ok()?;
    // A script that writes `.git` could name any repository: only one that names this worktree back, or that has it
    // as a submodule, is mounted.
    let back = fs::read_to_string(git_dir.join("gitdir")).unwrap_or_default();
    let is_worktree = Path::new(back.trim()).canonicalize().is_ok_and(|back| back == found);
    let mut above = top.ancestors().skip(1);
    let common = if is_worktree {
        // The linked worktrees of a repository are in `worktrees` in it: a `commondir` could name another one.
        git_dir.parent().filter(|links| links.ends_with("worktrees"))?.parent()?.to_owned()
    } else if above.any(|above| git_dir.starts_with(above.join(".git"))) {
        git_dir
    } else {
        return None;
    };
    let is_repository = common.join("HEAD").is_file()
        && common.join("objects").is_dir()
        && common.join("refs").is_dir();
    is_repository.then_some(common)
}

/// Makes every directory between a directory that can be written and a mount below it a mount of its own: one
/// that is a mount cannot be renamed, so what is mounted below it stays where it is.
fn pin(mounts: &mut BTreeMap<PathBuf, Mount>) -> io::Result<()> {
    let mut pins = BTreeMap::new();
    for at in mounts.keys() {
        let mut between = Vec::new();
        for above in at.ancestors().skip(1) {
            match mounts.get(above) {
                Some(Mount::Write(from)) => {
                    for path in between.drain(..) {
                        let Ok(below) = Path::strip_prefix(path, above) else { continue };
                        let from = from.join(below);
                        fs::create_dir_all(&from)?;
                        pins.insert(Path::to_owned(path), Mount::Write(from));
                    }
                    break;
                }
                Some(_) => break,
                None => between.push(above),
            }
        }
    }
    for (at, mount) in pins {
        mounts.entry(at).or_insert(mount);
    }
    Ok(())
}

/// The private keys of this machine for ssh.
fn host_keys() -> Vec<PathBuf> {
    let entries = fs::read_dir("/etc/ssh").into_iter().flatten().flatten();
    let is_key = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("ssh_host_") && name.ends_with("_key")
    };
    entries.map(|entry| entry.path()).filter(is_key).collect()
}

fn is_dir(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

struct Arguments(Vec<OsString>);

impl Arguments {
    fn put<const N: usize>(&mut self, arguments: [&str; N]) -> &mut Self {
        self.0.extend(arguments.map(OsString::from));
        self
    }

    fn path(&mut self, path: &Path) -> &mut Self {
        self.0.push(path.into());
        self
    }
}
