use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::checked_settings::CheckedSettings;
use crate::file::expand;

/// What confines the scripts and agents of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum SandboxProvider {
    /// Nothing: they run on this machine.
    Local,
    /// A bubblewrap sandbox on this machine.
    Bwrap,
    /// A container.
    Docker,
    /// Another machine.
    Ssh,
}

impl SandboxProvider {
    /// All names.
    pub const NAMES: [&str; 4] = ["local", "bwrap", "docker", "ssh"];

    /// The provider of this name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "local" => Some(Self::Local),
            "bwrap" => Some(Self::Bwrap),
            "docker" => Some(Self::Docker),
            "ssh" => Some(Self::Ssh),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Bwrap => "bwrap",
            Self::Docker => "docker",
            Self::Ssh => "ssh",
        }
    }
}

/// How a container gets the working directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Workspace {
    /// It is mounted.
    #[default]
    Mount,
    /// It is copied into the container, and what scripts change is copied back after each of them.
    Copy,
}

impl Workspace {
    /// All names.
    pub const NAMES: &[&str] = &["mount", "copy"];
}

/// `[run.sandbox]`, without `env`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SandboxSettings {
    /// `provider`: what confines scripts and agents.
    pub provider: Option<SandboxProvider>,
    /// `network`: whether they have the network of this machine.
    pub network: Option<bool>,
    /// `read`: files and directories that they may read although they would be hidden.
    pub read: Option<Vec<PathBuf>>,
    /// `write`: files and directories that they may also write.
    pub write: Option<Vec<PathBuf>>,
    /// `write_git`: whether they may write `.git` in the working directory.
    pub write_git: Option<bool>,
    /// `tmp_size`: the size of `/tmp`, in bytes.
    pub tmp_size: Option<u64>,
    /// `max_processes`: how many processes and threads they may have.
    pub max_processes: Option<u32>,
    /// `preserve`: what is left in the sandbox stays when the run has ended.
    pub preserve: Option<bool>,
    /// `image`: the image of the container.
    pub image: Option<String>,
    /// `memory`: how much memory the container has, in bytes.
    pub memory: Option<u64>,
    /// `cpus`: how many processors the container has.
    pub cpus: Option<f64>,
    /// `workspace`: how the container gets the working directory.
    pub workspace: Option<Workspace>,
    /// `host`: the other machine, as `ssh` takes it.
    pub host: Option<String>,
    /// `directory`: the directory there in which the run has its own.
    pub directory: Option<String>,
    /// `exclude`: names of files and directories that are not copied.
    pub exclude: Option<Vec<String>>,
    /// `copy_limit`: how much may be copied back after a script, in bytes.
    pub copy_limit: Option<u64>,
}

impl SandboxSettings {
    /// These settings, completed from weaker ones.
    #[must_use]
    pub fn or(self, weaker: Self) -> Self {
        Self {
            provider: self.provider.or(weaker.provider),
            network: self.network.or(weaker.network),
            read: self.read.or(weaker.read),
            write: self.write.or(weaker.write),
            write_git: self.write_git.or(weaker.write_git),
            tmp_size: self.tmp_size.or(weaker.tmp_size),
            max_processes: self.max_processes.or(weaker.max_processes),
            preserve: self.preserve.or(weaker.preserve),
            image: self.image.or(weaker.image),
            memory: self.memory.or(weaker.memory),
            cpus: self.cpus.or(weaker.cpus),
            workspace: self.workspace.or(weaker.workspace),
            host: self.host.or(weaker.host),
            directory: self.directory.or(weaker.directory),
            exclude: self.exclude.or(weaker.exclude),
            copy_limit: self.copy_limit.or(weaker.copy_limit),
        }
    }

    pub(crate) fn take(checked: &mut CheckedSettings) -> Self {
        Self {
            provider: checked.take("/run/sandbox/provider"),
            network: checked.take("/run/sandbox/network"),
            read: checked.take("/run/sandbox/read"),
            write: checked.take("/run/sandbox/write"),
            write_git: checked.take("/run/sandbox/write_git"),
            tmp_size: checked.take("/run/sandbox/tmp_size"),
            max_processes: checked.take("/run/sandbox/max_processes"),
            preserve: checked.take("/run/sandbox/preserve"),
            image: checked.take("/run/sandbox/image"),
            memory: checked.take("/run/sandbox/memory"),
            cpus: checked.take("/run/sandbox/cpus"),
            workspace: checked.take("/run/sandbox/workspace"),
            host: checked.take("/run/sandbox/host"),
            directory: checked.take("/run/sandbox/directory"),
            exclude: checked.take("/run/sandbox/exclude"),
            copy_limit: checked.take("/run/sandbox/copy_limit"),
        }
    }

    /// With absolute paths: relative ones are relative to `dir`, and `~` stands for `home`.
    pub(crate) fn resolved(self, dir: &Path, home: Option<&Path>) -> Self {
        let all = |paths: Vec<PathBuf>| paths.iter().map(|path| expand(dir, home, path)).collect();
        Self { read: self.read.map(all), write: self.write.map(all), ..self }
    }

    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether there is a sandbox.
    pub fn is_confined(&self) -> bool {
        self.provider.is_some_and(|provider| provider != SandboxProvider::Local)
    }

    /// Whether scripts run in a container or on another machine.
    pub fn is_remote(&self) -> bool {
        matches!(self.provider, Some(SandboxProvider::Docker | SandboxProvider::Ssh))
    }

    /// Whether scripts run in a container with the working directory mounted.
    pub fn is_mounted(&self) -> bool {
        self.provider == Some(SandboxProvider::Docker) && self.workspace != Some(Workspace::Copy)
    }

    /// Whether scripts have a network: fabro cannot take that of another machine from them.
    pub fn has_network(&self) -> bool {
        match self.provider {
            None | Some(SandboxProvider::Local | SandboxProvider::Ssh) => true,
            Some(SandboxProvider::Bwrap | SandboxProvider::Docker) => self.network == Some(true),
        }
    }

    /// A setting that restricts scripts and agents, and with this provider would not.
    pub fn lost_restriction(&self) -> Option<&'static str> {
        use SandboxProvider::{Bwrap, Docker};
        let provider = self.provider.unwrap_or(SandboxProvider::Local);
        let confines = [Bwrap, Docker].contains(&provider);
        let restrictions = [
            ("network", self.network == Some(false), confines),
            ("tmp_size", self.tmp_size.is_some(), confines),
            ("max_processes", self.max_processes.is_some(), confines),
            ("memory", self.memory.is_some(), provider == Docker),
            ("cpus", self.cpus.is_some(), provider == Docker),
        ];
        let lost = restrictions.iter().find(|(_, is_set, is_kept)| *is_set && !is_kept)?;
        Some(lost.0)
    }
}
