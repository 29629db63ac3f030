use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr};

/// What an agent's tools may do.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    EnumString,
    IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
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
        self.into()
    }
}
