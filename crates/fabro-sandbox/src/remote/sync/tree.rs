//! What is in a directory, and what differs between two of them.

use std::collections::{BTreeMap, BTreeSet};

use crate::remote::tar::Kind;

/// The most files and directories of a working directory that is copied.
pub(super) const MOST: usize = 1_000_000;

/// A path relative to the working directory.
pub(in crate::remote) type Name = Vec<u8>;

/// What is at a path; unequal after it has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::remote) struct Stamp {
    pub(in crate::remote) kind: Kind,
    pub(in crate::remote) mode: u32,
    pub(in crate::remote) size: u64,
    /// In seconds.
    pub(in crate::remote) mtime: u64,
    /// The times in full, and the inode.
    pub(in crate::remote) detail: String,
}

impl Stamp {
    /// Whether a file of the other side is taken to be the same: size, mode, and time to the second.
    pub(in crate::remote) fn equals(&self, other: &Self) -> bool {
        let is_same =
            self.kind == other.kind && (self.mode == other.mode || self.kind == Kind::Link);
        match self.kind {
            Kind::File => is_same && self.size == other.size && self.mtime == other.mtime,
            Kind::Directory => is_same,
            // Where it leads is compared by copying it.
            _ => false,
        }
    }
}

/// Everything in a directory.
pub(in crate::remote) type Tree = BTreeMap<Name, Stamp>;

/// The detail of a stamp of what has not been brought back: it is equal to no other.
pub(in crate::remote) const NOT_COPIED: &str = "not copied";

/// Marks what was asked for and did not come: it is asked for again, or removed here once it is gone there.
pub(in crate::remote) fn mark_missing(remote: &mut Tree, missing: &BTreeSet<Name>) {
    for name in missing {
        if let Some(stamp) = remote.get_mut(name) {
            NOT_COPIED.clone_into(&mut stamp.detail);
        }
    }
}

/// What has to be done to make one tree equal to another.
#[derive(Debug, Default)]
pub(in crate::remote) struct Difference {
    /// What is new or different, directories before what is in them.
    pub(in crate::remote) put: Vec<Name>,
    /// What is gone or of another kind, directories after what is in them.
    pub(in crate::remote) removed: Vec<Name>,
}

impl Difference {
    pub(in crate::remote) fn is_empty(&self) -> bool {
        self.put.is_empty() && self.removed.is_empty()
    }

    pub(in crate::remote) fn names(&self) -> impl Iterator<Item = &Name> {
        self.removed.iter().chain(&self.put)
    }

    pub(in crate::remote) fn between(
        old: &Tree,
        new: &Tree,
        is_same: impl Fn(&Stamp, &Stamp) -> bool,
    ) -> Self {
        let put = new
            .iter()
            .filter(|(name, stamp)| !old.get(*name).is_some_and(|old| is_same(old, stamp)));
        let removed = old
            .iter()
            .filter(|(name, stamp)| new.get(*name).is_none_or(|new| new.kind != stamp.kind));
        Self {
            put: put.map(|(name, _)| name.clone()).collect(),
            removed: removed.rev().map(|(name, _)| name.clone()).collect(),
        }
    }
}
