//! Sums beside files that no log records, so that a change made by a failing disk is noticed.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use crate::pool::hash_of;

/// The file with the sums of a directory, as `sha256sum --check` reads it.
pub const SUMS: &str = "SHA256SUMS";

/// A file that is not as its sum says, or that cannot be compared with it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DamagedFile {
    /// Its bytes, or those of its sum, are others than those that were written.
    #[error("{path} is damaged: it is not as it was written, by the sums in {SUMS} beside it")]
    Changed {
        /// Its path.
        path: String,
    },
    /// It, or its sum, cannot be read.
    #[error("read {path}: {source}")]
    Read {
        /// Its path.
        path: String,
        /// Why.
        source: io::Error,
    },
}

/// Writes the sums of those of these files that exist in the directory.
///
/// # Errors
///
/// One of them cannot be read, or the sums cannot be written.
pub fn write_sums(dir: &Path, names: &[&str]) -> io::Result<()> {
    let mut sums = String::new();
    for name in names {
        match hash_of(&dir.join(name)) {
            Ok(hash) => {
                let _ = writeln!(sums, "{hash}  {name}");
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    fs::write(dir.join(SUMS), sums)
}

/// Checks that a file is as it was when the sums of its directory were written. A directory without sums is one of
/// a version that wrote none: nothing is checked there, nor is a file that does not exist.
///
/// # Errors
///
/// The file was changed, or its sum was, or one of the two cannot be read.
pub fn check_sum(dir: &Path, name: &str) -> Result<(), DamagedFile> {
    let path = dir.join(name);
    let shown = || path.display().to_string();
    let unreadable = |source| DamagedFile::Read { path: shown(), source };
    let sums = match fs::read(dir.join(SUMS)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        sums => sums.map_err(unreadable)?,
    };
    let hash = match hash_of(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        hash => hash.map_err(unreadable)?,
    };
    let line = format!("{hash}  {name}");
    let is_listed = sums.split(|byte| *byte == b'\n').any(|it| it == line.as_bytes());
    if is_listed { Ok(()) } else { Err(DamagedFile::Changed { path: shown() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_of_a_file_or_of_its_sum_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("a.log"), "one\n").unwrap();
        assert!(check_sum(dir.path(), "a.log").is_ok(), "there are no sums");
        write_sums(dir.path(), &["a.log", "b.log"]).unwrap();
        assert!(check_sum(dir.path(), "a.log").is_ok());
        assert!(check_sum(dir.path(), "b.log").is_ok(), "it does not exist");
        for name in ["a.log", SUMS] {
            let whole = fs::read(path(name)).unwrap();
            for bit in 0..whole.len() * 8 {
                let mut flipped = whole.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                fs::write(path(name), flipped).unwrap();
                let checked = check_sum(dir.path(), "a.log");
                assert!(checked.is_err(), "{name}, bit {bit}");
            }
            fs::write(path(name), whole).unwrap();
            assert!(check_sum(dir.path(), "a.log").is_ok());
        }
        fs::write(path("b.log"), "not listed").unwrap();
        let error = check_sum(dir.path(), "b.log").unwrap_err().to_string();
        assert!(error.contains("b.log"), "{error}");
    }
}
