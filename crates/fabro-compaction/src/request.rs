use crate::{Files, Policy, Reason};

/// Why and within which limits a conversation is compacted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// Why it is shortened.
    pub(crate) reason: Reason,
    /// How many of the last messages stay as they are, if there is room for them. Where they take
    /// too much, fewer of them stay, down to the last call with its results; where that is not
    /// enough, results are shortened.
    pub(crate) keep_recent: usize,
    /// The size from which on the policy compacts a conversation, in tokens.
    pub(crate) threshold: Option<u64>,
    /// What the model takes, in tokens; bounds what it is asked to summarise, and the summary.
    pub(crate) context_window_size: Option<u64>,
    /// The files that were used so far. Those that an earlier summary lists are added.
    pub(crate) files: &'a Files,
}

impl<'a> Request<'a> {
    /// A request with the settings of a policy.
    pub(crate) fn new(
        policy: &Policy,
        reason: Reason,
        context_window_size: Option<u64>,
        files: &'a Files,
    ) -> Self {
        Self {
            reason,
            keep_recent: policy.keep_recent,
            threshold: policy.threshold(context_window_size),
            context_window_size,
            files,
        }
    }
}
