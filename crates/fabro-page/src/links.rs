//! Where fragments link to.

use std::fmt::Write as _;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// What has a meaning of its own in a path or a fragment of an address. `/` and `@` stay: they are in the
/// names of stages.
const SPECIAL: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'%').add(b'<').add(b'>').add(b'?').add(b'`');

/// Where fragments link to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Links {
    /// Pages of a server, below the path of the run's page: `/runs/01K3…`.
    Server(String),
    /// Places in the same file, whose names begin with this.
    File(String),
}

impl Links {
    /// The address of a stage, by its full name.
    pub fn stage(&self, name: &str) -> String {
        let name = utf8_percent_encode(name, SPECIAL);
        match self {
            Self::Server(run) => format!("{run}/stages/{name}"),
            Self::File(within) => format!("#{}{name}", utf8_percent_encode(within, SPECIAL)),
        }
    }

    /// What a stage is called in its page.
    pub(crate) fn id(&self, name: &str) -> String {
        match self {
            Self::Server(_) => name.to_owned(),
            Self::File(within) => format!("{within}{name}"),
        }
    }

    /// The address of an artifact's bytes; `None` where there are none.
    pub(crate) fn artifact(&self, sha256: &str) -> Option<String> {
        let Self::Server(run) = self else { return None };
        let mut address = format!("/api/v1{run}/artifacts/");
        let _ = write!(address, "{}", utf8_percent_encode(sha256, SPECIAL));
        Some(address)
    }
}
