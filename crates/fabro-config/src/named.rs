//! Files that settings reference.

use std::path::{Path, PathBuf};

use crate::error::ConfigError;
use crate::file::{expand, read_text};
use crate::spelling::spelled_as_on_disk;
use crate::trust::check_named_file;

/// The text of a goal from the settings file `by`: `@file` is read, `@@` is a literal `@`.
pub(crate) fn goal_text(by: &Path, home: Option<&Path>, goal: &str) -> Result<String, ConfigError> {
    let Some(rest) = goal.strip_prefix('@') else { return Ok(goal.to_owned()) };
    if rest.starts_with('@') {
        return Ok(rest.to_owned());
    }
    Ok(read_named(by, home, rest)?.1.trim_end().to_owned())
}

/// Reads a text file that the settings file `by` references, without the byte order mark that
/// editors on Windows write. Returns its path too.
pub(crate) fn read_named(
    by: &Path,
    home: Option<&Path>,
    name: &str,
) -> Result<(PathBuf, String), ConfigError> {
    let path = spelled_as_on_disk(&expand(by.parent().unwrap_or(by), home, Path::new(name.trim())));
    check_named_file(&path, by)?;
    let text = read_text(&path)?;
    let text = text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
    Ok((path, text))
}
