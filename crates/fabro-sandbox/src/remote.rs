//! Scripts that run in a container or on another machine, by a client program of this one.

mod call;
mod copy;
mod docker;
mod program;
mod run;
mod shown;
mod ssh;
mod state;
mod sync;
mod tar;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Instant;

pub use docker::DockerSettings;
use docker::{Docker, Mount};
use program::ProgramDir;
use shown::Shown;
use ssh::Ssh;
pub use ssh::SshSettings;
use state::SyncState;
use sync::rules::{EXCLUDED, Rules, is_own_name};

use crate::SandboxError;
use crate::bwrap::repository;
use crate::control::{Scope, protected_paths};
use crate::stores::hide_stores;

/// What a sandbox in a container or on another machine is made from.
#[derive(Clone, Debug)]
pub struct RemoteSettings {
    /// The id of the run: letters and digits.
    pub run: String,
    /// The working directory of the run on this machine.
    pub work_dir: PathBuf,
    /// A directory of this machine for what is kept between two programs.
    pub state_dir: PathBuf,
    /// Directories that scripts do not see, the record of runs among them.
    pub hidden: Vec<PathBuf>,
    /// Whether scripts may write `.git` in the working directory.
    pub write_git: bool,
    /// Names of files and directories that are not copied; `None` for those that tools make for one machine.
    pub exclude: Option<Vec<String>>,
    /// The most bytes that are copied back after a script.
    pub copy_limit: u64,
    /// Where.
    pub engine: EngineSettings,
}

/// Where scripts run.
#[derive(Clone, Debug)]
pub enum EngineSettings {
    /// In a container.
    Docker(DockerSettings),
    /// On another machine.
    Ssh(SshSettings),
}

#[derive(Debug)]
enum Engine {
    Docker(Docker),
    Ssh(Ssh),
}

impl Engine {
    fn remove(&self, run: &str) -> Result<(), SandboxError> {
        let ssh = match self {
            Self::Docker(docker) => return docker.remove(),
            Self::Ssh(ssh) => ssh,
        };
        let place = ProgramDir { base: format!("{}/{SSH_BASE}", ssh_dir(ssh, run)), is_own: false };
        let dir = program::quote(&ssh_dir(ssh, run));
        // `base` is relative to the home directory, in which the shell starts.
        let body = format!("{}cd; rm -rf {dir}; exit 0", program::KILL_ALL);
        let text = format!("[ -d {dir} ] || exit 0\n{}", place.program("remove", &body));
        let output = call::at_once(&mut ssh.shell(), text.as_bytes());
        let output = output.map_err(|error| ssh.unreachable(&error.to_string()))?;
        ssh.disconnect();
        if output.status.success() {
            Ok(())
        } else {
            Err(ssh.unreachable(&docker::last_line(&output)))
        }
    }
}

/// Removes the container of a run, or its directory on another machine, with all that runs there. One that there is not
/// is no error. This blocks the thread.
///
/// # Errors
///
/// It cannot be reached.
pub fn remove_sandbox(run: &str, engine: EngineSettings) -> Result<(), SandboxError> {
    let engine = match engine {
        EngineSettings::Docker(settings) => Engine::Docker(Docker::new(settings, run)?),
        EngineSettings::Ssh(settings) => Engine::Ssh(Ssh::new(settings, run)?),
    };
    engine.remove(run)
}

/// The other side.
#[derive(Debug)]
pub(crate) struct Remote {
    engine: Engine,
    run: String,
    work_dir: PathBuf,
    rules: Rules,
    copy_limit: u64,
    /// The working directories and their copies; one that is mounted is its own.
    roots: RwLock<Vec<Arc<Root>>>,
    /// Known once it has been started.
    place: OnceLock<ProgramDir>,
    shown: Shown,
    state_dir: PathBuf,
    /// Scripts that may still run there, although this side has lost them.
    lost: Mutex<BTreeSet<String>>,
    /// Scripts that have succeeded, whose records are to be removed there.
    succeeded: Mutex<Vec<String>>,
    /// Whether the other side may have to be started again.
    is_down: AtomicBool,
    /// When the other side was last known to be there.
    seen: Mutex<Option<Instant>>,
    /// Held while that is found out and done.
    recovery: tokio::sync::Mutex<()>,
    next: AtomicU64,
}

/// A working directory.
#[derive(Debug)]
struct Root {
    /// On this machine.
    local: PathBuf,
    /// On the remote side.
    remote: String,
    /// Its place among the working directories.
    number: usize,
    /// Held while it is copied.
    state: tokio::sync::Mutex<Option<SyncState>>,
}

impl Root {
    fn new(local: PathBuf, remote: String, number: usize) -> Arc<Self> {
        Arc::new(Self { local, remote, number, state: tokio::sync::Mutex::default() })
    }

    /// The path on the remote side of one of this machine.
    fn remote_path(&self, local: &Path) -> Option<String> {
        let below = local.strip_prefix(&self.local).ok()?.to_str()?;
        Some(if below.is_empty() {
            self.remote.clone()
        } else {
            format!("{}/{below}", self.remote)
        })
    }
}

impl Remote {
    pub(crate) fn new(settings: RemoteSettings) -> Result<Self, SandboxError> {
        let RemoteSettings {
            run,
            work_dir,
            state_dir,
            hidden,
            write_git,
            exclude,
            copy_limit,
            engine,
        } = settings;
        let failed = |source| SandboxError::Directory { path: work_dir.clone(), source };
        let work_dir = work_dir.canonicalize().map_err(failed)?;
        if work_dir.to_str().is_none() || work_dir.parent().is_none() {
            return Err(SandboxError::WorkingDirectory(work_dir));
        }
        let mut hidden: Vec<PathBuf> =
            hidden.iter().filter_map(|it| it.canonicalize().ok()).collect();
        let write = match &engine {
            EngineSettings::Docker(settings) => settings.write.as_slice(),
            EngineSettings::Ssh(_) => &[],
        };
        hide_stores(&work_dir, &mut hidden, write)?;
        let exclude = exclude.unwrap_or_else(|| EXCLUDED.map(str::to_owned).to_vec());
        let rules = Rules { exclude, hidden, write_git };
        let engine = match engine {
            EngineSettings::Docker(settings) => Engine::Docker(Docker::new(settings, &run)?),
            EngineSettings::Ssh(settings) => Engine::Ssh(Ssh::new(settings, &run)?),
        };
        Ok(Self {
            engine,
            run,
            work_dir,
            rules,
            copy_limit,
            roots: RwLock::default(),
            place: OnceLock::new(),
            shown: Shown::new(&state_dir),
            state_dir,
            lost: Mutex::default(),
            succeeded: Mutex::default(),
            is_down: AtomicBool::new(false),
            seen: Mutex::default(),
            recovery: tokio::sync::Mutex::default(),
            next: AtomicU64::new(0),
        })
    }

    /// Whether the working directory is copied.
    fn copies(&self) -> bool {
        match &self.engine {
            Engine::Docker(docker) => docker.settings().copy,
            Engine::Ssh(_) => true,
        }
    }

    fn describe(&self) -> String {
        match &self.engine {
            Engine::Docker(docker) => docker.describe(),
            Engine::Ssh(ssh) => ssh.describe(),
        }
    }

    fn shell(&self) -> Command {
        match &self.engine {
            Engine::Docker(docker) => docker.shell(),
            Engine::Ssh(ssh) => ssh.shell(),
        }
    }

    /// A name that no other program of the run has.
    fn new_id(&self) -> String {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        format!("{}-{now:x}-{count}", self.run)
    }

    /// What of this machine a container sees.
    fn mounts(&self, docker: &Docker) -> Result<Vec<Mount>, SandboxError> {
        if docker.settings().copy {
            return Ok(Vec::new());
        }
        mounts(&self.work_dir, &self.rules, docker.settings())
    }

    /// Starts the container. This blocks the thread.
    fn start_container(&self, docker: &Docker) -> Result<(), SandboxError> {
        if !docker.settings().copy {
            // Else the engine makes it, as its own user.
            let path = self.work_dir.join(".fabro");
            let made = std::fs::create_dir_all(&path);
            made.map_err(|source| SandboxError::Directory { path, source })?;
        }
        docker.start(&self.mounts(docker)?)
    }

    /// Gets what is needed, and starts a program that does nothing.
    pub(crate) fn check(&self) -> Result<(), SandboxError> {
        match &self.engine {
            Engine::Docker(docker) => {
                let Some(probe) = self.probe() else { return docker.check(&needed(true), &[]) };
                let probe = probe.map_err(|source| SandboxError::Directory {
                    path: self.work_dir.clone(),
                    source,
                })?;
                let path = program::quote(&probe.path().to_string_lossy());
                let seen =
                    format!("{}[ -e {path} ] || exit 4\n[ -w {path} ] || exit 5\n", needed(false));
                docker.check(&seen, &self.mounts(docker)?)
            }
            Engine::Ssh(ssh) => {
                ssh.connect()?;
                let mut command = ssh.shell();
                let output = call::at_once(&mut command, needed(true).as_bytes());
                let output = output.map_err(|error| ssh.unreachable(&error.to_string()))?;
                match output.status.code() {
                    Some(0) => Ok(()),
                    Some(3) => Err(SandboxError::Unusable {
                        message: format!(
                            "{} has no program `{}`",
                            ssh.describe(),
                            docker::last_line(&output)
                        ),
                        fix: "install it there: sh, sed, grep, find, xargs and tar are needed"
                            .to_owned(),
                    }),
                    _ => Err(ssh.unreachable(&docker::last_line(&output))),
                }
            }
        }
    }

    /// A file in the working directory by which its mount is recognized.
    fn probe(&self) -> Option<std::io::Result<tempfile::NamedTempFile>> {
        let new = || tempfile::Builder::new().prefix(".fabro-probe-").tempfile_in(&self.work_dir);
        (!self.copies()).then(new)
    }

    /// Where a script could create control files: in a mounted working directory, except in what is hidden and what it
    /// may write.
    pub(crate) fn scope(&self, root: &Path) -> Option<Scope> {
        let Engine::Docker(docker) = &self.engine else { return None };
        let DockerSettings { copy: false, write, .. } = docker.settings() else { return None };
        let write = write.iter().filter_map(|path| path.canonicalize().ok());
        let git = self.rules.write_git.then(|| root.join(".git"));
        let skipped = self.rules.hidden.iter().cloned().chain(write).chain(git);
        let skipped = skipped.filter(|path| path != root).collect();
        Some(Scope { root: root.to_owned(), skipped })
    }

    /// Removes the container, or the directory on the other machine, with all that runs there.
    pub(crate) fn remove(&self) -> Result<(), SandboxError> {
        self.engine.remove(&self.run)
    }

    /// A shell for a person at a terminal, or for a program; its arguments follow. It is started again if it has stopped.
    pub(crate) fn interactive(
        &self,
        env: &[(String, String)],
        args: &[String],
        terminal: bool,
    ) -> Result<Command, SandboxError> {
        let gone = || SandboxError::Unusable {
            message: format!("{} is not there any more", self.describe()),
            fix: "set `run.sandbox.preserve = true` to keep it after the end of its run".to_owned(),
        };
        match &self.engine {
            Engine::Docker(docker) => {
                if !docker.wake()? {
                    return Err(gone());
                }
                let mut command =
                    docker.interactive(&self.work_dir.to_string_lossy(), env, terminal);
                command.args(args);
                Ok(command)
            }
            Engine::Ssh(ssh) => {
                let dir = format!("{}/work", ssh_dir(ssh, &self.run));
                let text = format!("[ -d {} ] || exit 4\n", program::quote(&dir));
                let output = call::at_once(&mut ssh.shell(), text.as_bytes());
                let output = output.map_err(|error| ssh.unreachable(&error.to_string()))?;
                match output.status.code() {
                    Some(0) => Ok(ssh.interactive(&dir, terminal, args)),
                    Some(4) => Err(gone()),
                    _ => Err(ssh.unreachable(&docker::last_line(&output))),
                }
            }
        }
    }

    /// What of the working directory scripts do not see.
    pub(crate) fn hidden_in(&self, work_dir: &Path) -> Vec<PathBuf> {
        let Ok(root) = work_dir.canonicalize() else { return Vec::new() };
        self.rules
            .hidden
            .iter()
            .filter(|it| it.starts_with(&root) && **it != root)
            .cloned()
            .collect()
    }

    /// A text in which files below these directories, and the working directory, have the paths that programs of the
    /// other side know.
    pub(crate) fn shown<'t>(
        &self,
        text: &'t str,
        work_dir: &Path,
        dirs: &[PathBuf],
    ) -> Cow<'t, str> {
        let Some(root) = self.root(work_dir) else { return Cow::Borrowed(text) };
        Cow::Owned(self.shown_in(&root, text, dirs, &|_| false).0)
    }

    fn shown_in(
        &self,
        root: &Root,
        text: &str,
        dirs: &[PathBuf],
        is_left_out: &dyn Fn(&Path) -> bool,
    ) -> (String, BTreeMap<String, PathBuf>) {
        let local = root.local.to_string_lossy();
        let between = |text: &str| {
            if local == root.remote {
                text.to_owned()
            } else {
                shown::with_directory(text, &local, &root.remote)
            }
        };
        let is_there = |path: &Path| self.has(root, path) || is_left_out(path);
        let found =
            self.shown.text(text, dirs, &format!("{}/.fabro", root.remote), is_there, between);
        (found.text, found.files)
    }

    /// Whether the other side has a file of this side in its working directory, where scripts may write it.
    fn has(&self, root: &Root, path: &Path) -> bool {
        let Ok(real) = path.canonicalize() else { return false };
        let (Ok(below), true) = (real.strip_prefix(&root.local), path.starts_with(&root.local))
        else {
            return false;
        };
        // The working directory may itself be in the store.
        let mut hidden = self.rules.hidden.iter().filter(|it| it.strip_prefix(&root.local).is_ok());
        let is_hidden = hidden.any(|hidden| *hidden != root.local && real.starts_with(hidden));
        let mut parts = below.components().map(std::path::Component::as_os_str);
        let is_excluded = self.copies() && parts.clone().any(|part| self.rules.excludes(part));
        let is_own = parts.next().is_some_and(|first| first == ".fabro")
            && parts.next().is_some_and(is_own_name);
        !is_hidden && !is_excluded && !is_own
    }

    /// The path of this side for one that a program of the other side may name.
    pub(crate) fn local_path<'p>(
        &self,
        path: &'p str,
        work_dir: &Path,
        dirs: &[PathBuf],
    ) -> Cow<'p, str> {
        let Some(root) = self.root(work_dir) else { return Cow::Borrowed(path) };
        let plain = path.strip_prefix("file://").unwrap_or(path);
        let below = match plain.strip_prefix(&*root.remote) {
            Some(below) => below.strip_prefix('/').or(below.is_empty().then_some(".")),
            None => (!plain.starts_with('/')).then(|| plain.strip_prefix("./").unwrap_or(plain)),
        };
        let Some(below) = below else { return Cow::Borrowed(path) };
        let shown = below.strip_prefix(".fabro/").and_then(|name| self.shown.file(name, dirs));
        if let Some(file) = shown {
            return Cow::Owned(file.to_string_lossy().into_owned());
        }
        if plain.starts_with('/') && *root.local.to_string_lossy() != root.remote {
            return Cow::Owned(root.local.join(below).to_string_lossy().into_owned());
        }
        Cow::Borrowed(path)
    }

    /// The working directory that contains a directory; one that is not known yet is added.
    fn root(&self, dir: &Path) -> Option<Arc<Root>> {
        let dir = dir.canonicalize().ok()?;
        let known =
            |roots: &[Arc<Root>]| roots.iter().find(|it| dir.starts_with(&it.local)).cloned();
        if let Some(root) = known(&self.roots.read().unwrap_or_else(PoisonError::into_inner)) {
            return Some(root);
        }
        let mut roots = self.roots.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(root) = known(&roots) {
            return Some(root);
        }
        let remote = match (&self.engine, roots.first()) {
            // It has not been started.
            (_, None) => return None,
            (Engine::Docker(_), _) => dir.to_str()?.to_owned(),
            (Engine::Ssh(_), Some(first)) => format!("{}-{}", first.remote, roots.len() + 1),
        };
        let root = Root::new(dir, remote, roots.len());
        roots.push(Arc::clone(&root));
        Some(root)
    }

    fn set_up(&self, remote: String) {
        let mut roots = self.roots.write().unwrap_or_else(PoisonError::into_inner);
        if roots.is_empty() {
            // Not in the working directory, where scripts may remove everything.
            let place = match (&self.engine, remote.rsplit_once('/')) {
                (Engine::Ssh(_), Some((dir, _))) => {
                    ProgramDir { base: format!("{dir}/{SSH_BASE}"), is_own: false }
                }
                _ => ProgramDir { base: docker::BASE.to_owned(), is_own: true },
            };
            let _ = self.place.set(place);
            roots.push(Root::new(self.work_dir.clone(), remote, 0));
        }
    }
}

/// The directory of a run on another machine, as it is written from the home directory.
fn ssh_dir(ssh: &Ssh, run: &str) -> String {
    format!("{}/{run}", ssh.directory())
}

/// Where programs of a run keep what they know of each other, in the directory of the run.
const SSH_BASE: &str = "run";

/// A program that prints what is missing on the other side and ends with 3.
fn needed(is_copied: bool) -> String {
    let all = if is_copied {
        "sed grep find xargs tar mkdir rm cat"
    } else {
        "sed grep tar mkdir rm cat"
    };
    format!(
        "for it in {all}; do command -v $it >/dev/null 2>&1 || {{ echo $it; exit 3; }}; done\n\
         [ -d /proc/$$ ] || {{ echo /proc; exit 3; }}\n"
    )
}

/// What of this machine a container sees when the working directory is mounted.
fn mounts(
    work_dir: &Path,
    rules: &Rules,
    settings: &DockerSettings,
) -> Result<Vec<Mount>, SandboxError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| SandboxError::Directory { path, source }
    };
    let mut all = vec![Mount::Write(work_dir.to_owned())];
    let asked =
        [(&settings.read, Mount::Read as fn(PathBuf) -> Mount), (&settings.write, Mount::Write)];
    for (paths, mount) in asked {
        for path in paths {
            all.push(mount(path.canonicalize().map_err(failed(path))?));
        }
    }
    all.extend(repository(work_dir, None).map(Mount::Read));
    let is_own = |path: &Path| std::fs::symlink_metadata(path).is_ok_and(|it| !it.is_symlink());
    // Not what the user has in there: values and artifacts are in it.
    let own = work_dir.join(".fabro");
    let entries = match std::fs::read_dir(&own) {
        // It is made when the container is started: a directory that is left by a check would look like a project.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        entries => Some(entries.map_err(failed(&own))?),
    };
    if entries.is_some() {
        all.push(Mount::Memory(own.clone(), None));
    }
    for entry in entries.into_iter().flatten() {
        let entry = entry.map_err(failed(&own))?;
        let path = entry.path();
        if !is_own_name(&entry.file_name()) && is_own(&path) && !rules.hidden.contains(&path) {
            all.push(Mount::Read(path));
        }
    }
    // A directory that contains a mount can be renamed, unless it is a mount itself.
    let between = |path: &Path| {
        let above = path.ancestors().skip(1).map(Path::to_owned);
        above.take_while(|it| it != work_dir).map(Mount::Write).collect::<Vec<_>>()
    };
    let mut skipped: BTreeSet<PathBuf> = all.iter().map(|it| it.path().to_owned()).collect();
    skipped.extend(rules.hidden.iter().cloned());
    skipped.insert(own.clone());
    skipped.extend(rules.write_git.then(|| work_dir.join(".git")));
    let scope = Scope { root: work_dir.to_owned(), skipped };
    let (control, walked) = scope.control_files();
    walked.map_err(|error| SandboxError::Unusable {
        message: format!("{error}, so files that later runs obey cannot be protected"),
        fix: error.fix().to_owned(),
    })?;
    for path in protected_paths(work_dir, &control) {
        all.splice(1..1, between(&path));
        all.push(Mount::Read(path));
    }
    for path in rules.hidden.iter().filter(|it| it.starts_with(work_dir) && *it != work_dir) {
        let is_in_own = path.starts_with(&own);
        if !is_in_own {
            all.extend(between(path));
        }
        if !is_in_own || path.parent() != Some(&own) {
            all.push(Mount::Empty(path.clone()));
        }
    }
    let mut paths = BTreeSet::new();
    // The last one of a path counts.
    all.reverse();
    all.retain(|mount| paths.insert(mount.path().to_owned()));
    all.reverse();
    Ok(all)
}
