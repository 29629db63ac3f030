//! Everything a run recorded, as plain files.
//!
//! A dump is a projection of the log, so the same log gives the same bytes, and a dump of a running
//! run is one of what it has recorded so far. Its files are described in `docs/outputs.md`.

mod checkpoints;
mod conversation;
mod stages;

use std::io;
use std::sync::Arc;

use fabro_blob::{BlobError, BlobStore, READ_LIMIT, copy_text, reference};
use fabro_engine::checkpoint;
use fabro_events::Event;
use serde::Serialize;
use serde_json::Value;

use crate::{ReportError, StageKey, inspect, read_back};

/// So many bytes of checkpoints are whole in any case.
const WHOLE_CHECKPOINTS: usize = 16 << 20;

/// Takes the files of a dump, in a fixed order.
pub trait DumpWriter {
    /// Writes a new file; `path` has `/` between its parts, and its directories may not exist.
    ///
    /// # Errors
    ///
    /// It cannot be written: the dump ends.
    fn write(&mut self, path: &str, bytes: &[u8]) -> io::Result<()>;

    /// The same for a large file of at most `size` bytes, whose content `fill` writes.
    ///
    /// # Errors
    ///
    /// `fill` fails, or the file cannot be written.
    fn stream(&mut self, path: &str, size: u64, fill: &mut Fill<'_>) -> io::Result<()> {
        let _ = size;
        let mut bytes = Vec::new();
        fill(&mut bytes)?;
        self.write(path, &bytes)
    }
}

/// Writes the content of a file.
pub type Fill<'a> = dyn FnMut(&mut dyn io::Write) -> io::Result<()> + 'a;

/// A run to dump.
pub struct DumpRun<'a> {
    /// Its whole log.
    pub events: &'a [Event],
    /// Whether it has a driver.
    pub is_driven: bool,
    /// The text of its workflow.
    pub graph: &'a str,
    /// Where its large values are.
    pub blobs: &'a dyn BlobStore,
    /// Large values stay references (`blob://sha256/…`).
    pub keep_references: bool,
}

/// Why a dump cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DumpError {
    /// The log or a value cannot be read back.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// A file cannot be written.
    #[error("write {path}: {source}")]
    Write {
        /// The file, in the dump.
        path: String,
        /// Why.
        source: io::Error,
    },
}

/// Writes the files of a run below `prefix`, which is empty or ends with `/`. Returns the names of
/// the directories of its stages below `stages/`, by rank.
///
/// # Errors
///
/// A value cannot be read back, or a file cannot be written.
pub fn dump(
    run: &DumpRun<'_>,
    prefix: &str,
    writer: &mut dyn DumpWriter,
) -> Result<Vec<StageDir>, DumpError> {
    dump_within(run, prefix, writer, WHOLE_CHECKPOINTS)
}

fn dump_within(
    run: &DumpRun<'_>,
    prefix: &str,
    writer: &mut dyn DumpWriter,
    whole_checkpoints: usize,
) -> Result<Vec<StageDir>, DumpError> {
    let mut files = Files { prefix, writer };
    let report = inspect(run.events, run.is_driven)?;
    files.json("run.json", &report)?;
    files.write("graph.fabro", run.graph.as_bytes())?;
    let mut lines = String::new();
    for event in run.events {
        lines.push_str(&event.to_json_line());
        lines.push('\n');
    }
    files.write("events.jsonl", lines.as_bytes())?;
    drop(lines);
    let events = checkpoint::effective(run.events);
    checkpoints::write(run, &events, whole_checkpoints, &mut files)?;
    stages::write(run, &events, report.stages, &mut files)
}

/// The directory of a stage in a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageDir {
    /// Its name, `{rank:03}-{node}@{visit}`.
    pub name: String,
    /// The node.
    pub node: Arc<str>,
    /// Which visit of it.
    pub visit: u32,
    /// Its branch; `None` in the main line.
    pub branch: Option<Arc<str>>,
    /// The attempts before the last one.
    pub earlier_attempts: u32,
}

impl StageDir {
    /// The stage.
    pub fn key(&self) -> StageKey {
        StageKey { branch: self.branch.clone(), node: Arc::clone(&self.node), visit: self.visit }
    }
}

/// The files of one run.
struct Files<'a> {
    prefix: &'a str,
    writer: &'a mut dyn DumpWriter,
}

impl Files<'_> {
    fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), DumpError> {
        let path = format!("{}{name}", self.prefix);
        self.writer.write(&path, bytes).map_err(|source| DumpError::Write { path, source })
    }

    /// Writes a text of a stage: of a string its characters, of any other value its JSON.
    fn text(
        &mut self,
        run: &DumpRun<'_>,
        stage: &str,
        name: &str,
        value: &Value,
    ) -> Result<(), DumpError> {
        let blob = reference(run.blobs, value).filter(|_| !run.keep_references);
        let failed = |source: BlobError| ReportError::Value {
            what: "a file",
            stage: stage.to_owned(),
            source: source.into(),
        };
        let text = match (value, blob) {
            (_, Some(blob)) => {
                let size = run.blobs.len(&blob).map_err(failed)?;
                if size > READ_LIMIT {
                    let mut lost = None;
                    let mut fill = |out: &mut dyn io::Write| match copy_text(run.blobs, &blob, out)
                    {
                        Ok(_) => Ok(()),
                        Err(BlobError::Output { source }) => Err(source),
                        Err(error) => {
                            let message = error.to_string();
                            lost = Some(error);
                            Err(io::Error::other(message))
                        }
                    };
                    let path = format!("{}{name}", self.prefix);
                    let written = self.writer.stream(&path, size, &mut fill);
                    return match lost {
                        Some(error) => Err(failed(error).into()),
                        None => written.map_err(|source| DumpError::Write { path, source }),
                    };
                }
                let bytes = run.blobs.get(&blob).map_err(failed)?;
                serde_json::from_slice::<String>(&bytes).map_or(bytes, String::into_bytes)
            }
            (Value::String(text), None) => text.clone().into_bytes(),
            (other, None) => format!("{other:#}\n").into_bytes(),
        };
        self.write(name, &text)
    }

    /// Returns how long the file is.
    fn json(&mut self, name: &str, value: &impl Serialize) -> Result<usize, DumpError> {
        let failed = |error: serde_json::Error| DumpError::Write {
            path: format!("{}{name}", self.prefix),
            source: error.into(),
        };
        let mut bytes = serde_json::to_vec_pretty(value).map_err(failed)?;
        bytes.push(b'\n');
        self.write(name, &bytes)?;
        Ok(bytes.len())
    }
}

impl DumpRun<'_> {
    /// A value with its references filled in, if that is wanted. What is too large to be one value
    /// stays a reference.
    fn filled(&self, key: &str, value: &Arc<Value>) -> Result<Arc<Value>, ReportError> {
        let mut value = Arc::clone(value);
        if self.keep_references {
            return Ok(value);
        }
        match read_back(key, &mut value, self.blobs) {
            Err(error) if error.is_store() && !error.is_too_large() => Err(error),
            _ => Ok(value),
        }
    }
}

#[cfg(test)]
#[path = "tests/dump.rs"]
mod tests;
