//! Finds the test artifacts that a program left in a directory (screenshots, videos, reports, traces),
//! and keeps them.
//!
//! A [`Watcher`] scans a directory before a program runs and again after it. Files that are new, or
//! have another size or modification time than before, are copied into a directory of their own.
//! What counts as an artifact is in [`Rules`]. What cannot be kept is returned with a reason; it is
//! never an error of the program.
//!
//! ```
//! use fabro_artifacts::{Destination, Limits, Rules, Watcher};
//!
//! let work = tempfile::tempdir()?;
//! let kept = tempfile::tempdir()?;
//! let watcher = Watcher::new(work.path(), Rules::default(), Limits::default());
//! let baseline = watcher.baseline();
//! std::fs::write(work.path().join("junit.xml"), "<testsuites/>")?;
//! let changes = watcher.changes(&baseline);
//! let files = kept.path().join("files");
//! let pool = kept.path().join("pool");
//! let to = Destination { files: &files, pool: &pool, name: &|name| name.to_owned() };
//! let collection = watcher.keep(&changes, &to);
//! assert_eq!(collection.kept[0].path, "junit.xml");
//! assert_eq!(collection.kept[0].media_type, "application/xml");
//! assert!(files.join("junit.xml").exists());
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Limits: the scan follows no symbolic link, stops after [`Limits::entries`] directory entries or
//! [`Limits::time`], and reads directories again only when they have changed. Names that are not
//! UTF-8 are kept with `\xFF` for each byte that is not.

#[cfg(not(unix))]
compile_error!("fabro-artifacts needs a Unix-like system");

mod beneath;
mod changes;
mod entries;
mod keep;
mod limits;
mod media_type;
mod name;
mod pool;
mod rules;
mod sums;
mod tree;
mod watcher;

pub use beneath::open_file;
pub use changes::Changes;
pub use keep::{Collection, Destination, Kept, LeftOut};
pub use limits::Limits;
pub use media_type::media_type;
pub use pool::{Damaged, FILES, PoolUsage, pool_of, pool_usage, share, stored_file, sweep};
pub use rules::{PatternError, Patterns, Rules};
pub use sums::{DamagedFile, SUMS, check_sum, write_sums};
pub use watcher::{Baseline, Watcher};

#[cfg(test)]
mod tests;
