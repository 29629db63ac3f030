use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use crate::{Captured, Exec, ExecError, Exit, Finished, Request};

/// Answers from memory: for tests and for programs that must not start a process.
///
/// A script without a result ends with code 127, as an unknown command does. No log file is
/// written.
///
/// ```
/// use fabro_sandbox::{Exit, FakeExec};
///
/// let exec = FakeExec::new().with("cargo test", Exit::Code(101), "1 test failed").with_endless("sleep 1h");
/// assert!(exec.ran().is_empty());
/// ```
#[derive(Debug, Default)]
pub struct FakeExec {
    /// By script; `None` runs until it is canceled.
    results: BTreeMap<String, Option<Finished>>,
    ran: Mutex<Vec<String>>,
}

impl FakeExec {
    /// Knows no script.
    pub fn new() -> Self {
        Self::default()
    }

    /// This script ends so, with this standard output, in no time.
    pub fn with(mut self, script: impl Into<String>, exit: Exit, stdout: &str) -> Self {
        self.results.insert(script.into(), Some(finished(exit, stdout, "")));
        self
    }

    /// This script has exactly this result.
    pub fn with_finished(mut self, script: impl Into<String>, finished: Finished) -> Self {
        self.results.insert(script.into(), Some(finished));
        self
    }

    /// This script runs until it is canceled.
    pub fn with_endless(mut self, script: impl Into<String>) -> Self {
        self.results.insert(script.into(), None);
        self
    }

    /// The scripts run so far, in order.
    pub fn ran(&self) -> Vec<String> {
        self.ran.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl Exec for FakeExec {
    async fn run(&self, request: Request<'_>) -> Result<Finished, ExecError> {
        let script = request.script.to_owned();
        self.ran.lock().unwrap_or_else(PoisonError::into_inner).push(script);
        if request.cancel.is_cancelled() {
            return Ok(finished(Exit::Canceled, "", ""));
        }
        match self.results.get(request.script) {
            Some(Some(finished)) => Ok(finished.clone()),
            Some(None) => {
                request.cancel.cancelled().await;
                Ok(finished(Exit::Canceled, "", ""))
            }
            None => Ok(finished(Exit::Code(127), "", "this script has no result")),
        }
    }
}

fn finished(exit: Exit, stdout: &str, stderr: &str) -> Finished {
    Finished {
        exit,
        stdout: Captured::Text(stdout.to_owned()),
        stderr: Captured::Text(stderr.to_owned()),
        unredacted: [None, None],
        duration: Duration::ZERO,
    }
}
