use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use fabro_types::RunId;

use super::database::Database;
use crate::StoreError;

/// How often acquiring a lock gives way to those who only look. A look takes microseconds.
const PATIENCE: usize = 10_000;

/// The right to drive a run. It ends when this value is dropped or the process dies, however.
#[derive(Debug)]
pub struct DriverLock {
    run: RunId,
    _run_lock: File,
    /// Held shared by every driver, so that blobs are swept only when there is none.
    _any_driver: File,
}

impl DriverLock {
    /// The run it is for.
    pub fn run(&self) -> RunId {
        self.run
    }
}

impl Database {
    /// Takes the right to drive a run, also one that is still to be created; its run directory
    /// is created. Fails at once with [`StoreError::Driven`] when a process has it.
    pub(super) fn lock(&self, run: RunId) -> Result<DriverLock, StoreError> {
        let any_driver = self.open_drivers()?;
        // A sweep holds it for as long as it takes to list the blobs.
        any_driver.lock_shared().map_err(|error| StoreError::io(self.drivers_path(), error))?;
        let run_lock = self.lock_run(run)?;
        Ok(DriverLock { run, _run_lock: run_lock, _any_driver: any_driver })
    }

    /// Whether a process is driving this run at the moment. Never gets in a driver's way.
    pub(super) fn is_driven(&self, run: RunId) -> Result<bool, StoreError> {
        let path = self.lock_path(run);
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            file => file.map_err(|error| StoreError::io(path.clone(), error))?,
        };
        is_held(&file).map_err(|error| StoreError::io(path, error))
    }

    /// The run's lock alone, without being a driver.
    pub(super) fn lock_run(&self, run: RunId) -> Result<File, StoreError> {
        let path = self.lock_path(run);
        let here = |error| StoreError::io(path.clone(), error);
        for _ in 0..PATIENCE {
            fs::create_dir_all(self.run_dir(run)).map_err(here)?;
            let mut file = match open(&path) {
                // The run was just deleted.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                file => file.map_err(here)?,
            };
            match file.try_lock() {
                Ok(()) if is_at(&file, &path) => {
                    // The number is only for a message; on a full disk that one goes without.
                    let _ = write_pid(&mut file);
                    return Ok(file);
                }
                // The file was removed with its run before the lock was there.
                Ok(()) => {}
                Err(TryLockError::Error(error)) => return Err(here(error)),
                Err(TryLockError::WouldBlock) => {
                    if is_held(&file).map_err(here)? {
                        return Err(StoreError::Driven { run, pid: read_pid(&mut file) });
                    }
                    // Only somebody who looks.
                    std::thread::yield_now();
                }
            }
        }
        Err(StoreError::Busy { path })
    }

    /// The lock that says nobody drives any run; nothing when somebody does.
    pub(super) fn lock_out_drivers(&self) -> Result<Option<File>, StoreError> {
        let file = self.open_drivers()?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(StoreError::io(self.drivers_path(), error)),
        }
    }

    fn open_drivers(&self) -> Result<File, StoreError> {
        let path = self.drivers_path();
        open(&path).map_err(|error| StoreError::io(path, error))
    }

    fn drivers_path(&self) -> PathBuf {
        self.dir.join("drivers.lock")
    }

    fn lock_path(&self, run: RunId) -> PathBuf {
        self.run_dir(run).join("driver.lock")
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

/// Whether somebody holds the lock for himself. Those who only look share it, and so do not
/// take each other for drivers.
fn is_held(file: &File) -> io::Result<bool> {
    match file.try_lock_shared() {
        Ok(()) => file.unlock().map(|()| false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Whether the file is the one that this path names now.
fn is_at(file: &File, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let place = |found: &fs::Metadata| (found.dev(), found.ino());
        matches!((file.metadata(), fs::metadata(path)), (Ok(a), Ok(b)) if place(&a) == place(&b))
    }
    #[cfg(not(unix))]
    {
        // There a file that is open cannot be removed.
        let _ = file;
        path.exists()
    }
}

fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
