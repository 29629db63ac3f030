use serde::{Deserialize, Serialize};

/// What an agent's tools may do.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Permissions {
    /// `read-only`: look at files.
    ReadOnly,
    /// `read-write`: change files too.
    #[default]
    ReadWrite,
    /// `full`: run commands and reach the network too.
    Full,
}

impl Permissions {
    /// The word of the settings file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::ReadWrite => "read-write",
            Self::Full => "full",
        }
    }

    /// Reads that word; `None` for any other.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::ReadOnly, Self::ReadWrite, Self::Full].into_iter().find(|it| it.as_str() == word)
    }
}
