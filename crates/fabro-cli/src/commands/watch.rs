//! `fabro validate --watch`: checks again on each change.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::signal::ctrl_c;
use tokio::time::sleep;

use crate::exit::Exit;
use crate::global::cwd;
use crate::workflow_files::workflows_in;

/// How often the files are looked at.
const INTERVAL: Duration = Duration::from_millis(500);

/// What shows that a file has changed; `None` while there is none.
type Stamp = Option<(SystemTime, u64)>;

/// Checks the workflows of these paths, and again whenever one of the files changes that `check` has read, until
/// Ctrl-C. `check` returns its result and these files; `show` prints a result.
pub(super) async fn watch<R>(
    paths: &[String],
    check: impl Fn() -> anyhow::Result<(R, BTreeSet<PathBuf>)>,
    show: impl Fn(&R) -> anyhow::Result<()>,
) -> anyhow::Result<Exit> {
    let cwd = cwd()?;
    let watching = async {
        let mut files = BTreeSet::new();
        loop {
            let listed = listed(paths, &cwd);
            // Stamps are taken before the check, so that what changes meanwhile is seen. Which files are
            // read is known after one: where there are new ones, the check is made again.
            let (result, stamps) = loop {
                let stamps = stamps(&files);
                let (result, read) = check()?;
                let is_known = read.iter().all(|file| stamps.contains_key(file));
                files = read;
                if is_known {
                    break (result, stamps);
                }
            };
            show(&result)?;
            loop {
                sleep(INTERVAL).await;
                let has_changed = |(file, seen): (&PathBuf, &Stamp)| stamp(file) != *seen;
                let mut read = stamps.iter().filter(|(file, _)| files.contains(*file));
                if read.any(has_changed) || self::listed(paths, &cwd) != listed {
                    break;
                }
            }
        }
    };
    tokio::select! {
        ended = watching => ended,
        signal = ctrl_c() => signal.map(|()| Exit::INTERRUPTED).map_err(Into::into),
    }
}

/// The workflows of the paths that are directories.
fn listed(paths: &[String], cwd: &Path) -> Vec<PathBuf> {
    let directories = paths.iter().map(|path| cwd.join(path)).filter(|path| path.is_dir());
    directories.flat_map(|dir| workflows_in(&dir).unwrap_or_default()).collect()
}

fn stamps(files: &BTreeSet<PathBuf>) -> BTreeMap<PathBuf, Stamp> {
    files.iter().map(|file| (file.clone(), stamp(file))).collect()
}

fn stamp(file: &Path) -> Stamp {
    let meta = fs::metadata(file).ok().filter(fs::Metadata::is_file)?;
    Some((meta.modified().ok()?, meta.len()))
}
