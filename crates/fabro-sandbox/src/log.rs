use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use fabro_redact::{Redactor, Stream};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::{CAPTURE_LIMIT, Captured, ExecError};

/// A quarter of what a pipe usually holds: most scripts say less, and each has two of these.
const CHUNK_BYTES: usize = 16 * 1024;

/// A log file, and the start of its content for as long as all of it fits.
pub(crate) struct Log {
    path: PathBuf,
    /// Made with the first byte: a new file is what a silent script would cost most.
    file: Option<File>,
    bytes: u64,
    text: Vec<u8>,
}

/// Why a pipe was not drained to its end.
#[derive(Debug)]
pub(crate) enum DrainError {
    Read(std::io::Error),
    Write(PathBuf, std::io::Error),
}

/// Where output goes.
pub(crate) trait Sink: Send {
    fn take(&mut self, chunk: &[u8]) -> std::io::Result<()>;

    /// The file that cannot be written when taking fails.
    fn path(&self) -> &Path {
        Path::new("")
    }
}

/// Output on its way into a sink, without the secrets in it.
pub(crate) struct Channel<S> {
    sink: S,
    redaction: Option<Stream>,
}

impl<S: Sink> Channel<S> {
    pub(crate) fn new(sink: S, redactor: Option<&Redactor>) -> Self {
        Self { sink, redaction: redactor.map(Redactor::stream) }
    }

    /// Copies what the pipe gives until its end.
    ///
    /// A file is written right here: a write to a local file is shorter than handing it to
    /// another thread, and the reads between two writes give way to other tasks.
    pub(crate) async fn drain(
        &mut self,
        mut pipe: impl AsyncRead + Unpin,
    ) -> Result<(), DrainError> {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let count = pipe.read(&mut chunk).await.map_err(DrainError::Read)?;
            if count == 0 {
                return Ok(());
            }
            let taken = match &mut self.redaction {
                Some(stream) => self.sink.take(&stream.push(&chunk[..count])),
                None => self.sink.take(&chunk[..count]),
            };
            taken.map_err(|source| DrainError::Write(self.sink.path().to_owned(), source))?;
        }
    }

    /// The sink, with all that came.
    pub(crate) fn finish(mut self) -> Result<S, ExecError> {
        if let Some(mut stream) = self.redaction.take() {
            let taken = self.sink.take(&stream.finish());
            let path = || self.sink.path().to_owned();
            taken.map_err(|source| ExecError::Log { path: path(), source })?;
        }
        Ok(self.sink)
    }
}

impl Log {
    pub(crate) fn create(path: &Path) -> Result<Self, ExecError> {
        let path = path.to_owned();
        match emptied(&path) {
            Ok(file) => Ok(Self { path, file, bytes: 0, text: Vec::new() }),
            Err(source) => Err(ExecError::Log { path, source }),
        }
    }

    fn fits(&self) -> bool {
        self.bytes <= CAPTURE_LIMIT as u64
    }

    pub(crate) fn captured(self) -> Captured {
        if !self.fits() {
            return Captured::Large { path: self.path, bytes: self.bytes };
        }
        let text = String::from_utf8(self.text)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        Captured::Text(trimmed(text))
    }
}

impl Sink for Log {
    fn take(&mut self, chunk: &[u8]) -> std::io::Result<()> {
        if chunk.is_empty() {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(create(&self.path)?),
        };
        file.write_all(chunk)?;
        self.bytes += chunk.len() as u64;
        if self.fits() {
            self.text.extend_from_slice(chunk);
        } else {
            self.text = Vec::new();
        }
        Ok(())
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// Without the line ends at its end.
pub(crate) fn trimmed(mut text: String) -> String {
    text.truncate(text.trim_end_matches(['\n', '\r']).len());
    text
}

/// The file of an earlier script, emptied; `None` where there is none.
fn emptied(path: &Path) -> std::io::Result<Option<File>> {
    match File::options().write(true).truncate(true).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn create(path: &Path) -> std::io::Result<File> {
    match (File::create(path), path.parent()) {
        (Err(error), Some(directory)) if error.kind() == std::io::ErrorKind::NotFound => {
            std::fs::create_dir_all(directory)?;
            File::create(path)
        }
        (created, _) => created,
    }
}
