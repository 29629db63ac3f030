//! The log files of a running stage, as they grow.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::error;

/// How many bytes are read at a time, and the longest piece of a line that is not ended.
const CHUNK: usize = 64 << 10;

/// Opens a file of a run's directory for reading. A pipe or device in its place is an error: to open or read it might
/// never end.
pub(super) fn open_stored(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is not a regular file"))
    }
}

/// A file that grows, read line by line.
#[derive(Debug, Default)]
pub(super) struct GrowingFile {
    /// How much was read.
    offset: u64,
    /// The beginning of a line.
    line: Vec<u8>,
}

impl GrowingFile {
    /// How many bytes were read.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Gives the lines that were added since. A file that is not there has none; one that is shorter
    /// than before was begun anew. A pipe or device in its place is an error.
    pub(super) fn read(
        &mut self,
        path: &Path,
        mut line: impl FnMut(&[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let unread =
            |error: &io::Error| error::damaged(&format!("read {}: {error}", path.display()));
        let mut file = match open_stored(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(|error| unread(&error))?,
        };
        let length = file.metadata().map_err(|error| unread(&error))?.len();
        if length < self.offset {
            *self = Self::default();
        }
        if length == self.offset {
            return Ok(());
        }
        file.seek(SeekFrom::Start(self.offset)).map_err(|error| unread(&error))?;
        let mut chunk = vec![0; CHUNK];
        loop {
            let read = file.read(&mut chunk).map_err(|error| unread(&error))?;
            if read == 0 {
                return Ok(());
            }
            self.offset += read as u64;
            for part in chunk[..read].split_inclusive(|byte| *byte == b'\n') {
                self.line.extend_from_slice(part);
                if self.line.ends_with(b"\n") || self.line.len() > CHUNK {
                    line(&std::mem::take(&mut self.line))?;
                }
            }
        }
    }

    /// The last line, if it is not ended.
    pub(super) fn finish(&mut self) -> Option<Vec<u8>> {
        let line = std::mem::take(&mut self.line);
        (!line.is_empty()).then_some(line)
    }
}

/// A text that is written to it becomes lines, like that of a [`GrowingFile`].
pub(super) struct Lines<F> {
    line: Vec<u8>,
    /// How many bytes are left out.
    skip: u64,
    print: F,
    /// Why printing failed.
    failed: Option<anyhow::Error>,
}

impl<F: FnMut(&[u8]) -> anyhow::Result<()>> Lines<F> {
    /// After the beginning of a line; the first `skip` bytes are left out.
    pub(super) fn new(line: Vec<u8>, skip: u64, print: F) -> Self {
        Self { line, skip, print, failed: None }
    }

    /// Prints the last line, if it is not ended, unless a line could not be printed.
    pub(super) fn end(mut self) -> anyhow::Result<()> {
        match self.failed {
            Some(error) => Err(error),
            None if self.line.is_empty() => Ok(()),
            None => (self.print)(&self.line),
        }
    }
}

impl<F: FnMut(&[u8]) -> anyhow::Result<()>> io::Write for Lines<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(bytes.len());
        self.skip -= skipped as u64;
        for part in bytes[skipped..].split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if self.line.ends_with(b"\n") || self.line.len() > CHUNK {
                let printed = (self.print)(&std::mem::take(&mut self.line));
                if let Err(error) = printed {
                    self.failed = Some(error);
                    return Err(io::Error::other("a line cannot be printed"));
                }
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Where a file of an attempt that failed is: put away, unless the next attempt has not begun.
pub(super) fn of_attempt(dir: &Path, attempt: u32, name: &str) -> PathBuf {
    let earlier = dir.join(format!("attempt-{attempt}"));
    let put_away = earlier.join(name);
    let is_put_away = put_away.exists() || earlier.join("status.json").exists();
    if is_put_away { put_away } else { dir.join(name) }
}
