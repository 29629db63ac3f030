//! Filters: programs that a repository's configuration names, and that git runs on contents of files.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The filters of a repository. Git has no option that disables filters as a whole, so each of them is
/// overridden by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filters {
    names: Vec<OsString>,
    /// Merge drivers: programs too, that merge contents of files.
    drivers: Vec<OsString>,
    /// The files of the configuration; `None` where includes decide what belongs to it.
    files: Option<Vec<(PathBuf, Stamp)>>,
}

/// What changes when a file does: device, inode, size, time of change. `None` without a file.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

impl Filters {
    /// For commands that read no contents of files of the work tree.
    pub(crate) const NOT_NEEDED: Self =
        Self { names: Vec::new(), drivers: Vec::new(), files: None };

    /// Those that `git config --list --show-origin --name-only -z` names, of a work tree with this top.
    pub(crate) fn parse(output: &[u8], top: &Path) -> Self {
        let mut names = Vec::new();
        let mut drivers = Vec::new();
        let mut files = Vec::new();
        let mut has_includes = false;
        let mut records = output.split(|byte| *byte == 0);
        while let (Some(origin), Some(key)) = (records.next(), records.next()) {
            if let Some(path) = origin.strip_prefix(b"file:") {
                files.push(top.join(OsStr::from_bytes(path)));
            }
            has_includes |= key.starts_with(b"include.") || key.starts_with(b"includeif.");
            for (section, names) in [(&b"filter."[..], &mut names), (b"merge.", &mut drivers)] {
                let name = key.strip_prefix(section);
                let end = name.and_then(|name| name.iter().rposition(|byte| *byte == b'.'));
                if let (Some(name), Some(end)) = (name, end) {
                    names.push(OsStr::from_bytes(&name[..end]).to_owned());
                }
            }
        }
        for names in [&mut names, &mut drivers] {
            names.sort_unstable();
            names.dedup();
        }
        files.sort_unstable();
        files.dedup();
        let stamped = |path: PathBuf| {
            let stamp = stamp(&path);
            (path, stamp)
        };
        let files = (!has_includes).then(|| files.into_iter().map(stamped).collect());
        Self { names, drivers, files }
    }

    /// Whether the configuration is still the one that was read.
    pub(crate) fn hold(&self) -> bool {
        let unchanged = |(path, stamped): &(PathBuf, Stamp)| stamp(path) == *stamped;
        self.files.as_ref().is_some_and(|files| files.iter().all(unchanged))
    }

    /// The settings that disable them, as environment variables, since names may contain anything.
    pub(crate) fn overrides(&self) -> Vec<(OsString, OsString)> {
        const DISABLED: [(&str, &str); 4] =
            [("clean", ""), ("smudge", ""), ("process", ""), ("required", "false")];
        // What such a driver would merge is a conflict.
        const CONFLICT: (&str, &str) = ("driver", "false");
        let mut variables = Vec::new();
        let filters = self.names.iter().flat_map(|name| DISABLED.map(|it| ("filter.", name, it)));
        let drivers = self.drivers.iter().map(|name| ("merge.", name, CONFLICT));
        for (section, name, (setting, value)) in filters.chain(drivers) {
            let number = variables.len() / 2;
            let mut key = OsString::from(section);
            key.push(name);
            key.push(format!(".{setting}"));
            variables.push((format!("GIT_CONFIG_KEY_{number}").into(), key));
            variables.push((format!("GIT_CONFIG_VALUE_{number}").into(), value.into()));
        }
        let count = (variables.len() / 2).to_string();
        variables.push(("GIT_CONFIG_COUNT".into(), count.into()));
        variables
    }
}

fn stamp(path: &Path) -> Stamp {
    let found = path.metadata().ok()?;
    Some((found.dev(), found.ino(), found.size(), found.ctime(), found.ctime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_is_between_the_dots() {
        let output =
            b"file:.git/config\0filter.lfs.clean\0file:.git/config\0filter.a.b=c.process\0\
            command line:\0core.hookspath\0file:.git/config\0filter.lfs.required\0";
        let filters = Filters::parse(output, Path::new("/none"));
        assert_eq!(filters.names, ["a.b=c", "lfs"]);
        assert_eq!(filters.files, Some(vec![("/none/.git/config".into(), None)]));
        let overrides = filters.overrides();
        assert_eq!(overrides.len(), 17);
        assert_eq!(overrides[0].1, "filter.a.b=c.clean");
        assert!(filters.hold());
        let included = Filters::parse(b"file:x\0include.path\0", Path::new("/"));
        assert!(!included.hold());
    }
}
