use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The largest file that an agent reads through the protocol.
const LARGEST: u64 = 10 * 1024 * 1024;

/// Where a path leads, symbolic links resolved, if that is inside of `root`, which is resolved
/// already. What does not exist yet may be below something that does.
pub(super) fn inside(root: &Path, path: &Path) -> Option<PathBuf> {
    let mut existing = root.join(path);
    let mut missing = Vec::new();
    let real = loop {
        match existing.canonicalize() {
            Ok(real) => break real,
            // A link that leads nowhere leads somewhere once it is written to.
            Err(_) if existing.symlink_metadata().is_ok() => return None,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // There is no name for `..`.
                missing.push(existing.file_name()?.to_owned());
                existing.pop();
            }
            Err(_) => return None,
        }
    };
    let full = missing.iter().rev().fold(real, |path, name| path.join(name));
    full.starts_with(root).then_some(full)
}

/// The lines of a text file from `line`, counted from 1, at most `limit` of them.
pub(super) fn read(path: &Path, line: Option<u32>, limit: Option<u32>) -> Result<String, String> {
    let told = |error: std::io::Error| error.to_string();
    let metadata = fs::metadata(path).map_err(told)?;
    if !metadata.is_file() {
        return Err("it is no regular file".to_owned());
    }
    if metadata.len() > LARGEST {
        return Err(format!("it has more than {LARGEST} bytes: read it in another way"));
    }
    let bytes = fs::read(path).map_err(told)?;
    let text = String::from_utf8(bytes).map_err(|_| "it is no UTF-8 text".to_owned())?;
    if line.is_none() && limit.is_none() {
        return Ok(text);
    }
    let skipped = line.unwrap_or(1).saturating_sub(1) as usize;
    let taken = limit.map_or(usize::MAX, |limit| limit as usize);
    Ok(text.split_inclusive('\n').skip(skipped).take(taken).collect())
}

/// Writes a text file, and makes the directories above it.
pub(super) fn write(path: &Path, content: &str) -> Result<(), String> {
    let told = |error: std::io::Error| error.to_string();
    if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return Err("it is no regular file".to_owned());
    }
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(told)?;
    }
    fs::write(path, content).map_err(told)
}

#[cfg(test)]
mod tests {
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
        symlink(root.join("sub"), root.join("within")).unwrap();
        let leads = |path: &str| {
            inside(&root, Path::new(path)).map(|path| path.strip_prefix(&root).unwrap().to_owned())
        };
        assert_eq!(leads("a.txt"), Some("a.txt".into()));
        assert_eq!(leads("new/deep/a.txt"), Some("new/deep/a.txt".into()));
        assert_eq!(leads("sub/../a.txt"), Some("a.txt".into()));
        assert_eq!(leads("within/a.txt"), Some("sub/a.txt".into()));
        assert_eq!(leads(root.join("sub").to_str().unwrap()), Some("sub".into()));
        for path in
            ["..", "../secret", "/etc/passwd", "up/secret", "up/new", "dangling", "new/../../x"]
        {
            assert_eq!(leads(path), None, "{path}");
        }
        assert_eq!(leads("a.txt/../../secret"), None);
    }

    #[test]
    fn lines_are_chosen() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b.txt");
        write(&path, "1\n2\n3\n4").unwrap();
        let chosen = |line, limit| read(&path, line, limit).unwrap();
        assert_eq!(chosen(None, None), "1\n2\n3\n4");
        assert_eq!(chosen(Some(2), Some(2)), "2\n3\n");
        assert_eq!(chosen(Some(4), None), "4");
        assert_eq!(chosen(Some(9), Some(9)), "");
        assert_eq!(chosen(Some(0), Some(1)), "1\n");
        assert_eq!(read(directory.path(), None, None), Err("it is no regular file".to_owned()));
        assert!(write(directory.path(), "").is_err());
        fs::write(&path, [0xff]).unwrap();
        assert_eq!(read(&path, None, None), Err("it is no UTF-8 text".to_owned()));
    }
}
