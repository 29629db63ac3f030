use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::checked_settings::CheckedSettings;

/// `[run.git]`: what a run does with git.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GitSettings {
    /// `worktree`: the run works in a git worktree of its own.
    pub worktree: Option<bool>,
    /// `diff`: without a worktree, what stages change in a git work tree is recorded; unset is true.
    pub diff: Option<bool>,
    /// `metadata`: what the run recorded is kept on a branch, whenever its driver ends.
    pub metadata: Option<bool>,
    /// `author`: whose commits they are.
    pub author: GitAuthor,
    /// `exclude`: glob patterns of files that are not committed.
    pub exclude: Option<Vec<String>>,
}

/// `[run.git.author]`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GitAuthor {
    /// `name`.
    pub name: Option<String>,
    /// `email`.
    pub email: Option<String>,
}

impl GitSettings {
    /// These settings, completed from weaker ones.
    #[must_use]
    pub fn or(self, weaker: Self) -> Self {
        Self {
            worktree: self.worktree.or(weaker.worktree),
            diff: self.diff.or(weaker.diff),
            metadata: self.metadata.or(weaker.metadata),
            author: GitAuthor {
                name: self.author.name.or(weaker.author.name),
                email: self.author.email.or(weaker.author.email),
            },
            exclude: self.exclude.or(weaker.exclude),
        }
    }

    pub(crate) fn take(checked: &mut CheckedSettings) -> Self {
        let name = checked.take("/run/git/author/name");
        let email = checked.take("/run/git/author/email");
        Self {
            worktree: checked.take("/run/git/worktree"),
            diff: checked.take("/run/git/diff"),
            metadata: checked.take("/run/git/metadata"),
            author: GitAuthor { name, email },
            exclude: checked.take("/run/git/exclude"),
        }
    }

    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
