//! Full-text search over chunks of files, for the retrieved block of a prompt.
//!
//! [`Index::build`] reads the files that match globs, splits them into chunks at headings and paragraphs,
//! and indexes them in memory. [`Index::search`] accepts any text as a query, even a whole message, and
//! returns the chunks that share its rarest words, with path and line.
//!
//! ```
//! use fabro_retrieval::{Index, block};
//! use fabro_tokens::CharsPerFour;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let root = tempfile::tempdir()?;
//! std::fs::write(root.path().join("a.md"), "# Deploy\n\nPush to main.\n\n# Roll back\n\nRevert it.")?;
//! let index = Index::build(root.path(), &["**/*.md"])?;
//! let hits = index.search("How do I roll back?", 3)?;
//! assert_eq!((&*hits[0].path, hits[0].line), ("a.md", 5));
//! assert!(block(&hits, &CharsPerFour, 2_000).contains("Revert it."));
//! # Ok(())
//! # }
//! ```
//!
//! The same files and the same query give the same hits in the same order, on every machine.
//!
//! # Limits
//!
//! - Words are compared by their English stems (`deploys` finds `deployed`), without regard to case
//!   and accents. Text without spaces between words, such as Chinese, is found only by whole runs.
//! - Files that are binary, larger than 2 MB, or beyond 32 MB together are skipped, and counted.
//!   Symbolic links are not followed, so nothing outside of the root is read.
//! - Files ignored by `.gitignore` and `.ignore` are skipped, with or without a repository; the user's
//!   own git settings are not used. Hidden files are skipped unless a glob names one (`.github/**`).
//! - The index is a snapshot: it is not updated.

mod block;
mod chunk;
mod files;
mod globs;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

pub use block::block;
use chunk::Chunk;
use rusqlite::Connection;

/// How many words of a query are used: its first different ones.
const QUERY_WORDS: usize = 128;

/// Chunks of files, ready to be searched.
#[derive(Debug)]
pub struct Index {
    /// By path and line, so that the index of a chunk is its rank among equal scores.
    chunks: Vec<Chunk>,
    words: Mutex<Connection>,
    report: Report,
}

/// What was indexed and what was skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Files that were read.
    pub files: usize,
    /// Chunks of them.
    pub chunks: usize,
    /// Files skipped because they are not text.
    pub binary: usize,
    /// Files skipped because they are too large, by themselves or together.
    pub too_large: usize,
    /// Files and directories that could not be read.
    pub unreadable: usize,
}

/// A chunk that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// The file, relative to the root, with `/`.
    pub path: String,
    /// The number of its first line, from 1.
    pub line: usize,
    /// Its text.
    pub text: String,
    /// Its BM25 score; higher is better. Comparable within one search only.
    pub score: f64,
}

impl Index {
    /// Indexes the files below `root` that match a glob.
    ///
    /// `*` and `?` stay within a name, `**` goes through directories, `{a,b}` and `[a-z]` are
    /// choices. One string may have several globs, separated by commas or whitespace. A glob that is the
    /// name of a directory means all files in it. Globs without a matching file give an empty index.
    ///
    /// # Errors
    ///
    /// A glob is not valid or leads out of the root, the root is not a directory, or the database fails.
    pub fn build<G: AsRef<str>>(root: &Path, globs: &[G]) -> Result<Self, RetrievalError> {
        Self::build_with(root, globs, |_| {})
    }

    /// The same, where `change` changes the text of each file before it is divided into chunks: to remove
    /// secrets, for example, which are not found in a chunk that ends in the middle of one.
    ///
    /// # Errors
    ///
    /// Those of [`build`](Self::build).
    pub fn build_with<G: AsRef<str>>(
        root: &Path,
        globs: &[G],
        change: impl Fn(&mut String),
    ) -> Result<Self, RetrievalError> {
        let globs = globs::Globs::parse(root, globs)?;
        let files::Files { mut texts, mut report } = files::read(root, &globs)?;
        texts.values_mut().for_each(change);
        let chunks: Vec<Chunk> =
            texts.iter().flat_map(|(path, text)| chunk::chunks(path, text)).collect();
        report.chunks = chunks.len();
        let words = Mutex::new(index(&chunks)?);
        Ok(Self { chunks, words, report })
    }

    /// What was indexed and what was skipped.
    pub fn report(&self) -> Report {
        self.report
    }

    /// The best matching chunks, at most `limit`, best first; equal scores by path and line. A query
    /// without words finds nothing.
    ///
    /// # Errors
    ///
    /// The database fails; every query is valid.
    #[expect(clippy::expect_used, clippy::missing_panics_doc, reason = "chunks have numbers")]
    pub fn search(&self, query: &str, limit: usize) -> Result<Vec<Hit>, RetrievalError> {
        let query = expression(query);
        if query.is_empty() || limit == 0 {
            return Ok(Vec::new());
        }
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        // Searches change nothing, so a panic in one leaves the connection usable.
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        let mut statement = words.prepare_cached(
            "SELECT rowid, bm25(words) AS score FROM words WHERE words MATCH ?1 \
             ORDER BY score, rowid LIMIT ?2",
        )?;
        let rows = statement.query_map((query, limit), |row| Ok((row.get(0)?, row.get(1)?)))?;
        let mut hits = Vec::new();
        for row in rows {
            let (number, score): (i64, f64) = row?;
            let number = usize::try_from(number).expect("chunks are numbered from 0");
            let Chunk { path, line, text } = &self.chunks[number];
            hits.push(Hit {
                path: path.to_string(),
                line: *line,
                text: text.clone(),
                score: -score,
            });
        }
        Ok(hits)
    }
}

/// An index that cannot be built, or a search that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RetrievalError {
    /// This glob is not valid, for this reason.
    #[error("glob `{0}` cannot be read: {1}")]
    Glob(String, String),
    /// This glob leads out of the root.
    #[error("glob `{0}` leads out of the directory: give a path below it, without `..`")]
    Outside(String),
    /// The root is not a readable directory.
    #[error("directory {} to search cannot be read: {}", .0.display(), .1)]
    Root(PathBuf, #[source] std::io::Error),
    /// The database failed.
    #[error("full-text index failed: {0}")]
    Database(#[from] rusqlite::Error),
}

/// A full-text table of the words of all chunks, without their text.
fn index(chunks: &[Chunk]) -> Result<Connection, rusqlite::Error> {
    let mut words = Connection::open_in_memory()?;
    let transaction = words.transaction()?;
    transaction.execute_batch(
        "CREATE VIRTUAL TABLE words USING fts5(text, content='', tokenize='porter unicode61')",
    )?;
    {
        let mut insert = transaction.prepare("INSERT INTO words (rowid, text) VALUES (?1, ?2)")?;
        for (number, chunk) in (0_i64..).zip(chunks) {
            insert.execute((number, &chunk.text))?;
        }
    }
    transaction.commit()?;
    Ok(words)
}

/// A query in the syntax of FTS5: each word quoted, so that none is an operator.
fn expression(query: &str) -> String {
    let mut seen = BTreeSet::new();
    let words = query.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let words = words.map(str::to_lowercase).filter(|word| seen.insert(word.clone()));
    let quoted: Vec<_> = words.take(QUERY_WORDS).map(|word| format!("\"{word}\"")).collect();
    quoted.join(" OR ")
}

#[cfg(test)]
mod tests;
