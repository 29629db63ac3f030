//! Reads the files that match globs.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use ignore::WalkBuilder;

use crate::globs::Globs;
use crate::{Report, RetrievalError};

const FILE_BYTES: u64 = 2_000_000;
const ALL_BYTES: u64 = 32_000_000;
/// A file with a zero byte in this many first bytes is binary.
const HEAD_BYTES: usize = 8_192;

/// The text of files, by path.
pub(crate) struct Files {
    pub(crate) texts: BTreeMap<String, String>,
    pub(crate) report: Report,
}

pub(crate) fn read(root: &Path, globs: &Globs) -> Result<Files, RetrievalError> {
    let failed = |source| RetrievalError::Root(root.to_owned(), source);
    let root = root.canonicalize().map_err(failed)?;
    if !root.is_dir() {
        return Err(failed(io::ErrorKind::NotADirectory.into()));
    }
    let mut report = Report::default();
    let paths = find(&root, globs, &mut report);
    let mut texts = BTreeMap::new();
    let mut left = ALL_BYTES;
    for (name, path) in paths {
        match read_text(&path, left.min(FILE_BYTES)) {
            Ok(Content::Text(text)) => {
                left = left.saturating_sub(text.len() as u64);
                report.files += 1;
                texts.insert(name, text);
            }
            Ok(Content::Binary) => report.binary += 1,
            Ok(Content::TooLarge) => report.too_large += 1,
            Err(_) => report.unreadable += 1,
        }
    }
    Ok(Files { texts, report })
}

/// The files by their names below the root, in order. Only directories that may contain matching files
/// are walked.
fn find(root: &Path, globs: &Globs, report: &mut Report) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    let bases: Vec<_> = globs.bases.iter().map(|base| root.join(base)).collect();
    let walk = WalkBuilder::new(root)
        .hidden(!globs.names_hidden)
        .follow_links(false)
        .git_global(false)
        .require_git(false)
        .filter_entry(move |entry| {
            let path = entry.path();
            let may_match = |base: &PathBuf| path.starts_with(base) || base.starts_with(path);
            entry.file_name() != ".git" && bases.iter().any(may_match)
        })
        .build();
    for entry in walk {
        let Ok(entry) = entry else {
            report.unreadable += 1;
            continue;
        };
        let Ok(path) = entry.path().strip_prefix(root) else { continue };
        let names = path.components().map(|name| name.as_os_str().to_string_lossy());
        let name = names.collect::<Vec<_>>().join("/");
        if entry.file_type().is_some_and(|kind| kind.is_file()) && globs.matches(&name) {
            found.insert(name, entry.into_path());
        }
    }
    found
}

enum Content {
    Text(String),
    Binary,
    TooLarge,
}

fn read_text(path: &Path, most: u64) -> io::Result<Content> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    if length > most {
        return Ok(Content::TooLarge);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    // It may have grown since.
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Ok(Content::TooLarge);
    }
    if bytes[..bytes.len().min(HEAD_BYTES)].contains(&0) {
        return Ok(Content::Binary);
    }
    let text = String::from_utf8_lossy(&bytes);
    Ok(Content::Text(text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned()))
}
