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

/// Reads a whole text file of at most [`MAX_BYTES`]; a larger one is refused before it is read. A
/// FIFO or a device is refused: reading one may block forever.
pub(crate) fn read_text(path: &Path) -> Result<String, ConfigError> {
    read_checked(path, |_| Ok(()))
}

/// Like [`read_text`], but `check` may refuse the opened file by its metadata.
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
    // The file may have grown, or its file system may not report sizes.
    if text.len() as u64 > MAX_BYTES {
        return Err(ConfigError::TooLarge(path.to_owned()));
    }
    Ok(text)
}
