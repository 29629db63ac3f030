use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;

use crate::tree::{Fingerprint, Stopped};

/// The artifacts that are new or different.
#[derive(Debug, Default)]
pub struct Changes {
    pub(crate) files: BTreeMap<OsString, Fingerprint>,
    pub(crate) stopped: Option<Stopped>,
    pub(crate) unreadable: BTreeMap<OsString, io::ErrorKind>,
}

impl Changes {
    /// Nothing changed, and nothing is to be reported.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.stopped.is_none() && self.unreadable.is_empty()
    }
}
