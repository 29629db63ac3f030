//! Full-text search over chunks of files, for the retrieved block of a prompt.
//!
//! [`Index::build`] reads the files that some globs name, cuts them into chunks at headings and
//! paragraphs, and indexes them in memory. [`Index::search`] takes any text as a query, a whole
//! message too, and gives the chunks back that share its rarest words, with their places.
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
//!   and accents. Text without blanks between words, such as Chinese, is found only by whole runs.
//! - Files that are binary, larger than 2 MB, or beyond 32 MB together are skipped, and counted.
//!   Symbolic links are not followed, so nothing outside of the root is read.
//! - What `.gitignore` and `.ignore` files name is skipped, with or without a repository; the user's
//!   own git settings do not matter. So are hidden files, unless a glob names one (`.github/**`).
//! - The index is a picture of the moment when it was built.

mod block;
mod chunk;
mod files;
mod globs;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use block::block;
use chunk::Chunk;
use rusqlite::Connection;

/// The most words of a query that are looked for: its first different ones.
const QUERY_WORDS: usize = 128;

/// Chunks of files, ready to be searched.
#[derive(Debug)]
pub struct Index {
    /// By path and line, so that the number of a chunk is its rank among equals.
    chunks: Vec<Chunk>,
    words: Mutex<Connection>,
    report: Report,
}

/// What an index was made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Files that were read.
    pub files: usize,
    /// Chunks they were cut into.
    pub chunks: usize,
    /// Files skipped because they are no text.
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
    /// What is written there.
    pub text: String,
    /// How well it fits, by BM25; more is better. Comparable within one search only.
    pub score: f64,
}

impl Index {
    /// Indexes the files below `root` that a glob names.
    ///
    /// `*` and `?` stay within a name, `**` goes through directories, `{a,b}` and `[a-z]` are
    /// choices. One string may hold several globs, with commas or blanks between them. A glob that
    /// is the name of a directory means all files in it. Globs that no file fits give an empty
    /// index.
    ///
    /// # Errors
    ///
    /// A glob that cannot be read or leads out of the root, a root that is no directory, a database
    /// that fails.
    pub fn build<G: AsRef<str>>(root: &Path, globs: &[G]) -> Result<Self, RetrievalError> {
        let globs = globs::Globs::parse(root, globs)?;
        let files::Files { texts, mut report } = files::read(root, &globs)?;
        let chunks: Vec<Chunk> =
            texts.iter().flat_map(|(path, text)| chunk::chunks(path, text)).collect();
        report.chunks = chunks.len();
        let words = Mutex::new(index(&chunks)?);
        Ok(Self { chunks, words, report })
    }

    /// What was read, and what was not.
    pub fn report(&self) -> Report {
        self.report
    }

    /// The chunks that fit best, at most `limit`, the best first. Of equal ones that of the first
    /// path and line comes first. A query without words finds nothing.
    ///
    /// # Errors
    ///
    /// Only a database that fails; no query is wrong.
    pub fn search(&self, query: &str, limit: usize) -> Result<Vec<Hit>, RetrievalError> {
        let query = expression(query);
        if query.is_empty() || limit == 0 {
            return Ok(Vec::new());
        }
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let words = self.words();
        let mut statement = words.prepare_cached(
            "SELECT rowid, bm25(words) AS score FROM words WHERE words MATCH ?1 \
             ORDER BY score, rowid LIMIT ?2",
        )?;
        let rows = statement.query_map((query, limit), |row| Ok((row.get(0)?, row.get(1)?)))?;
        let mut hits = Vec::new();
        for row in rows {
            let (number, score): (i64, f64) = row?;
            let chunk = usize::try_from(number).ok().and_then(|number| self.chunks.get(number));
            hits.extend(chunk.map(|chunk| Hit {
                path: chunk.path.to_string(),
                line: chunk.line,
                text: chunk.text.clone(),
                score: -score,
            }));
        }
        Ok(hits)
    }

    fn words(&self) -> MutexGuard<'_, Connection> {
        // A search that panicked has changed nothing.
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why there is no index, or no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RetrievalError {
    /// A glob cannot be read.
    #[error("glob `{glob}` cannot be read: {reason}")]
    Glob {
        /// The glob as it was given.
        glob: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A glob leads out of the root.
    #[error("glob `{glob}` leads out of the directory: give a path below it, without `..`")]
    Outside {
        /// The glob as it was given.
        glob: String,
    },
    /// The root is no directory that can be read.
    #[error("directory {} to search cannot be read: {source}", path.display())]
    Root {
        /// The root.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The database failed.
    #[error("full-text index failed: {0}")]
    Database(#[from] rusqlite::Error),
}

/// The words of all chunks in a table without the texts themselves.
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

/// A query in the language of FTS5: each word quoted, so that none is an operator.
fn expression(query: &str) -> String {
    let mut seen = std::collections::BTreeSet::new();
    let mut expression = String::new();
    let words = query.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    for word in words.map(str::to_lowercase) {
        if seen.len() == QUERY_WORDS {
            break;
        }
        if !seen.contains(&word) {
            let or = if expression.is_empty() { "" } else { " OR " };
            expression.push_str(or);
            expression.push('"');
            expression.push_str(&word);
            expression.push('"');
            seen.insert(word);
        }
    }
    expression
}

#[cfg(test)]
mod tests;
