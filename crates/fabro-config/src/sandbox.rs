use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::file::expand;
use crate::reader::CheckedSettings;

/// What confines the scripts and agents of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum SandboxProvider {
    /// Nothing: they run on this machine.
    Local,
    /// A bubblewrap sandbox on this machine.
    Bwrap,
}

impl SandboxProvider {
    /// All names.
    pub const NAMES: [&str; 2] = ["local", "bwrap"];

    /// The provider of this name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "local" => Some(Self::Local),
            "bwrap" => Some(Self::Bwrap),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Bwrap => "bwrap",
        }
    }
}

/// `[run.sandbox]`, without `env`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

    /// A setting that restricts scripts and agents, and without a sandbox would not.
    pub fn lost_restriction(&self) -> Option<&'static str> {
        let restrictions = [
            ("network", self.network == Some(false)),
            ("tmp_size", self.tmp_size.is_some()),
            ("max_processes", self.max_processes.is_some()),
        ];
        let lost = restrictions.iter().find(|(_, is_set)| *is_set && !self.is_confined())?;
        Some(lost.0)
    }
}
