use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use fabro_redact::{Redactor, Stream, Unredacted};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::{CAPTURE_LIMIT, Captured, ExecError, Request};

/// A quarter of what a pipe usually holds: most scripts write less, and each has two of these.
const CHUNK_BYTES: usize = 16 * 1024;

/// A log file, and the start of its content for as long as all of it fits.
pub(crate) struct Log {
    path: PathBuf,
    /// Created with the first byte: a new file would be the largest cost of a silent script.
    file: Option<File>,
    bytes: u64,
    text: Vec<u8>,
    /// The start of the output before redaction, at most one byte more than [`CAPTURE_LIMIT`].
    unredacted: Option<Vec<u8>>,
}

/// Where output goes.
pub(crate) trait OutputSink: Send {
    fn write(&mut self, chunk: &[u8]) -> Result<(), ExecError>;

    /// Receives each chunk before redaction, too.
    fn write_unredacted(&mut self, _chunk: &[u8]) {}
}

/// Copies output into a sink, redacted.
pub(crate) struct OutputChannel<'a, S> {
    sink: S,
    redaction: Option<Stream>,
    /// For errors.
    program: &'a Path,
}

impl<'a, S: OutputSink> OutputChannel<'a, S> {
    pub(crate) fn new(sink: S, redactor: Option<&Redactor>, program: &'a Path) -> Self {
        Self { sink, redaction: redactor.map(Redactor::stream), program }
    }

    /// Copies what the pipe gives until its end.
    ///
    /// A file is written right here: a write to a local file is shorter than handing it to
    /// another thread, and the reads between two writes give way to other tasks.
    pub(crate) async fn drain(
        &mut self,
        mut pipe: impl AsyncRead + Unpin,
    ) -> Result<(), ExecError> {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let count = pipe.read(&mut chunk).await;
            let count = count.map_err(|source| ExecError::watch(self.program, source))?;
            if count == 0 {
                return Ok(());
            }
            self.write(&chunk[..count])?;
        }
    }

    /// Adds a part of the output, or a line about it.
    pub(crate) fn write(&mut self, chunk: &[u8]) -> Result<(), ExecError> {
        match &mut self.redaction {
            Some(stream) => {
                self.sink.write_unredacted(chunk);
                self.sink.write(&stream.push(chunk))
            }
            None => self.sink.write(chunk),
        }
    }

    /// The sink, with all output.
    pub(crate) fn finish(mut self) -> Result<S, ExecError> {
        if let Some(mut stream) = self.redaction.take() {
            self.sink.write(&stream.finish())?;
        }
        Ok(self.sink)
    }
}

impl Log {
    /// A file of an earlier script is emptied; a new one is not created before the first byte.
    pub(crate) fn create(path: &Path, request: &Request<'_>) -> Result<Self, ExecError> {
        let path = path.to_owned();
        let file = match File::options().write(true).truncate(true).open(&path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(source) => return Err(ExecError::Log { path, source }),
        };
        let unredacted = request.keep_unredacted.then(Vec::new);
        Ok(Self { path, file, bytes: 0, text: Vec::new(), unredacted })
    }

    fn fits(&self) -> bool {
        self.bytes <= CAPTURE_LIMIT as u64
    }

    /// The captured output, and its text before redaction if redaction changed it.
    pub(crate) fn captured(self) -> (Captured, Option<Unredacted>) {
        if !self.fits() {
            return (Captured::Large { path: self.path, bytes: self.bytes }, None);
        }
        let is_redacted =
            |it: &Vec<u8>| it.len() <= CAPTURE_LIMIT && !it.is_empty() && self.text != *it;
        let unredacted = self.unredacted.filter(is_redacted);
        let unredacted = unredacted.map(|it| Unredacted::new(trimmed(lossy(it))));
        (Captured::Text(trimmed(lossy(self.text))), unredacted)
    }
}

impl OutputSink for Log {
    fn write(&mut self, chunk: &[u8]) -> Result<(), ExecError> {
        if chunk.is_empty() {
            return Ok(());
        }
        let failed = |source| ExecError::Log { path: self.path.clone(), source };
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(create(&self.path).map_err(failed)?),
        };
        file.write_all(chunk).map_err(failed)?;
        self.bytes += chunk.len() as u64;
        if self.fits() {
            self.text.extend_from_slice(chunk);
        } else {
            self.text = Vec::new();
        }
        Ok(())
    }

    fn write_unredacted(&mut self, chunk: &[u8]) {
        let Some(unredacted) = &mut self.unredacted else { return };
        // One byte more than the limit marks the output as too large.
        let room = (CAPTURE_LIMIT + 1).saturating_sub(unredacted.len());
        unredacted.extend_from_slice(&chunk[..chunk.len().min(room)]);
    }
}

/// Without the line ends at its end.
pub(crate) fn trimmed(mut text: String) -> String {
    text.truncate(text.trim_end_matches(['\n', '\r']).len());
    text
}

/// Bytes as text; those that are not UTF-8 are replaced.
pub(crate) fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn create(path: &Path) -> std::io::Result<File> {
    match (File::create(path), path.parent()) {
        (Err(error), Some(directory)) if error.kind() == ErrorKind::NotFound => {
            std::fs::create_dir_all(directory)?;
            File::create(path)
        }
        (created, _) => created,
    }
}
