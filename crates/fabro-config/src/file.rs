//! Paths and files that settings name.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::{ConfigError, MAX_BYTES};
use crate::spelling::spelled_as_on_disk;
use crate::store_dir::project_root;
use crate::trust::check_link;

/// `path` as seen from `dir`, with a leading `~` as `home`.
pub(crate) fn expand(dir: &Path, home: Option<&Path>, path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), home) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => dir.join(path),
    }
}

/// A goal as it is written: `@file` is read, `@@` is a literal `@`.
pub(crate) fn goal_text(
    dir: &Path,
    home: Option<&Path>,
    goal: &str,
) -> Result<String, ConfigError> {
    let Some(rest) = goal.strip_prefix('@') else { return Ok(goal.to_owned()) };
    if rest.starts_with('@') {
        return Ok(rest.to_owned());
    }
    Ok(read_named(dir, home, rest)?.1.trim_end().to_owned())
}

/// A text file that the settings in `dir` name, and its path, without the byte order mark that editors on Windows write.
pub(crate) fn read_named(
    dir: &Path,
    home: Option<&Path>,
    name: &str,
) -> Result<(PathBuf, String), ConfigError> {
    let path = spelled_as_on_disk(&expand(dir, home, Path::new(name.trim())));
    check_link(&path, project_root(dir))?;
    let text = read_text(&path)?;
    let text = text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
    Ok((path, text))
}

/// A whole text file of at most [`MAX_BYTES`]; a larger one is refused before it is read. A pipe or a
/// device is refused: reading one may never end.
pub(crate) fn read_text(path: &Path) -> Result<String, ConfigError> {
    let failed = |source| ConfigError::Read { path: path.to_owned(), source };
    let about = fs::metadata(path).map_err(failed)?;
    if !about.is_file() {
        return Err(ConfigError::NotAFile(path.to_owned(), Vec::new()));
    }
    if about.len() > MAX_BYTES {
        return Err(ConfigError::TooLarge(path.to_owned()));
    }
    let mut text = String::new();
    let mut file = File::open(path).map_err(failed)?.take(MAX_BYTES + 1);
    file.read_to_string(&mut text).map_err(failed)?;
    // It may have grown since, or be of a file system that does not know lengths.
    if text.len() as u64 > MAX_BYTES {
        return Err(ConfigError::TooLarge(path.to_owned()));
    }
    Ok(text)
}
