//! Looking for files and in files.

mod glob;
mod grep;
mod list_dir;
mod walk;

pub(crate) use glob::glob;
pub(crate) use grep::grep;
pub(crate) use list_dir::list_dir;

use fabro_types::nfc;
use globset::{GlobBuilder, GlobMatcher};

/// The longest pattern, in bytes: compiling one takes memory in proportion.
const PATTERN: usize = 1_000;

/// After how much text a search ends, in bytes: less than what outputs are cut to.
const ENOUGH: usize = 26_000;

/// The default number of paths and entries.
const LIMIT: usize = 200;

const TIMEOUT_NOTE: &str =
    "[not everything was searched: timeout of the call. Choose a smaller path.]";

/// A glob that matches whole relative paths, in any Unicode normalization.
struct PathGlob(GlobMatcher);

impl PathGlob {
    fn is_match(&self, path: &str) -> bool {
        self.0.is_match(&*nfc(path))
    }
}

/// Compiles a glob. One without `/` matches names in every directory.
fn compile_glob(pattern: &str) -> Result<PathGlob, String> {
    if pattern.len() > PATTERN {
        return Err(format!("the glob is longer than {PATTERN} bytes: shorten it"));
    }
    let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
    let anywhere = if pattern.contains('/') { String::new() } else { "**/".to_owned() };
    let glob = GlobBuilder::new(&(anywhere + &nfc(pattern))).literal_separator(true).build();
    glob.map(|glob| PathGlob(glob.compile_matcher()))
        .map_err(|error| format!("the glob is wrong: {error}"))
}
