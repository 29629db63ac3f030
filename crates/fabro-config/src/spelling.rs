//! Unicode normalization of file names: `é` is one code point or two, and keyboards, editors and file systems (macOS,
//! archives made there) differ in which they use.

use std::fs;
use std::path::{Path, PathBuf};

use fabro_types::other_normalization;

/// The path as it is spelled on disk: a component that does not exist is replaced by the entry that differs only in
/// its Unicode normalization, if there is one. Everything else stays unchanged.
pub fn spelled_as_on_disk(path: &Path) -> PathBuf {
    if path.as_os_str().is_ascii() || fs::symlink_metadata(path).is_ok() {
        return path.to_owned();
    }
    let mut found = PathBuf::new();
    for part in path.components() {
        let next = found.join(part);
        let other = match part.as_os_str().to_str() {
            Some(name) if !name.is_ascii() && fs::symlink_metadata(&next).is_err() => {
                same_name(&found, name)
            }
            _ => None,
        };
        found = other.unwrap_or(next);
    }
    found
}

/// The entry of a folder whose name differs from `name` only in its Unicode normalization.
fn same_name(folder: &Path, name: &str) -> Option<PathBuf> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = fs::read_dir(folder).ok()?.flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    other_normalization(name, names).map(|same| folder.join(same))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_another_normalization_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let decomposed = dir.path().join("cafe\u{301}/re\u{301}sume\u{301}.md");
        fs::create_dir_all(decomposed.parent().unwrap()).unwrap();
        fs::write(&decomposed, "x").unwrap();
        let check = |name: &str| spelled_as_on_disk(&dir.path().join(name));
        // A normalization-insensitive file system finds the file by either name.
        assert_eq!(fs::read(check("caf\u{e9}/r\u{e9}sum\u{e9}.md")).unwrap(), b"x");
        assert_eq!(check("caf\u{e9}/new.md"), dir.path().join("cafe\u{301}/new.md"));
        for same in ["plain.md", "na\u{ef}ve.md"] {
            assert_eq!(check(same), dir.path().join(same));
        }
        let composed = dir.path().join("caf\u{e9}");
        fs::create_dir_all(&composed).unwrap();
        assert_eq!(check("caf\u{e9}"), composed, "an exact name wins");
    }
}
