use std::cell::RefCell;
use std::collections::BTreeMap;

use fabro_types::{Position, SyntaxError};

/// What the checks of a workflow and of its sub-workflows share.
#[derive(Default)]
pub(crate) struct Family {
    /// How many workflows this one is inside of.
    pub(crate) depth: usize,
    /// Every sub-workflow that was checked; each is checked once, however often it is named.
    pub(crate) checked: RefCell<BTreeMap<ChildKey, ChildState>>,
}

/// Which sub-workflow: the path of its file, or its text and the file that has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ChildKey {
    File(String),
    Inline { base: String, text: String },
}

impl ChildKey {
    /// The file that its own paths are relative to.
    pub(crate) fn base(&self) -> &str {
        match self {
            Self::File(path) | Self::Inline { base: path, .. } => path,
        }
    }
}

/// How far the check of a sub-workflow is.
pub(crate) enum ChildState {
    /// It is being checked: a sub-workflow inside of it names it again.
    InProgress,
    /// With its first error, if it has one.
    Checked(Option<ChildError>),
}

/// The first error of a sub-workflow.
#[derive(Clone)]
pub(crate) struct ChildError {
    /// In the text of the sub-workflow.
    pub(crate) position: Position,
    pub(crate) error: SyntaxError,
}
