//! `fabro validate --watch`: checks again on each change.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::signal::ctrl_c;
use tokio::time::sleep;

use super::validate::{Report, ValidateArgs, human, report_on};
use crate::exit::Exit;
use crate::global::{Global, cwd};
use crate::output;
use crate::workflow_files::workflows_in;

/// How often the files are looked at.
const INTERVAL: Duration = Duration::from_millis(500);

/// What shows that a file has changed; `None` while there is none.
type Stamp = Option<(SystemTime, u64)>;

/// Checks the workflows, and again whenever one of their files changes, until Ctrl-C.
pub(super) async fn watch(args: &ValidateArgs, global: &Global) -> anyhow::Result<Exit> {
    let cwd = cwd()?;
    let watching = async {
        let mut files = BTreeSet::new();
        loop {
            let listed = listed(&args.paths, &cwd);
            // Stamps are taken before the check, so that what changes meanwhile is seen. Which files are
            // read is known after one: where there are new ones, the check is made again.
            let (report, stamps) = loop {
                let stamps = stamps(&files);
                let report = report_on(&args.paths)?;
                let is_known = report.files.iter().all(|file| stamps.contains_key(file));
                files.clone_from(&report.files);
                if is_known {
                    break (report, stamps);
                }
            };
            show(&report, args, global)?;
            loop {
                sleep(INTERVAL).await;
                let has_changed = |(file, seen): (&PathBuf, &Stamp)| stamp(file) != *seen;
                let mut read = stamps.iter().filter(|(file, _)| files.contains(*file));
                if read.any(has_changed) || self::listed(&args.paths, &cwd) != listed {
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

/// Prints the result of a check in the place of the last one.
fn show(report: &Report, args: &ValidateArgs, global: &Global) -> anyhow::Result<()> {
    if args.is_json() {
        output::stdout(&format!("{}\n", report.as_json()))?;
        return Ok(());
    }
    if global.can_redraw_stdout() {
        output::bytes(b"\x1b[2J\x1b[3J\x1b[H")?;
    }
    let paint = global.paint_stdout();
    let text = human(&report.outcomes, paint);
    output::text(&format!("{text}{}\n", paint.hint("Waiting for changes; Ctrl-C ends.")))?;
    Ok(())
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
