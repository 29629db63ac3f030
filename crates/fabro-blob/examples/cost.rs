//! What keeping and reading a blob costs beside the least that it can: writing, `fdatasync` and SHA-256, and
//! reading and SHA-256. A line each time: `put` or `get`, the nanoseconds of the least, and those of the store.
//! `cargo xtask bench blobs` uses it.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Write};
use std::time::{Duration, Instant};

use fabro_blob::{BlobStore, DirBlobs};
use sha2::{Digest as _, Sha256};

const SIZE: usize = 8 << 20;
const TIMES: u8 = 15;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let blobs = DirBlobs::new(dir.path().join("blobs"));
    let mut out = io::stdout().lock();
    // The first one makes directories.
    blobs.put(b"0")?;
    for number in 0..TIMES {
        let mut bytes = vec![number; SIZE];
        let file = dir.path().join(format!("bare-{number}"));
        let (bare, _) = time(|| {
            let mut file = File::create(&file)?;
            file.write_all(&bytes)?;
            file.sync_data()?;
            io::Result::Ok(Sha256::digest(&bytes))
        })?;
        // Another content: one that is there would not be written.
        bytes[0] = number ^ 0xff;
        let (put, blob) = time(|| blobs.put(&bytes))?;
        writeln!(out, "put {} {}", bare.as_nanos(), put.as_nanos())?;
        let (bare, _) = time(|| fs::read(&file).map(Sha256::digest))?;
        let (get, found) = time(|| blobs.get(&blob))?;
        assert_eq!(found, bytes);
        writeln!(out, "get {} {}", bare.as_nanos(), get.as_nanos())?;
    }
    Ok(())
}

fn time<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<(Duration, T), E> {
    let began = Instant::now();
    let result = work()?;
    Ok((began.elapsed(), result))
}
