//! What the exit codes mean. They are part of the command's interface.

use std::process::ExitCode;

/// The code a command ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit(u8);

/// The command did what it was for; of `run` and `resume`: the run succeeded.
pub const SUCCEEDED: Exit = Exit(0);
/// The run failed or was canceled; of `fmt --check`: a file is not formatted; of `doctor`: a
/// check failed.
pub const FAILED: Exit = Exit(1);
/// The arguments are wrong, or a workflow is not valid.
pub const USAGE: Exit = Exit(2);
/// The run waits for a person or for a larger budget.
pub const PAUSED: Exit = Exit(3);
/// The store cannot be read or written, or what was asked for cannot be written.
pub const STORE: Exit = Exit(4);
/// Somebody interrupted the command. The run can be resumed.
pub const INTERRUPTED: Exit = Exit(130);

impl Exit {
    /// The code that another `fabro` ended with.
    pub fn of(code: i32) -> Option<Self> {
        u8::try_from(code).ok().map(Self)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.0)
    }
}
