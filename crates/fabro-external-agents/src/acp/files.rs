use std::path::{Component, Path};

use fabro_sandbox::{FileError, Files, LocalFiles};

/// The largest file that an agent reads through the protocol.
const LARGEST: u64 = 10 * 1024 * 1024;

/// Whether a path leads to something in the working directory, or to something that could be made
/// there.
pub(super) fn is_inside(files: &LocalFiles, path: &Path) -> bool {
    let Some(text) = path.to_str() else { return false };
    match files.info(text) {
        Ok(_) => true,
        // Where `..` leads from a directory that is not there depends on how that will be made.
        Err(FileError::NotFound(_)) => path.components().all(|it| it != Component::ParentDir),
        Err(_) => false,
    }
}

/// Whether an edit of this file may be approved.
pub(super) fn may_write(files: &LocalFiles, path: &Path) -> bool {
    is_inside(files, path) && path.to_str().is_some_and(|path| files.may_write(path).is_ok())
}

/// The lines of a text file from `line`, counted from 1, at most `limit` of them.
pub(super) fn read(
    files: &LocalFiles,
    path: &Path,
    line: Option<u32>,
    limit: Option<u32>,
) -> Result<String, String> {
    let bytes = files.read(text(path)?, LARGEST).map_err(|error| error.to_string())?;
    let text =
        String::from_utf8(bytes).map_err(|_| format!("{} is not a text file", path.display()))?;
    if line.is_none() && limit.is_none() {
        return Ok(text);
    }
    let skipped = line.unwrap_or(1).saturating_sub(1) as usize;
    let taken = limit.map_or(usize::MAX, |limit| limit as usize);
    Ok(text.split_inclusive('\n').skip(skipped).take(taken).collect())
}

/// Writes a text file, and makes the directories above it.
pub(super) fn write(files: &LocalFiles, path: &Path, content: &str) -> Result<(), String> {
    files.write(text(path)?, content.as_bytes()).map_err(|error| error.to_string())
}

fn text(path: &Path) -> Result<&str, String> {
    path.to_str().ok_or_else(|| format!("{} is not a UTF-8 path", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn nothing_leads_out() {
        let directory = tempfile::tempdir().unwrap();
        let outer = directory.path().canonicalize().unwrap();
        let root = outer.join("root");
        fs::create_dir_all(root.join("sub")).unwrap();
        fs::write(outer.join("secret"), "").unwrap();
        symlink(&outer, root.join("up")).unwrap();
        symlink(outer.join("absent"), root.join("dangling")).unwrap();
        symlink("sub", root.join("within")).unwrap();
        let files = LocalFiles::new(&root).unwrap();
        let inside = |path: &str| is_inside(&files, Path::new(path));
        assert!(inside(root.join("sub").to_str().unwrap()));
        for path in ["a.txt", "new/deep/a.txt", "within/a.txt", "sub/../sub", "."] {
            assert!(inside(path), "{path}");
        }
        for path in
            ["..", "../x", "/etc/passwd", "up/secret", "up/new", "dangling", "new/../../secret"]
        {
            assert!(!inside(path), "{path}");
            assert!(write(&files, Path::new(path), "").is_err(), "{path}");
            assert!(read(&files, Path::new(path), None, None).is_err(), "{path}");
        }
    }

    #[test]
    fn what_steers_other_programs_is_read_only() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        fs::create_dir_all(root.join(".git")).unwrap();
        fs::write(root.join(".git/HEAD"), "ref").unwrap();
        let files = LocalFiles::new(&root).unwrap();
        for path in [".git/HEAD", ".git/hooks/pre-commit", "fabro.toml", "sub/AGENTS.md"] {
            let path = root.join(path);
            let said = write(&files, &path, "x").unwrap_err();
            assert!(said.contains("controls git, fabro or later agents"), "{said}");
            assert!(!may_write(&files, &path));
        }
        assert_eq!(read(&files, &root.join(".git/HEAD"), None, None).unwrap(), "ref");
        assert!(may_write(&files, &root.join("src/new.rs")));
    }

    #[test]
    fn lines_are_chosen() {
        let directory = tempfile::tempdir().unwrap();
        let files = LocalFiles::new(directory.path()).unwrap();
        let path = Path::new("a/b.txt");
        write(&files, path, "1\n2\n3\n4").unwrap();
        let chosen = |line, limit| read(&files, path, line, limit).unwrap();
        assert_eq!(chosen(None, None), "1\n2\n3\n4");
        assert_eq!(chosen(Some(2), Some(2)), "2\n3\n");
        assert_eq!(chosen(Some(4), None), "4");
        assert_eq!(chosen(Some(9), Some(9)), "");
        assert_eq!(chosen(Some(0), Some(1)), "1\n");
        fs::write(directory.path().join("a/b.txt"), [0xff]).unwrap();
        assert_eq!(read(&files, path, None, None), Err("a/b.txt is not a text file".to_owned()));
    }
}
