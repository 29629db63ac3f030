//! What is run again and again.

use crate::model::Model;

/// A workflow with its files.
pub(crate) struct Work {
    /// The workflow, one of the files.
    pub(crate) workflow: &'static str,
    /// More arguments for `fabro run`.
    pub(crate) args: &'static [&'static str],
    /// Names and texts; one of them is `effects.log`, and empty.
    pub(crate) files: Vec<(&'static str, String)>,
    /// The model server, with the protocol of Chat Completions; `None` for a model script.
    pub(crate) model: Option<Model>,
    /// The folder is a git repository of a user.
    pub(crate) is_repository: bool,
}
