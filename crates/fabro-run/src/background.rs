//! Background drivers.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, SystemTime};

use fabro_store::{Runs, StoreError};
use fabro_types::RunId;

use crate::prepare::prepare_dir;

/// How often to check whether the driver has started.
const PERIOD: Duration = Duration::from_millis(10);

/// The file of a run's directory that a background driver writes its stderr to.
pub(crate) const DRIVER_LOG: &str = "driver.log";

/// Why no driver could be started in the background.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackgroundError {
    /// The process cannot be started or waited for.
    #[error("the background process cannot be started: {0}")]
    Process(#[from] io::Error),
    /// Its log file cannot be written.
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

/// Starts a driver in a process group of its own, without a terminal, and waits until it has committed
/// its first record or started a preparation step. Returns the exit status of a driver that ended
/// before that. Its stderr goes into `driver.log` of the run's directory.
pub(crate) async fn start_driver(
    mut driver: Command,
    store: &(impl Runs + ?Sized),
    run: RunId,
    run_dir: &Path,
) -> Result<Option<ExitStatus>, BackgroundError> {
    let last = store.last_seq(run).await?;
    let step = step_started(run_dir);
    let path = run_dir.join(DRIVER_LOG);
    let log = fs::create_dir_all(run_dir).and_then(|()| fs::File::create(&path));
    let log = log.map_err(|source| BackgroundError::File { path, source })?;
    driver.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
    let mut child = driver.spawn()?;
    loop {
        // Before the log is read, so that the last commit of a driver that ended is seen.
        let ended = child.try_wait()?;
        if store.last_seq(run).await? > last || step_started(run_dir) != step {
            return Ok(None);
        }
        if ended.is_some() {
            return Ok(ended);
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// When the first preparation step last started; it truncates its log then.
fn step_started(run_dir: &Path) -> Option<SystemTime> {
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
    async fn a_driver_that_ends_before_it_has_started_is_reported() {
        assert_eq!(start("echo no >&2; exit 4").await, Some(4));
        assert_eq!(start("mkdir -p prepare/1; : >prepare/1/stdout.log; sleep 0.1").await, None);
    }
}
