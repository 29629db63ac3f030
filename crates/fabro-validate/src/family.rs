use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use fabro_types::{Position, SyntaxError};

/// What the checks of a workflow and of its sub-workflows share.
#[derive(Default)]
pub(crate) struct Family {
    /// How many workflows this one is inside of.
    pub(crate) depth: usize,
    /// Every sub-workflow that was checked, with the names of the inputs that it has; each is checked
    /// once, however often it is named.
    pub(crate) checked: RefCell<BTreeMap<(ChildKey, Vec<String>), ChildState>>,
    /// The node that this workflow is the sub-workflow of gives it all its inputs.
    pub(crate) has_own_inputs: bool,
    /// The inputs that this workflow and those in it read, with the paths into them.
    pub(crate) reads: RefCell<BTreeSet<String>>,
    /// The names of those that have no default.
    pub(crate) needed: RefCell<BTreeSet<String>>,
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
    /// It is checked.
    Checked(Rc<CheckedChild>),
}

/// What the check of a sub-workflow has found.
#[derive(Default)]
pub(crate) struct CheckedChild {
    /// Its first error, if it has one.
    pub(crate) error: Option<ChildError>,
    /// The inputs that it reads, with the paths into them.
    pub(crate) reads: BTreeSet<String>,
    /// The names of those that have no default.
    pub(crate) needed: BTreeSet<String>,
}

/// The first error of a sub-workflow.
#[derive(Clone)]
pub(crate) struct ChildError {
    /// In the text of the sub-workflow.
    pub(crate) position: Position,
    pub(crate) error: SyntaxError,
}
