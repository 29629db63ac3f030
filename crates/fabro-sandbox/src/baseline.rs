//! The baseline of a guarded directory as a file: a process that is killed while a script runs leaves it to its
//! successor, which checks the directory by it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use crate::ExecError;
use crate::control::{ControlFiles, Entry, Scope};

/// How the name of such a file begins; a hash of its scope follows.
const PREFIX: &str = "control-files-";

/// Removed on drop.
#[derive(Debug)]
pub(crate) struct BaselineFile(PathBuf);

impl BaselineFile {
    /// Writes it in one atomic step. It need not survive the end of the system, which also ends the script.
    pub(crate) fn write(dir: &Path, scope: &Scope, files: &ControlFiles) -> io::Result<Self> {
        let mut hasher = DefaultHasher::new();
        scope.hash(&mut hasher);
        let path = dir.join(format!("{PREFIX}{:016x}", hasher.finish()));
        fs::create_dir_all(dir)?;
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        file.write_all(&encoded(scope, files))?;
        file.persist(&path)?;
        Ok(Self(path))
    }
}

impl Drop for BaselineFile {
    fn drop(&mut self) {
        // One that stays is used by the next check: the same files are renamed.
        let _ = fs::remove_file(&self.0);
    }
}

/// Calls `check` with each baseline that a killed process has left in this directory, and removes the file if that
/// succeeds. Returns what `check` returned.
pub(crate) fn check_left(
    state_dir: &Path,
    check: impl Fn(&Scope, &ControlFiles) -> Result<String, ExecError>,
) -> Result<String, ExecError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ExecError::Log { path, source }
    };
    let mut renamed = String::new();
    let entries = match fs::read_dir(state_dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(renamed),
        entries => entries.map_err(failed(state_dir))?,
    };
    for entry in entries {
        let path = entry.map_err(failed(state_dir))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with(PREFIX) {
            continue;
        }
        let Some((scope, files)) = decoded(&fs::read(&path).map_err(failed(&path))?) else {
            return Err(ExecError::Unguarded {
                problem: format!("{} is damaged", path.display()),
                fix: "look for new files that later runs obey in the working directory, and \
                      remove this file",
                source: None,
            });
        };
        renamed.push_str(&check(&scope, &files)?);
        fs::remove_file(&path).map_err(failed(&path))?;
    }
    Ok(renamed)
}

/// Items that end with a NUL, each with a letter for its kind: the root, what is skipped, the files, the end.
fn encoded(scope: &Scope, files: &ControlFiles) -> Vec<u8> {
    let mut text = Vec::new();
    let mut put = |kind: &str, path: &Path| {
        text.extend_from_slice(kind.as_bytes());
        text.extend_from_slice(path.as_os_str().as_bytes());
        text.push(0);
    };
    put("R", &scope.root);
    scope.skipped.iter().for_each(|path| put("S", path));
    for (path, Entry { link }) in files {
        let link = link.map_or(String::new(), |(inode, s, ns)| format!("{inode} {s} {ns}"));
        put(&format!("F{link}:"), path);
    }
    put("E", Path::new(""));
    text
}

fn decoded(text: &[u8]) -> Option<(Scope, ControlFiles)> {
    let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
    let mut items = text.split(|byte| *byte == 0);
    let root = path(items.next()?.strip_prefix(b"R")?);
    let mut skipped = BTreeSet::new();
    let mut files = BTreeMap::new();
    loop {
        match items.next()?.split_first()? {
            (b'S', it) => {
                skipped.insert(path(it));
            }
            (b'F', it) => {
                let colon = it.iter().position(|byte| *byte == b':')?;
                let numbers = str::from_utf8(&it[..colon]).ok()?;
                let numbers: Vec<&str> = numbers.split_ascii_whitespace().collect();
                let link = match numbers[..] {
                    [] => None,
                    [inode, s, ns] => {
                        Some((inode.parse().ok()?, s.parse().ok()?, ns.parse().ok()?))
                    }
                    _ => return None,
                };
                files.insert(path(&it[colon + 1..]), Entry { link });
            }
            (b'E', []) => return Some((Scope { root, skipped }, files)),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_baseline_is_read_back_whole_or_not_at_all() {
        let scope = Scope {
            root: "/a b/c:d".into(),
            skipped: ["/x".into(), OsString::from_vec(vec![b'/', 0xff, b'\n']).into()].into(),
        };
        let files = BTreeMap::from([
            ("/a b/c:d/AGENTS.md".into(), Entry { link: None }),
            ("/a b/c:d/CLAUDE.md".into(), Entry { link: Some((7, -1, 9)) }),
        ]);
        let text = encoded(&scope, &files);
        assert_eq!(decoded(&text), Some((scope, files)));
        for end in 0..text.len() - 1 {
            assert_eq!(decoded(&text[..end]), None, "{end}");
        }
    }
}
