//! The control files of a working directory: those that later runs obey.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use fabro_types::ControlFile;
use fabro_types::running_scripts::LinkId;

use crate::files::is_workflow;
use crate::walk::{WalkError, walk};

/// Whether later runs obey the file, by the last names of its path. Of git's files only the `.git`
/// of the working directory counts.
fn is_control_file(root: &Path, below: &Path) -> bool {
    let mut names: Vec<_> = below.iter().rev().take(ControlFile::LONGEST).collect();
    names.reverse();
    let names: Vec<_> = names.into_iter().map(|name| name.to_string_lossy()).collect();
    match ControlFile::of(names.iter().map(|name| &**name)) {
        Some(ControlFile::Found) => true,
        Some(ControlFile::Graph) => is_workflow(root, below),
        Some(ControlFile::Git) => below.components().count() == 1,
        None => false,
    }
}

/// A file or directory that later runs obey.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Set for a symbolic link: nothing can be mounted on it, so a script could replace it.
    pub(crate) link: Option<LinkId>,
}

/// The id of a symbolic link; `None` if the path is missing or is not a link.
pub(crate) fn link_id(path: &Path) -> Option<LinkId> {
    let found = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_symlink)?;
    Some((found.ino(), found.ctime(), found.ctime_nsec()))
}

/// Control files by their paths. A control directory is one entry.
pub(crate) type ControlFiles = BTreeMap<PathBuf, Entry>;

/// Where control files are looked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Scope {
    /// The working directory.
    pub(crate) root: PathBuf,
    /// Files and directories that are left out: scripts do not see them, or may change them.
    pub(crate) skipped: BTreeSet<PathBuf>,
}

impl Scope {
    /// The control files at any depth, as far as all directories can be listed.
    pub(crate) fn control_files(&self) -> (ControlFiles, Result<(), WalkError>) {
        let Self { root, skipped } = self;
        let mut found = BTreeMap::new();
        let walked = walk(root, |dir, entries| {
            let mut below = Vec::new();
            for entry in entries {
                let path = dir.join(entry.file_name());
                if skipped.contains(&path) {
                    continue;
                }
                let kind = entry.file_type().ok();
                let inside = path.strip_prefix(root).unwrap_or(&path);
                if is_control_file(root, inside) {
                    let is_link = kind.is_none_or(|kind| kind.is_symlink());
                    let link = is_link.then(|| link_id(&path)).flatten();
                    found.insert(path, Entry { link });
                } else if entry.file_name() != ".git" && kind.is_none_or(|kind| kind.is_dir()) {
                    below.push(path);
                }
            }
            below
        });
        // A repository without a work tree: git finds it by these files.
        let has = |name: &str| root.join(name).symlink_metadata().is_ok();
        let head = root.join("HEAD");
        let is_repository = has("HEAD") && (has("commondir") || has("objects") && has("refs"));
        if is_repository && !skipped.contains(&root.join(".git")) {
            found.insert(head.clone(), Entry { link: link_id(&head) });
        }
        (found, walked)
    }
}

/// The paths of control files, with links resolved: a sandbox has to mount them read-only.
pub(crate) fn protected_paths(root: &Path, found: &ControlFiles) -> BTreeSet<PathBuf> {
    let real = |(path, entry): (&PathBuf, &Entry)| match entry.link {
        None => Some(path.clone()),
        Some(_) => path.canonicalize().ok().filter(|real| real != root && real.starts_with(root)),
    };
    found.iter().filter_map(real).collect()
}
