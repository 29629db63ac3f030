use fabro_engine::ReadError;
use fabro_store::StoreError;

/// Why a report cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The log cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A value that the log names cannot be read back.
    #[error("{what} of `{stage}` cannot be read back: {source}")]
    Value {
        /// What it is: `the prompt`, `the response`, `a message`, ….
        what: &'static str,
        /// The stage, as `NODE@VISIT`.
        stage: String,
        /// Why.
        source: ReadError,
    },
    /// A value of the context, or one inside of it, cannot be read back.
    #[error("the value of `{key}` cannot be read back: {source}")]
    Key {
        /// The key.
        key: String,
        /// Why.
        source: ReadError,
    },
    /// The values inside of one are too large together.
    #[error(
        "the value of `{key}` cannot be read back: those inside of it are more than 256 MB together"
    )]
    TooMuch {
        /// The key.
        key: String,
    },
    /// The log has no events.
    #[error("the run has no events; `fabro ps` lists the runs there are")]
    Empty,
    /// No stage of the run has talked with a model.
    #[error("no stage of the run has a conversation with a model")]
    NoConversation,
    /// The run has no such stage.
    #[error("the run has no stage `{stage}`{}", known(stages))]
    NoStage {
        /// What was asked for.
        stage: String,
        /// Stages it has, in the order they started.
        stages: Vec<String>,
    },
    /// Several branches made this visit of the node.
    #[error("`{stage}` means {} stages: name one of {}", stages.len(), listed(stages))]
    SeveralStages {
        /// What was asked for.
        stage: String,
        /// Each of them as `BRANCH/NODE@VISIT`, in the order they started.
        stages: Vec<String>,
    },
    /// The stage has not ended.
    #[error("`{stage}` has not ended; look again when it has")]
    NotEnded {
        /// The stage, as `NODE@VISIT`.
        stage: String,
    },
    /// No edge was taken after the stage.
    #[error("no edge was taken after `{stage}`: {}", why.text())]
    NoEdge {
        /// The stage, as `NODE@VISIT`.
        stage: String,
        /// Why there is none.
        why: NoEdge,
    },
}

/// Why no edge was taken after a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoEdge {
    /// The run, or the branch, ended with it.
    End,
    /// The stage has not ended.
    Running,
    /// The stage has ended, and the run has not continued since: it was killed there, or taken back to it.
    NotYet,
}

impl NoEdge {
    fn text(self) -> &'static str {
        match self {
            Self::End => "the run ended there",
            Self::Running => "it has not ended",
            Self::NotYet => "the run has not continued since; `fabro resume` continues it",
        }
    }
}

impl ReportError {
    /// True when a value is there, but too large to be read back as one.
    pub(crate) fn is_too_large(&self) -> bool {
        matches!(
            self,
            Self::TooMuch { .. }
                | Self::Value { source: ReadError::TooLarge { .. }, .. }
                | Self::Key { source: ReadError::TooLarge { .. }, .. }
        )
    }

    /// True when the store is to blame, not the question.
    pub fn is_store(&self) -> bool {
        matches!(
            self,
            Self::Store(_) | Self::Value { .. } | Self::Key { .. } | Self::TooMuch { .. }
        )
    }
}

fn known(stages: &[String]) -> String {
    match stages {
        [] => "; none has started yet".to_owned(),
        some => format!("; it has entered {}", listed(some)),
    }
}

fn listed(stages: &[String]) -> String {
    const SHOWN: usize = 8;
    let more = if stages.len() > SHOWN { ", …" } else { "" };
    format!("{}{more}", stages[..stages.len().min(SHOWN)].join(", "))
}
