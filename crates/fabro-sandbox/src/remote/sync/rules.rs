//! What is copied and what is not.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use fabro_types::ControlFile;

use super::tree::{Difference, Name};
use crate::files::is_workflow;
use crate::stores::is_store;

/// What is not copied by default, wherever it is: what tools make for the machine they run on.
pub(in crate::remote) const EXCLUDED: [&str; 14] = [
    "node_modules",
    ".pnpm-store",
    ".npm",
    ".cache",
    "target",
    ".next",
    "__pycache__",
    ".venv",
    "venv",
    ".tox",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".gradle",
];

/// What is copied and what is not.
#[derive(Clone, Debug)]
pub(in crate::remote) struct Rules {
    /// Names of files and directories.
    pub(in crate::remote) exclude: Vec<String>,
    /// Files and directories of this machine that scripts neither see nor change.
    pub(in crate::remote) hidden: Vec<PathBuf>,
    /// Whether `.git` is copied back.
    pub(in crate::remote) write_git: bool,
}

impl Rules {
    pub(in crate::remote) fn excludes(&self, name: &OsStr) -> bool {
        self.exclude.iter().any(|it| OsStr::new(it) == name)
    }

    /// Whether what a script did there comes back: not to what other programs obey, and not to what is hidden from it.
    pub(in crate::remote) fn comes_back(&self, name: &[u8], hidden: &[Name]) -> bool {
        let is_hidden = |it: &Name| {
            name.strip_prefix(&**it).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        let text = String::from_utf8_lossy(name);
        let comes = match ControlFile::of(text.split('/')) {
            Some(ControlFile::Git) => self.write_git,
            Some(ControlFile::Found) => false,
            Some(ControlFile::Graph) | None => true,
        };
        comes && !hidden.iter().any(is_hidden)
    }

    /// What is hidden in a directory, relative to it.
    pub(in crate::remote) fn hidden_in(&self, root: &Path) -> Vec<Name> {
        let below = self.hidden.iter().filter_map(|path| path.strip_prefix(root).ok());
        let below = below.map(|path| path.as_os_str().as_bytes().to_owned());
        below.filter(|name| !name.is_empty()).collect()
    }
}

/// Names in `.fabro` that belong to fabro on the remote side: values and artifacts.
pub(in crate::remote) const OWN_NAMES: [&str; 2] = ["blobs", "artifacts"];

/// Whether a name in `.fabro` is one of them.
pub(in crate::remote) fn is_own_name(name: &OsStr) -> bool {
    OWN_NAMES.iter().any(|own| OsStr::new(own) == name)
}

/// Drops changes to run stores of this machine, and to workflows with a Graphviz extension.
pub(in crate::remote) fn retain_harmless(change: &mut Difference, root: &Path) {
    let mut known = BTreeMap::new();
    let mut is_store = |name: &[u8]| {
        let path = Path::new(OsStr::from_bytes(name));
        let mut dirs = path.ancestors().filter(|dir| !dir.as_os_str().is_empty());
        dirs.any(|dir| {
            let is_store = || is_store(&root.join(dir));
            *known.entry(dir.to_owned()).or_insert_with(is_store)
        })
    };
    let is_flow = |name: &[u8]| {
        let is_graph = ControlFile::of(String::from_utf8_lossy(name).split('/'));
        is_graph == Some(ControlFile::Graph)
            && is_workflow(root, Path::new(OsStr::from_bytes(name)))
    };
    let mut comes = |name: &Name| !is_store(name) && !is_flow(name);
    change.put.retain(&mut comes);
    change.removed.retain(&mut comes);
}
