//! Globs that select files.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::RetrievalError;

/// Compiled globs.
pub(crate) struct Globs {
    set: GlobSet,
    /// The directories that contain all matching files; relative.
    pub(crate) bases: BTreeSet<String>,
    /// Whether a glob names a hidden file.
    pub(crate) names_hidden: bool,
}

impl Globs {
    pub(crate) fn parse<G: AsRef<str>>(root: &Path, globs: &[G]) -> Result<Self, RetrievalError> {
        let mut set = GlobSetBuilder::new();
        let mut bases = BTreeSet::new();
        let mut names_hidden = false;
        for text in globs.iter().flat_map(|globs| split(globs.as_ref())) {
            let mut glob = relative(text)?;
            if root.join(&glob).is_dir() {
                glob = if glob.is_empty() { "**".to_owned() } else { format!("{glob}/**") };
            }
            let compiled = GlobBuilder::new(&glob).literal_separator(true).build();
            let invalid = |error| invalid(text, &error);
            set.add(compiled.map_err(invalid)?);
            names_hidden |= glob.split('/').any(|name| name.starts_with('.'));
            bases.insert(base(&glob));
        }
        let set = set.build().map_err(|error| invalid(error.glob().unwrap_or_default(), &error))?;
        Ok(Self { set, bases, names_hidden })
    }

    pub(crate) fn matches(&self, path: &str) -> bool {
        self.set.is_match(path)
    }
}

fn invalid(glob: &str, error: &globset::Error) -> RetrievalError {
    RetrievalError::Glob(glob.to_owned(), error.kind().to_string())
}

/// The globs of a string, separated by commas and whitespace outside of braces and brackets.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let separates = move |c: char| {
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && (c == ',' || c.is_whitespace())
    };
    text.split(separates).filter(|glob| !glob.is_empty()).collect()
}

/// The glob without `.` and repeated `/`.
fn relative(glob: &str) -> Result<String, RetrievalError> {
    let mut names = Vec::new();
    for component in Path::new(glob).components() {
        match component {
            Component::CurDir => {}
            Component::Normal(name) => names.push(name.to_string_lossy()),
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(RetrievalError::Outside(glob.to_owned()));
            }
        }
    }
    Ok(names.join("/"))
}

/// The leading directories of a glob that have no wildcards.
fn base(glob: &str) -> String {
    let (directories, _) = glob.rsplit_once('/').unwrap_or(("", glob));
    let is_plain = |name: &&str| !name.contains(['*', '?', '[', '{', '\\']);
    directories.split('/').take_while(is_plain).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(globs: &str, bases: &str) {
        let globs = Globs::parse(Path::new("/nowhere"), &[globs]).unwrap();
        assert_eq!(globs.bases.into_iter().collect::<Vec<_>>().join(" "), bases);
    }

    #[test]
    fn only_directories_of_matches_are_walked() {
        check("docs/**/*.md", "docs");
        check("./docs/a/*.md, docs/*.md docs2/x.md", "docs docs/a docs2");
        check("docs/{a,b}/*.md", "docs");
        check("docs/*.md,**/*.rs", " docs");
        check("", "");
    }

    #[test]
    fn globs_are_split_outside_of_braces() {
        assert_eq!(split("a/{b,c}*.md, d  e\n,[, ]f"), ["a/{b,c}*.md", "d", "e", "[, ]f"]);
    }

    #[test]
    fn paths_out_of_the_root_are_refused() {
        for glob in ["../x", "a/../../x", "/etc/*", "a/.."] {
            let error = Globs::parse(Path::new("/nowhere"), &[glob]).err().unwrap();
            assert_eq!(
                error.to_string(),
                format!(
                    "glob `{glob}` leads out of the directory: give a path below it, without `..`"
                )
            );
        }
        let error = Globs::parse(Path::new("/nowhere"), &["a/[x"]).err().unwrap().to_string();
        assert_eq!(error, "glob `a/[x` cannot be read: unclosed character class; missing ']'");
    }
}
