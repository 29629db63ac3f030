use std::cell::RefCell;
use std::collections::BTreeMap;

/// What the checks of a workflow and of its sub-workflows share.
#[derive(Default)]
pub(crate) struct Family {
    /// How many workflows this one is inside.
    pub(crate) depth: usize,
    /// The verdict on every sub-workflow that was looked at; each is checked once, however often
    /// it is named.
    pub(crate) verdicts: RefCell<BTreeMap<ChildKey, Verdict>>,
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

/// What a check of a sub-workflow came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is being checked: whoever asks is inside of it.
    Open,
    Valid,
    Invalid(ChildError),
}

/// The first error of a sub-workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChildError {
    pub(crate) message: String,
    /// From 1, in characters; in the text of the sub-workflow.
    pub(crate) line: usize,
    pub(crate) column: usize,
    /// In bytes of that text.
    pub(crate) span: fabro_types::Span,
    pub(crate) fix: Option<String>,
}
