//! The objects that a repository of trees has itself, apart from those that it borrows.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Folders of objects have about as many files each; this one stands for all.
const SAMPLE: &str = "17";

/// With so many files in the sample, about 2,000 in all, objects are packed.
const LOOSE: usize = 8;

/// With so many files of packs, three or four for each pack, the packs are joined.
const PACKS: usize = 150;

/// The mode of a path that is not there, and of a repository, which is no object.
const NO_OBJECT: [&[u8]; 2] = [b"000000", b"160000"];

/// The folder `objects` of a repository.
pub(super) struct OwnObjects {
    dir: PathBuf,
    /// Those that were copied since objects were last packed; the others are files.
    copied: BTreeSet<String>,
}

impl OwnObjects {
    /// Those of this bare repository.
    pub(super) fn of(repository: &Path) -> Self {
        Self { dir: repository.join("objects"), copied: BTreeSet::new() }
    }

    /// Of the two trees, and of what `git diff-tree -r -t -z --raw --no-renames` found between them, the objects that are
    /// not known to be here, with one of their paths; the trees have an empty one.
    pub(super) fn missing(&self, trees: [&str; 2], raw: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut needed: BTreeMap<String, Vec<u8>> = needed(raw).collect();
        needed.extend(trees.map(|tree| (tree.to_owned(), Vec::new())));
        needed.retain(|id, _| !self.has(id));
        needed
    }

    fn has(&self, id: &str) -> bool {
        let is_file =
            || id.split_at_checked(2).is_some_and(|(a, b)| self.dir.join(a).join(b).exists());
        self.copied.contains(id) || is_file()
    }

    /// These were copied.
    pub(super) fn copied(&mut self, ids: impl IntoIterator<Item = String>) {
        self.copied.extend(ids);
    }

    /// Objects were packed.
    pub(super) fn packed(&mut self) {
        self.copied.clear();
    }

    /// Whether there are so many files that objects should be packed.
    pub(super) fn is_crowded(&self) -> std::io::Result<bool> {
        let loose = files(&self.dir.join(SAMPLE))?.len();
        Ok(loose >= LOOSE || files(&self.dir.join("pack"))?.len() >= PACKS)
    }

    /// Removes packs that were not finished: git was killed.
    pub(super) fn remove_unfinished(&self) -> std::io::Result<()> {
        for file in files(&self.dir.join("pack"))? {
            if file.file_name().is_some_and(is_unfinished) {
                fs::remove_file(file)?;
            }
        }
        Ok(())
    }
}

/// Whether a file with this name is one that git has not written to its end.
pub(super) fn is_unfinished(name: &OsStr) -> bool {
    [&b"tmp_"[..], b".tmp-"].iter().any(|start| name.as_bytes().starts_with(start))
}

/// The objects that `git diff-tree -z --raw --no-renames` names, of both sides, each with its path.
pub(super) fn needed(raw: &[u8]) -> impl Iterator<Item = (String, Vec<u8>)> + '_ {
    let mut fields = raw.split(|byte| *byte == 0);
    let changes = std::iter::from_fn(move || Some((fields.next()?, fields.next()?)));
    changes.flat_map(|(change, path)| {
        let change: Vec<&[u8]> = change.split(|byte| *byte == b' ').collect();
        let sides = match *change {
            [before, after, from, to, _] => {
                vec![(before.strip_prefix(b":").unwrap_or(before), from), (after, to)]
            }
            _ => Vec::new(),
        };
        let objects = sides.into_iter().filter(|(mode, _)| !NO_OBJECT.contains(mode));
        objects.map(|(_, id)| (String::from_utf8_lossy(id).into_owned(), path.to_owned()))
    })
}

/// The entries of a directory, which may not be there.
fn files(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.map(|entry| Ok(entry?.path())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_is_on_both_sides_of_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let mut own = OwnObjects::of(dir.path());
        fs::create_dir_all(dir.path().join("objects/aa")).unwrap();
        fs::write(dir.path().join("objects/aa/11"), "").unwrap();
        own.copied(["bb22".to_owned()]);
        let raw = b":100644 100644 aa11 bb22 M\0a\0:000000 100755 0000 cc33 A\0b c\0\
            :160000 000000 dd44 0000 D\0sub\0:040000 040000 ee55 ff66 M\0d\n\0";
        let missing = |own: &OwnObjects| {
            let found = own.missing(["0101", "bb22"], raw);
            let shown = found.iter().map(|(id, path)| format!("{id} {}", path.escape_ascii()));
            shown.collect::<Vec<_>>()
        };
        assert_eq!(missing(&own), ["0101 ", "cc33 b c", "ee55 d\\n", "ff66 d\\n"]);
        own.packed();
        assert_eq!(missing(&own)[1], "bb22 ");
    }

    #[test]
    fn files_are_counted_and_unfinished_packs_removed() {
        let dir = tempfile::tempdir().unwrap();
        let own = OwnObjects::of(dir.path());
        own.remove_unfinished().unwrap();
        assert!(!own.is_crowded().unwrap());
        let pack = dir.path().join("objects/pack");
        fs::create_dir_all(&pack).unwrap();
        for name in ["tmp_pack_x", ".tmp-1-pack-a.pack", "pack-a.pack"] {
            fs::write(pack.join(name), "").unwrap();
        }
        own.remove_unfinished().unwrap();
        assert_eq!(files(&pack).unwrap(), [pack.join("pack-a.pack")]);
        for number in 1..PACKS {
            assert!(!own.is_crowded().unwrap());
            fs::write(pack.join(number.to_string()), "").unwrap();
        }
        assert!(own.is_crowded().unwrap());
    }
}
