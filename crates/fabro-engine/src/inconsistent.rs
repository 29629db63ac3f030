use fabro_types::{Failure, FailureClass};

/// A state that cannot be: a bug of the engine, or a log that is not its own. It ends the run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is a bug in fabro: {0}; please report it")]
pub struct Inconsistent(String);

impl Inconsistent {
    /// Says what cannot be.
    pub fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl From<Inconsistent> for Failure {
    fn from(error: Inconsistent) -> Self {
        Self { terminal: true, ..Self::new(FailureClass::Structural, error.to_string()) }
    }
}
