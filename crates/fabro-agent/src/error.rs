use fabro_llm::ModelError;
use fabro_types::{Failure, FailureClass};

use crate::JournalError;

/// Why a session has no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// It was canceled.
    #[error("the agent was canceled")]
    Canceled,
    /// The model failed, after all tries.
    #[error("{0}")]
    Model(Box<ModelError>),
    /// The model has had as many turns as it may.
    #[error("turn limit of {max} reached: raise max_turns")]
    TurnLimit {
        /// The limit.
        max: u32,
    },
    /// The spending limit is reached. What was recorded stays good: once there is more to spend,
    /// [`Session::resume`](crate::Session::resume) resumes it.
    #[error("the spending limit is reached: raise it and resume")]
    Budget,
    /// The model keeps making the same calls with the same results in spite of warnings.
    #[error(
        "the agent repeats itself and was warned {warnings} times: change its prompt or its tools (it keeps calling {calls})"
    )]
    Loop {
        /// How often it was warned.
        warnings: u32,
        /// The tools it calls over and over.
        calls: String,
    },
    /// The model gave an empty answer, and another when asked again.
    #[error("the model gave an empty answer twice: change the prompt, or choose another model")]
    Empty,
    /// Answer after answer was cut off in the middle of a tool call.
    #[error(
        "{count} answers in a row reached their limit of tokens inside a tool call: raise max_tokens"
    )]
    CutOff {
        /// How many.
        count: u32,
    },
    /// There is no conversation to resume.
    #[error("there is no conversation to resume: send a message")]
    NothingToResume,
    /// What happened could not be recorded.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl SessionError {
    /// How the failure is treated.
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Canceled | Self::Journal(JournalError::Ending) => FailureClass::Canceled,
            Self::Model(error) => error.class(),
            Self::Budget => FailureClass::BudgetExhausted,
            Self::Loop { .. } => FailureClass::CompilationLoop,
            Self::Journal(JournalError::Failed { .. }) => FailureClass::TransientInfra,
            Self::TurnLimit { .. } | Self::Empty | Self::CutOff { .. } | Self::NothingToResume => {
                FailureClass::Deterministic
            }
        }
    }
}

impl From<ModelError> for SessionError {
    fn from(error: ModelError) -> Self {
        Self::Model(Box::new(error))
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Model(error) => (*error).into(),
            other => Self::new(other.class(), other.to_string()),
        }
    }
}
