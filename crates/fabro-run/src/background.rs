//! Drivers in the background.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, SystemTime};

use fabro_store::{Runs, StoreError};
use fabro_types::RunId;

use crate::prepare_dir;

/// How often it is looked whether a driver has begun.
const PERIOD: Duration = Duration::from_millis(10);

/// Why no driver could be started in the background.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackgroundError {
    /// The process cannot be started, or it cannot be asked how it is.
    #[error("the background process cannot be started: {0}")]
    Process(#[from] io::Error),
    /// There is no place for what it says.
    #[error("{} cannot be written: {source}", path.display())]
    File {
        /// The directory or file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The run's log cannot be read.
    #[error("the run's log cannot be read: {0}")]
    Store(#[from] StoreError),
}

/// Starts a driver in a process group of its own, without a terminal, and waits until it has
/// begun: it has committed its first record, or a preparation step is under way. Gives the status
/// of a driver that ended before that. What it says goes into `driver.log` of the run's directory.
pub async fn start_driver(
    mut driver: Command,
    store: &(impl Runs + ?Sized),
    run: RunId,
    run_dir: &Path,
) -> Result<Option<ExitStatus>, BackgroundError> {
    let last = store.last_seq(run).await?;
    let step = step_began(run_dir);
    let path = run_dir.join("driver.log");
    let log = fs::create_dir_all(run_dir).and_then(|()| fs::File::create(&path));
    let log = log.map_err(|source| BackgroundError::File { path, source })?;
    driver.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
    let mut child = driver.spawn()?;
    loop {
        // Asked first: what it committed before it ended is there afterwards.
        let ended = child.try_wait()?;
        if store.last_seq(run).await? > last || step_began(run_dir) != step {
            return Ok(None);
        }
        if ended.is_some() {
            return Ok(ended);
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// When the first preparation step last began; it empties its log then.
fn step_began(run_dir: &Path) -> Option<SystemTime> {
    fs::metadata(prepare_dir(run_dir).join("1/stdout.log")).and_then(|log| log.modified()).ok()
}

#[cfg(test)]
mod tests {
    use fabro_store::MemoryStore;

    use super::*;

    async fn start(script: &str) -> Option<i32> {
        let dir = tempfile::tempdir().unwrap();
        let mut driver = Command::new("sh");
        driver.args(["-c", script]).current_dir(dir.path());
        let run = RunId::from_parts(0, 1);
        let ended = start_driver(driver, &MemoryStore::default(), run, dir.path()).await.unwrap();
        ended.map(|status| status.code().unwrap())
    }

    #[tokio::test]
    async fn a_driver_that_ends_before_it_has_begun_is_told() {
        assert_eq!(start("echo no >&2; exit 4").await, Some(4));
        assert_eq!(start("mkdir -p prepare/1; : >prepare/1/stdout.log; sleep 0.1").await, None);
    }
}
