//! The output of a script, as returned to the caller.

use fabro_redact::Unredacted;

use crate::Captured;
use crate::ends::Ends;
use crate::log::{Log, trimmed};

/// The captured stdout and stderr.
pub(crate) struct CapturedOutputs {
    pub(crate) stdout: Captured,
    pub(crate) stderr: Captured,
    pub(crate) unredacted: [Option<Unredacted>; 2],
}

impl CapturedOutputs {
    pub(crate) fn of_logs(stdout: Log, stderr: Log) -> Self {
        let (stdout, unredacted) = stdout.captured();
        let (stderr, unredacted_stderr) = stderr.captured();
        Self { stdout, stderr, unredacted: [unredacted, unredacted_stderr] }
    }

    pub(crate) fn of_log(merged: Log) -> Self {
        let (stdout, unredacted) = merged.captured();
        Self { unredacted: [unredacted, None], ..Self::of_stdout(stdout) }
    }

    pub(crate) fn of_ends(ends: Ends) -> Self {
        Self::of_stdout(Captured::Text(trimmed(ends.text())))
    }

    fn of_stdout(stdout: Captured) -> Self {
        Self { stdout, stderr: Captured::Text(String::new()), unredacted: [None, None] }
    }
}
