//! Bytes by their hash, and names for them that are hard links.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tempfile::TempPath;

/// So many files are synced one by one; for more, one call syncs the file system.
const FEW: usize = 16;

/// How the names of copies begin that are not finished.
const UNFINISHED: &str = ".copy-";

/// A copy that is not finished after this time belongs to no running program.
const ABANDONED: Duration = Duration::from_mins(10);

/// Where the artifacts of a run are kept, below its directory: as `{stage}/retry_{attempt}/{path}`.
pub const FILES: &str = "cache/artifacts/files";

/// The pool of the store that a run's directory, `{store}/runs/{id}`, is in: `{store}/artifacts`. A
/// directory elsewhere has a pool of its own.
pub fn pool_of(run_dir: &Path) -> PathBuf {
    match run_dir.parent() {
        Some(runs) if runs.file_name().is_some_and(|name| name == "runs") => {
            runs.with_file_name("artifacts")
        }
        _ => run_dir.join("cache/artifacts/pool"),
    }
}

fn is_few(files: usize) -> bool {
    files <= FEW || cfg!(not(target_os = "linux"))
}

/// Files by their hash.
pub(crate) struct Pool<'a> {
    dir: &'a Path,
    /// Directories whose entries are not synced yet.
    dirs: BTreeSet<PathBuf>,
}

/// A copy that has no name yet.
pub(crate) struct Copied {
    pub(crate) size: u64,
    pub(crate) sha256: String,
    /// Closed: a collection has thousands.
    file: TempPath,
}

impl<'a> Pool<'a> {
    pub(crate) fn new(dir: &'a Path) -> Self {
        Self { dir, dirs: BTreeSet::new() }
    }

    /// Copies one of so many files; of one that is longer than `most` no more than the fact that it is.
    pub(crate) fn copy(&self, mut from: File, most: u64, files: usize) -> io::Result<Copied> {
        // The store around it may be a directory that others can enter.
        DirBuilder::new().recursive(true).mode(0o700).create(self.dir)?;
        let mut file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(self.dir)?;
        let mut hash = Sha256::new();
        let mut size = 0;
        let mut buffer = vec![0; 64 << 10];
        while size <= most {
            let read = from.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            size += read as u64;
            hash.update(&buffer[..read]);
            file.write_all(&buffer[..read])?;
        }
        let mut sha256 = String::with_capacity(64);
        for byte in hash.finalize() {
            // Writing to a string cannot fail.
            let _ = write!(sha256, "{byte:02x}");
        }
        // The one copy of equal files is not to be changed through one of its names.
        file.as_file().set_permissions(Permissions::from_mode(0o400))?;
        if is_few(files) {
            file.as_file().sync_data()?;
        }
        Ok(Copied { size, sha256, file: file.into_temp_path() })
    }

    /// Makes the copies of so many files durable; of few each has been before.
    pub(crate) fn sync(&self, files: usize) -> io::Result<()> {
        if is_few(files) {
            return Ok(());
        }
        #[cfg(target_os = "linux")]
        rustix::fs::syncfs(File::open(self.dir)?)?;
        Ok(())
    }

    /// Gives a copy its name in the pool and this one besides.
    pub(crate) fn link(&mut self, copied: Copied, name: &Path) -> io::Result<()> {
        let object = object(self.dir, &copied.sha256);
        let shard = object.parent().unwrap_or(self.dir).to_owned();
        fs::create_dir_all(&shard)?;
        // Damaged bytes would spoil every later artifact of the same name: a good copy replaces them.
        let is_whole = hash_of(&object).is_ok_and(|hash| hash == copied.sha256);
        if is_whole && link_new(&object, name).is_ok() {
            return Ok(());
        }
        // The name comes first: bytes without one may be swept away at any time.
        link_new(&copied.file, name)?;
        copied.file.persist(&object).map_err(|error| error.error)?;
        self.dirs.insert(shard);
        self.dirs.insert(self.dir.to_owned());
        Ok(())
    }

    pub(crate) fn sync_dirs(&mut self) -> io::Result<()> {
        for dir in std::mem::take(&mut self.dirs) {
            File::open(dir)?.sync_all()?;
        }
        Ok(())
    }
}

fn object(pool: &Path, sha256: &str) -> PathBuf {
    let (shard, rest) = sha256.split_at(2);
    pool.join(shard).join(rest)
}

/// Links a file to a name, in place of what had that name; copies it where there are no hard links.
fn link_new(object: &Path, name: &Path) -> io::Result<()> {
    if let Some(dir) = name.parent() {
        fs::create_dir_all(dir)?;
    }
    match fs::remove_file(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    match fs::hard_link(object, name) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::Unsupported
                    | io::ErrorKind::PermissionDenied
                    | io::ErrorKind::CrossesDevices
                    | io::ErrorKind::TooManyLinks
            ) =>
        {
            fs::copy(object, name).map(drop)
        }
        linked => linked,
    }
}

/// Why a kept file cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Damaged {
    /// The file is gone.
    #[error("the artifact {path} is missing from the store")]
    Missing {
        /// Its path below the run's directory.
        path: String,
    },
    /// Its bytes are others than those that were kept.
    #[error("the artifact {path} has been changed in the store")]
    Changed {
        /// Its path below the run's directory.
        path: String,
    },
    /// It cannot be read.
    #[error("read the artifact {path}: {source}")]
    Read {
        /// Its path below the run's directory.
        path: String,
        /// Why.
        source: io::Error,
    },
}

/// The file with the bytes of an artifact, after a check that they are the ones that were kept: its name
/// `path` below the run's directory, or its place in the pool.
///
/// # Errors
///
/// It is missing, damaged, or cannot be read.
pub fn stored_file(run_dir: &Path, path: &str, sha256: &str) -> Result<PathBuf, Damaged> {
    let shown = || path.to_owned();
    let is_hash = sha256.len() == 64 && sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_below = Path::new(path).components().all(|it| matches!(it, Component::Normal(_)));
    if !is_hash || !is_below {
        return Err(Damaged::Missing { path: shown() });
    }
    let mut result = Err(Damaged::Missing { path: shown() });
    for file in [run_dir.join(path), object(&pool_of(run_dir), sha256)] {
        match hash_of(&file) {
            Ok(hash) if hash == sha256 => return Ok(file),
            Ok(_) => result = Err(Damaged::Changed { path: shown() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => result = Err(Damaged::Read { path: shown(), source }),
        }
    }
    result
}

pub(crate) fn hash_of(file: &Path) -> io::Result<String> {
    if !fs::symlink_metadata(file)?.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let mut from = File::open(file)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = from.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        hash.update(&buffer[..read]);
    }
    let digits = hash.finalize().into_iter().map(|byte| format!("{byte:02x}"));
    Ok(digits.collect())
}

/// Gives a run the artifact of another one, under the same name.
///
/// # Errors
///
/// It is missing, damaged, or cannot be linked.
pub fn share(from_run: &Path, to_run: &Path, path: &str, sha256: &str) -> Result<(), Damaged> {
    let file = stored_file(from_run, path, sha256)?;
    let linked = link_new(&file, &to_run.join(path));
    linked.map_err(|source| Damaged::Read { path: path.to_owned(), source })
}

/// The space that a pool takes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUsage {
    /// All of it.
    pub total: u64,
    /// What no run names: the next sweep frees it.
    pub unnamed: u64,
}

/// The space that a pool takes.
///
/// # Errors
///
/// A directory cannot be read.
pub fn pool_usage(pool: &Path) -> io::Result<PoolUsage> {
    let mut usage = PoolUsage::default();
    for shard in entries(pool)? {
        let Ok(about) = shard.metadata() else { continue };
        if !about.is_dir() {
            usage.total += about.len();
            continue;
        }
        for entry in entries(&shard.path())? {
            let Ok(about) = entry.metadata() else { continue };
            usage.total += about.len();
            let is_ours =
                is_part_of_hash(&shard.file_name(), 2) && is_part_of_hash(&entry.file_name(), 62);
            usage.unnamed += if is_ours && about.nlink() == 1 { about.len() } else { 0 };
        }
    }
    Ok(usage)
}

/// Whether a name has so many hexadecimal digits and nothing else, as [`object`] makes them.
fn is_part_of_hash(name: &OsStr, digits: usize) -> bool {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    name.len() == digits && name.as_encoded_bytes().iter().all(is_digit)
}

/// The entries of a directory; none when there is no such directory.
fn entries(dir: &Path) -> io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.collect(),
    }
}

/// Removes the bytes of a pool that have no other name left, and what a program that died left there.
/// Returns how many bytes that freed. Files whose names are not the pool's are left alone: the directory may
/// have been there before, or be a link to another one.
///
/// # Errors
///
/// A file cannot be removed.
pub fn sweep(pool: &Path) -> io::Result<u64> {
    let mut freed = 0;
    for shard in entries(pool)? {
        let Ok(about) = shard.metadata() else { continue };
        if !about.is_dir() {
            let is_ours = shard.file_name().as_encoded_bytes().starts_with(UNFINISHED.as_bytes());
            let age = about.modified().ok().and_then(|time| time.elapsed().ok());
            let is_old = age.is_some_and(|age| age > ABANDONED);
            if is_ours && is_old && fs::remove_file(shard.path()).is_ok() {
                freed += about.len();
            }
            continue;
        }
        if !is_part_of_hash(&shard.file_name(), 2) {
            continue;
        }
        for entry in entries(&shard.path())? {
            let Ok(about) = entry.metadata() else { continue };
            let is_ours = is_part_of_hash(&entry.file_name(), 62);
            if is_ours && about.is_file() && about.nlink() == 1 {
                match fs::remove_file(entry.path()) {
                    Ok(()) => freed += about.len(),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
    Ok(freed)
}
