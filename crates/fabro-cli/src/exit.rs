//! The exit codes. They are part of the command's interface.

use std::process::ExitCode;

/// The exit code of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit(u8);

impl Exit {
    /// The command succeeded; of `run` and `resume`: the run succeeded.
    pub const SUCCEEDED: Self = Self(0);
    /// The run failed, succeeded only partially or was canceled; of `fmt --check`: a file is not
    /// formatted; of `doctor`: a check failed.
    pub const FAILED: Self = Self(1);
    /// The arguments are wrong, or a workflow is not valid.
    pub const USAGE: Self = Self(2);
    /// The run waits for a person, for a larger budget, or for a model or an agent that is
    /// unavailable.
    pub const PAUSED: Self = Self(3);
    /// The store cannot be read or written, or an output file cannot be written.
    pub const STORE: Self = Self(4);
    /// `wait` reached its timeout.
    pub const TIMEOUT: Self = Self(124);
    /// The command was interrupted. The run can be resumed.
    pub const INTERRUPTED: Self = Self(130);

    /// The exit code of another `fabro` process.
    pub fn of(code: i32) -> Option<Self> {
        u8::try_from(code).ok().map(Self)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.0)
    }
}
