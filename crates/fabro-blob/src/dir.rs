use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use fabro_types::BlobRef;
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use crate::{BlobError, BlobStore, text_to_json_string};

const BUFFER: usize = 64 * 1024;
const UNFINISHED: &str = "unfinished";
/// How the names of unfinished files end, after six letters and digits.
const TEMPORARY: &str = ".tmp";

/// Blobs as files `ab/cdef….json` of a directory, the hexadecimal name cut after two digits.
///
/// A file appears under its name only after its bytes are on stable storage, so there is never
/// half a blob, even when a writer is killed, and any number of processes may write. The directory is created by
/// the first write. A write that finds a damaged file replaces it.
#[derive(Debug)]
pub struct DirBlobs {
    root: PathBuf,
    /// Which of the 256 directories this process has seen on stable storage, so that an entry in
    /// one of them cannot be lost together with the directory.
    settled: Box<[AtomicBool; 256]>,
}

impl DirBlobs {
    /// The blobs below this directory. Nothing is read or created yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let settled = Box::new([const { AtomicBool::new(false) }; 256]);
        Self { root: root.into(), settled }
    }

    /// Where the blob's file is, or would be.
    pub fn path(&self, blob: &BlobRef) -> PathBuf {
        let hex = blob.hex();
        let (shard, name) = hex.split_at(2);
        self.root.join(shard).join(format!("{name}.json"))
    }

    /// Removes a blob, if it exists.
    pub fn remove(&self, blob: &BlobRef) -> Result<(), BlobError> {
        let path = self.path(blob);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_at(path)(error)),
            _ => Ok(()),
        }
    }

    /// All blobs, in the order of their names; files that are not blobs are ignored.
    pub fn list(&self) -> Result<Vec<BlobRef>, BlobError> {
        let mut blobs = Vec::new();
        for shard in entries(&self.root)? {
            let Some(start) = shard.file_name().and_then(|name| name.to_str()) else { continue };
            if start.len() != 2 || !shard.is_dir() {
                continue;
            }
            for file in entries(&shard)? {
                let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                let hex = name.strip_suffix(".json").map(|rest| format!("{start}{rest}"));
                blobs.extend(hex.and_then(|hex| BlobRef::from_hex(&hex).ok()));
            }
        }
        blobs.sort_unstable();
        Ok(blobs)
    }

    /// Removes what writers that were killed left behind. Call it only while no process writes. Files that
    /// have other names are left alone.
    pub fn remove_unfinished(&self) -> Result<(), BlobError> {
        for file in entries(&self.root.join(UNFINISHED))? {
            let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let stem = name.strip_suffix(TEMPORARY).unwrap_or_default();
            let is_ours = stem.len() == 6 && stem.bytes().all(|byte| byte.is_ascii_alphanumeric());
            if is_ours && !file.is_dir() {
                fs::remove_file(&file).map_err(io_at(file))?;
            }
        }
        Ok(())
    }

    /// Writes a file under a name of no meaning, hashing what is written; `fill` may fail with
    /// errors of its own.
    fn write(
        &self,
        fill: impl FnOnce(&mut dyn Write) -> Result<(), BlobError>,
    ) -> Result<BlobRef, BlobError> {
        let dir = self.unfinished()?;
        let mut temporary = temporary(&dir).map_err(io_at(&dir))?;
        let mut hashing = Hashing { out: &mut temporary, hash: Sha256::new() };
        {
            let mut out = BufWriter::with_capacity(BUFFER, &mut hashing);
            fill(&mut out)?;
            out.flush().map_err(io_at(&dir))?;
        }
        let hash = hashing.hash;
        let blob = BlobRef::from_digest(hash.finalize().into());
        self.settle(&blob, temporary)?;
        Ok(blob)
    }

    /// The directory of files that are not whole yet.
    fn unfinished(&self) -> Result<PathBuf, BlobError> {
        let dir = self.root.join(UNFINISHED);
        create_dirs(&dir).map_err(io_at(&dir))?;
        Ok(dir)
    }

    /// Moves a written file to its blob's name, durably.
    fn settle(&self, blob: &BlobRef, file: NamedTempFile) -> Result<(), BlobError> {
        let path = self.path(blob);
        let shard = self.shard(blob);
        create_dirs(&shard).map_err(io_at(&shard))?;
        give_to_owner_of(&shard, file.path()).map_err(io_at(file.path()))?;
        file.as_file().sync_data().map_err(io_at(file.path()))?;
        file.persist(&path).map_err(|error| BlobError::Io { path, source: error.error })?;
        self.sync_shard(blob)
    }

    fn shard(&self, blob: &BlobRef) -> PathBuf {
        self.root.join(&blob.hex()[..2])
    }

    fn sync_shard(&self, blob: &BlobRef) -> Result<(), BlobError> {
        let shard = self.shard(blob);
        sync_dir(&shard).map_err(io_at(&shard))?;
        let settled = &self.settled[usize::from(blob.digest()[0])];
        if !settled.load(Ordering::Acquire) {
            sync_dir(&self.root).map_err(io_at(&self.root))?;
            settled.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn holds(&self, blob: &BlobRef, bytes: &[u8]) -> bool {
        let same_size =
            fs::metadata(self.path(blob)).is_ok_and(|it| it.len() == bytes.len() as u64);
        same_size && self.copy_to(blob, &mut io::sink()).is_ok()
    }
}

impl BlobStore for DirBlobs {
    fn get(&self, blob: &BlobRef) -> Result<Vec<u8>, BlobError> {
        let path = self.path(blob);
        let mut bytes = Vec::new();
        open(blob, &path)?.read_to_end(&mut bytes).map_err(io_at(&path))?;
        if BlobRef::of(&bytes) != *blob {
            return Err(BlobError::Corrupt { blob: *blob, path: Some(path) });
        }
        Ok(bytes)
    }

    fn put(&self, bytes: &[u8]) -> Result<BlobRef, BlobError> {
        let blob = BlobRef::of(bytes);
        if self.holds(&blob, bytes) {
            // Another writer may have moved it here a moment ago and not made that durable yet.
            self.sync_shard(&blob)?;
            return Ok(blob);
        }
        let dir = self.unfinished()?;
        let mut temporary = temporary(&dir).map_err(io_at(&dir))?;
        temporary.write_all(bytes).map_err(io_at(&dir))?;
        self.settle(&blob, temporary)?;
        Ok(blob)
    }

    fn put_json_string(&self, text: &mut dyn Read) -> Result<BlobRef, BlobError> {
        self.write(|out| {
            let mut text = Tracked { inner: text, failed: false };
            text_to_json_string(&mut text, out).map(drop).map_err(|source| {
                if text.failed {
                    BlobError::Input { source }
                } else {
                    BlobError::Io { path: self.root.clone(), source }
                }
            })
        })
    }

    fn len(&self, blob: &BlobRef) -> Result<u64, BlobError> {
        let path = self.path(blob);
        let found = fs::metadata(&path).map_err(|error| missing_or_io(blob, path, error))?;
        Ok(found.len())
    }

    fn copy_to(&self, blob: &BlobRef, out: &mut dyn Write) -> Result<u64, BlobError> {
        let path = self.path(blob);
        let file = open(blob, &path)?;
        let mut file = BufReader::with_capacity(BUFFER, file);
        let mut hash = Sha256::new();
        let mut size = 0;
        loop {
            let piece = io::BufRead::fill_buf(&mut file).map_err(io_at(&path))?;
            if piece.is_empty() {
                break;
            }
            hash.update(piece);
            out.write_all(piece).map_err(|source| BlobError::Output { source })?;
            let read = piece.len();
            size += read as u64;
            io::BufRead::consume(&mut file, read);
        }
        if BlobRef::from_digest(hash.finalize().into()) != *blob {
            return Err(BlobError::Corrupt { blob: *blob, path: Some(path) });
        }
        Ok(size)
    }
}

struct Hashing<W> {
    out: W,
    hash: Sha256,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Remembers that an error came from the reader, not from the writer beside it.
struct Tracked<'a> {
    inner: &'a mut dyn Read,
    failed: bool,
}

impl Read for Tracked<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer);
        self.failed = matches!(&read, Err(error) if error.kind() != io::ErrorKind::Interrupted);
        read
    }
}

fn io_at(path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> BlobError {
    move |source| BlobError::Io { path: path.as_ref().to_owned(), source }
}

/// Opens a blob's file. What else may have taken its place is refused: a pipe would block, a device
/// has no end.
fn open(blob: &BlobRef, path: &Path) -> Result<File, BlobError> {
    let failed = |error| missing_or_io(blob, path.to_owned(), error);
    if !fs::metadata(path).map_err(failed)?.is_file() {
        let error = io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file");
        return Err(failed(error));
    }
    File::open(path).map_err(failed)
}

fn missing_or_io(blob: &BlobRef, path: PathBuf, error: io::Error) -> BlobError {
    match error.kind() {
        io::ErrorKind::NotFound => BlobError::Lost { blob: *blob },
        _ => BlobError::Io { path, source: error },
    }
}

/// The paths in a directory, in no order; none when there is no such directory.
fn entries(dir: &Path) -> Result<Vec<PathBuf>, BlobError> {
    let found = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        found => found.map_err(io_at(dir))?,
    };
    found.map(|entry| entry.map(|entry| entry.path()).map_err(io_at(dir))).collect()
}

/// Creates a directory with those above it, each durably: the one above is synced after.
fn create_dirs(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let above = match dir.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    };
    create_dirs(above)?;
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Err(_) => {}
        Ok(()) => give_to_owner_of(above, dir)?,
    }
    sync_dir(above)
}

/// Gives `created`, a new file or directory in a store, the owner of `dir`: when root works in
/// another user's directory, that user must be able to write there later. Does nothing if the
/// process may not change owners.
///
/// # Errors
///
/// The metadata cannot be read or changed.
#[cfg(unix)]
pub fn give_to_owner_of(dir: &Path, created: &Path) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, lchown};

    let owner = fs::metadata(dir)?;
    if fs::symlink_metadata(created)?.uid() == owner.uid() {
        return Ok(());
    }
    match lchown(created, Some(owner.uid()), Some(owner.gid())) {
        // Only root can do that: here another user lets this one write to their directory.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        given => given,
    }
}

/// Does nothing: files have no numeric owner on this platform.
///
/// # Errors
///
/// Never.
#[cfg(not(unix))]
pub fn give_to_owner_of(_dir: &Path, _created: &Path) -> io::Result<()> {
    Ok(())
}

fn temporary(dir: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("").suffix(TEMPORARY).rand_bytes(6);
    #[cfg(unix)]
    {
        // As any other new file: the user's umask decides, not the library's 0600.
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(dir)
}

#[cfg(unix)]
fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(not(unix))]
fn sync_dir(_dir: &Path) -> io::Result<()> {
    // There a directory cannot be opened as a file, and its entries are journaled.
    Ok(())
}
