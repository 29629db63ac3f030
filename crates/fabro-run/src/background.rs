//! Background drivers.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime};

use fabro_store::Store;
use fabro_types::RunId;

use crate::RunError;
use crate::prepare::prepare_dir;

/// How often to check whether the driver has started.
const PERIOD: Duration = Duration::from_millis(10);

/// The timeout for the first record of a driver. It waits for the store while other processes write to it.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// The file of a run's directory that a background driver writes its stderr to.
pub(crate) const DRIVER_LOG: &str = "driver.log";

/// Starts a driver in a process group of its own, without a terminal, and waits until it has committed
/// its first record or started a preparation step. Returns the exit status of a driver that ended
/// before that. Its stderr goes into `driver.log` of the run's directory.
pub(crate) async fn start_driver(
    mut driver: Command,
    store: &dyn Store,
    run: RunId,
    run_dir: &Path,
) -> Result<Option<ExitStatus>, RunError> {
    let last = store.last_seq(run).await?;
    let step = step_started(run_dir);
    let path = run_dir.join(DRIVER_LOG);
    let log = fs::create_dir_all(run_dir).and_then(|()| fs::File::create(&path));
    let log = log.map_err(|error| RunError::Background {
        message: format!("{} cannot be written: {error}", path.display()),
    })?;
    driver.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
    let mut child = driver.spawn().map_err(|error| RunError::Background {
        message: format!("the background process cannot be started: {error}"),
    })?;
    let started =
        started(&mut child, store, run, last, || step_started(run_dir) != step, &path).await;
    if !matches!(started, Ok(Some(_))) {
        // A caller that continues to run, such as a server, would keep the ended process as a zombie.
        std::thread::spawn(move || child.wait());
    }
    started
}

/// Waits until a driver has started, and returns the exit status of one that has ended before that.
async fn started(
    child: &mut Child,
    store: &dyn Store,
    run: RunId,
    last: u64,
    has_step: impl Fn() -> bool,
    log: &Path,
) -> Result<Option<ExitStatus>, RunError> {
    let began = Instant::now();
    loop {
        // Before the log is read, so that the last commit of a driver that ended is seen.
        let ended = child.try_wait().map_err(|error| RunError::Background {
            message: format!("the background process {} is lost: {error}", child.id()),
        })?;
        if store.last_seq(run).await? > last || has_step() {
            return Ok(None);
        }
        if ended.is_some() {
            return Ok(ended);
        }
        if began.elapsed() > START_TIMEOUT {
            let message = format!(
                "the background process {} has recorded nothing within {} s: it may still do so; {} \
                 has what it says",
                child.id(),
                START_TIMEOUT.as_secs(),
                log.display()
            );
            return Err(RunError::Background { message });
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
