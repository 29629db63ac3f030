//! Fingerprints of files, to detect that one has changed.

use std::fs::{self, Metadata};
use std::hash::Hasher as _;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

const FILE_BYTES: u64 = 4_000_000;
const ALL_BYTES: u64 = 32_000_000;

/// The fingerprint of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fingerprint {
    /// Nothing, or nothing that may be read.
    Nothing,
    File {
        /// Its length and whether it can be executed.
        shape: (u64, bool),
        /// Absent for contents that were not read.
        hash: Option<u64>,
        /// Where it is and when it was written.
        stat: [i64; 5],
    },
    Link(Vec<u8>),
    /// A directory, a pipe and the like.
    Other,
}

impl Fingerprint {
    /// Whether the path has changed. Contents decide where both are known.
    pub(crate) fn differs(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::File { shape, hash: Some(hash), .. },
                Self::File { shape: other_shape, hash: Some(other_hash), .. },
            ) => shape != other_shape || hash != other_hash,
            (
                Self::File { shape, stat, .. },
                Self::File { shape: other_shape, stat: other_stat, .. },
            ) => shape != other_shape || stat != other_stat,
            _ => self != other,
        }
    }
}

/// How many bytes may still be read.
pub(crate) struct Allowance(u64);

impl Allowance {
    pub(crate) fn new() -> Self {
        Self(ALL_BYTES)
    }

    /// The fingerprint of a path; a link is not followed.
    pub(crate) fn fingerprint(&mut self, path: &Path) -> Fingerprint {
        let Ok(metadata) = fs::symlink_metadata(path) else { return Fingerprint::Nothing };
        if metadata.is_file() {
            let hash = (metadata.len() <= self.0.min(FILE_BYTES)).then(|| hash(path)).flatten();
            if hash.is_some() {
                self.0 -= metadata.len();
            }
            let shape = (metadata.len(), metadata.mode() & 0o111 != 0);
            Fingerprint::File { shape, hash, stat: stat(&metadata) }
        } else if metadata.is_symlink() {
            let target = fs::read_link(path).map(|target| target.as_os_str().as_bytes().to_owned());
            target.map_or(Fingerprint::Other, Fingerprint::Link)
        } else {
            Fingerprint::Other
        }
    }
}

fn stat(metadata: &Metadata) -> [i64; 5] {
    [
        metadata.ino().cast_signed(),
        metadata.mtime(),
        metadata.mtime_nsec(),
        metadata.ctime(),
        metadata.ctime_nsec(),
    ]
}

/// The hash of a file's contents, if they can be read and have not grown beyond what is read.
fn hash(path: &Path) -> Option<u64> {
    let mut file = fs::File::open(path).ok()?.take(FILE_BYTES + 1);
    // Its keys are fixed, so hashes of one process compare.
    let mut hasher = std::hash::DefaultHasher::new();
    let mut piece = vec![0; 64 * 1024];
    let mut length = 0;
    loop {
        match file.read(&mut piece).ok()? {
            0 => return (length <= FILE_BYTES).then(|| hasher.finish()),
            read => {
                hasher.write(&piece[..read]);
                length += read as u64;
            }
        }
    }
}
