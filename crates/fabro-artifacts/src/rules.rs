//! What an artifact is.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// Directories of tools and dependencies: nothing in them is an artifact, unless a pattern names them.
const EXCLUDED: [&str; 15] = [
    ".git",
    ".fabro",
    "node_modules",
    ".pnpm-store",
    ".npm",
    ".cache",
    "target",
    "dist",
    ".next",
    "__pycache__",
    ".venv",
    "venv",
    ".tox",
    ".pytest_cache",
    ".mypy_cache",
];

/// What counts as an artifact: every file in directories named `playwright-report`, `test-results`,
/// `cypress/videos` and `cypress/screenshots` at any depth, files named `junit*.xml` and `*.trace.zip`
/// anywhere, and what the patterns of the user include; without what they exclude, and without the
/// directories of tools and dependencies.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    include: Option<GlobSet>,
    exclude: Option<GlobSet>,
    /// What the patterns begin with before their first wildcard.
    included_dirs: Vec<PathBuf>,
    /// Directories that are never entered.
    skipped: Vec<PathBuf>,
}

/// A glob pattern that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{pattern}` is not a glob pattern: {reason}")]
pub struct PatternError {
    /// The pattern.
    pub pattern: String,
    /// Why.
    pub reason: String,
}

/// Chooses artifacts by name: a path, a directory, or a glob pattern; one without `/` is for the name of
/// the file too.
///
/// ```
/// let chosen = fabro_artifacts::Patterns::new(&["*.png".into(), "reports".into()])?;
/// assert!(chosen.is_match("test-results/login/shot.png"));
/// assert!(chosen.is_match("reports/index.html"));
/// assert!(!chosen.is_match("junit.xml"));
/// # Ok::<(), fabro_artifacts::PatternError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Patterns {
    exact: Vec<String>,
    paths: Option<GlobSet>,
    names: Option<GlobSet>,
}

impl Patterns {
    /// These patterns; none choose everything.
    ///
    /// # Errors
    ///
    /// A pattern is not valid.
    pub fn new(patterns: &[String]) -> Result<Self, PatternError> {
        let names = patterns.iter().filter(|it| !it.contains('/')).cloned();
        let names = globs(&names.collect::<Vec<_>>())?;
        Ok(Self { exact: patterns.to_owned(), paths: globs(patterns)?, names })
    }

    /// Whether they choose a path.
    pub fn is_match(&self, path: &str) -> bool {
        let is_in = |globs: &Option<GlobSet>, path: &OsStr| {
            globs.as_ref().is_some_and(|globs| globs.is_match(path))
        };
        let name = Path::new(path).file_name().unwrap_or_default();
        self.exact.is_empty()
            || self.exact.iter().any(|exact| exact == path)
            || is_in(&self.paths, path.as_ref())
            || is_in(&self.names, name)
    }
}

/// Where in the tree a directory is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// Every file in it is an artifact.
    is_artifact: bool,
    /// It is in a directory of a tool: only patterns count.
    is_excluded: bool,
}

impl Place {
    pub(crate) fn is_artifact(self) -> bool {
        self.is_artifact
    }
}

impl Rules {
    /// The built-in rules, with these glob patterns, relative to the directory. A pattern that names a
    /// directory stands for all files in it. `*` does not match `/`, `**` does.
    ///
    /// # Errors
    ///
    /// A pattern is not valid.
    pub fn new(include: &[String], exclude: &[String]) -> Result<Self, PatternError> {
        Ok(Self {
            include: globs(include)?,
            exclude: globs(exclude)?,
            included_dirs: include.iter().map(|pattern| literal_start(pattern)).collect(),
            skipped: Vec::new(),
        })
    }

    /// The same rules; the directory with this absolute path is never entered.
    #[must_use]
    pub fn skipping(mut self, dir: impl Into<PathBuf>) -> Self {
        self.skipped.push(dir.into());
        self
    }

    /// Whether the scan enters a directory, and what it is then; `None` where it does not.
    pub(crate) fn enter(&self, root: &Path, path: &Path, parent: Place) -> Option<Place> {
        let name = path.file_name().unwrap_or_default();
        let is_tool = is_excluded(path, name);
        let is_excluded = parent.is_excluded || is_tool;
        if is_excluded && !self.may_contain_included(path, is_tool) {
            return None;
        }
        if self.skipped.iter().any(|skipped| skipped.strip_prefix(root).is_ok_and(|it| it == path))
        {
            return None;
        }
        if self.exclude.as_ref().is_some_and(|globs| globs.is_match(path)) {
            return None;
        }
        let is_artifact = !is_excluded && (parent.is_artifact || is_artifact_dir(path, name));
        Some(Place { is_artifact, is_excluded })
    }

    /// A directory of a tool is entered where a pattern names it, and then only as far as the pattern
    /// leads.
    fn may_contain_included(&self, path: &Path, is_tool: bool) -> bool {
        let leads_here = |start: &PathBuf| start.starts_with(path);
        let began_before = |start: &PathBuf| !is_tool && path.starts_with(start);
        let is_named = |start: &PathBuf| names_excluded(start);
        self.included_dirs
            .iter()
            .filter(|start| is_named(start))
            .any(|start| leads_here(start) || began_before(start))
    }

    /// Whether a file of this name may be an artifact, wherever the directory is.
    pub(crate) fn may_be_artifact(&self, name: &OsStr, place: Place, is_link: bool) -> bool {
        let by_rule = place.is_artifact || is_link || is_artifact_file(name);
        self.include.is_some() || (!place.is_excluded && by_rule)
    }

    /// Whether a file, or what else is not a directory, is an artifact.
    pub(crate) fn is_artifact(
        &self,
        path: &Path,
        name: &OsStr,
        place: Place,
        is_link: bool,
    ) -> bool {
        let by_rule = !place.is_excluded
            && (place.is_artifact
                || is_artifact_file(name)
                // A link in the place of such a directory is not followed, and that is reported.
                || (is_link && is_artifact_dir(path, name)));
        let is_included = || self.include.as_ref().is_some_and(|globs| globs.is_match(path));
        let is_excluded = || self.exclude.as_ref().is_some_and(|globs| globs.is_match(path));
        (by_rule || is_included()) && !is_excluded()
    }
}

fn is_excluded(path: &Path, name: &OsStr) -> bool {
    if name == "cache" {
        return path.parent().and_then(Path::file_name) == Some(OsStr::new(".yarn"));
    }
    EXCLUDED.iter().any(|excluded| name == *excluded)
}

fn names_excluded(path: &Path) -> bool {
    path.ancestors().any(|it| it.file_name().is_some_and(|name| is_excluded(it, name)))
}

fn is_artifact_dir(path: &Path, name: &OsStr) -> bool {
    if name == "playwright-report" || name == "test-results" {
        return true;
    }
    (name == "videos" || name == "screenshots")
        && path.parent().and_then(Path::file_name) == Some(OsStr::new("cypress"))
}

fn is_artifact_file(name: &OsStr) -> bool {
    let name = name.as_bytes();
    (name.starts_with(b"junit") && name.ends_with(b".xml")) || name.ends_with(b".trace.zip")
}

fn globs(patterns: &[String]) -> Result<Option<GlobSet>, PatternError> {
    if patterns.is_empty() {
        return Ok(None);
    }
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let bare = pattern.trim_start_matches("./").trim_end_matches('/');
        for pattern in [bare.to_owned(), format!("{bare}/**")] {
            let glob = GlobBuilder::new(&pattern).literal_separator(true).build();
            set.add(glob.map_err(|error| not_valid(bare, &error))?);
        }
    }
    set.build().map(Some).map_err(|error| not_valid(&patterns.join(", "), &error))
}

fn not_valid(pattern: &str, error: &globset::Error) -> PatternError {
    PatternError { pattern: pattern.to_owned(), reason: error.kind().to_string() }
}

fn literal_start(pattern: &str) -> PathBuf {
    let is_literal = |part: &Component<'_>| {
        let text = part.as_os_str().as_bytes();
        !text.iter().any(|byte| b"*?[{\\".contains(byte))
    };
    let parts = Path::new(pattern).components().filter(|part| *part != Component::CurDir);
    parts.take_while(is_literal).map(|part| OsString::from(part.as_os_str())).collect()
}
