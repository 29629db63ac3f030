//! Paths and files that settings name.

use std::fs::{self, File, Metadata};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::{ConfigError, MAX_BYTES};

/// `path` as seen from `dir`, with a leading `~` as `home`.
pub(crate) fn expand(dir: &Path, home: Option<&Path>, path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), home) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => dir.join(path),
    }
}

/// A whole text file of at most [`MAX_BYTES`]; a larger one is refused before it is read. A pipe or a
/// device is refused: reading one may never end.
pub(crate) fn read_text(path: &Path) -> Result<String, ConfigError> {
    read_checked(path, |_| Ok(()))
}

/// As [`read_text`]; `check` gets the metadata of the file that was opened.
pub(crate) fn read_checked(
    path: &Path,
    check: impl Fn(&Metadata) -> Result<(), ConfigError>,
) -> Result<String, ConfigError> {
    let failed = |source| ConfigError::Read { path: path.to_owned(), source };
    let about = fs::metadata(path).map_err(failed)?;
    if !about.is_file() {
        return Err(ConfigError::NotAFile(path.to_owned(), Vec::new()));
    }
    if about.len() > MAX_BYTES {
        return Err(ConfigError::TooLarge(path.to_owned()));
    }
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    check(&file.metadata().map_err(failed)?)?;
    let mut file = file.take(MAX_BYTES + 1);
    file.read_to_string(&mut text).map_err(failed)?;
    // It may have grown since, or be of a file system that does not know lengths.
    if text.len() as u64 > MAX_BYTES {
        return Err(ConfigError::TooLarge(path.to_owned()));
    }
    Ok(text)
}
