//! What a working directory and its copy were when they were equal.

use std::collections::BTreeSet;

use super::sync::rules::Rules;
use super::sync::tree::{Difference, NOT_COPIED, Name, Stamp, Tree};

/// A working directory and its copy, as they were when they were equal.
#[derive(Debug, Default)]
pub(super) struct SyncState {
    /// Names this copy: another one at the same path has another mark.
    pub(super) mark: String,
    local: Tree,
    remote: Tree,
    /// What an unfinished push may have changed in the copy, also in part.
    unsure: BTreeSet<Name>,
}

impl SyncState {
    /// The two after the copy was made equal to the working directory.
    pub(super) fn new(mark: String, local: Tree, remote: Tree) -> Self {
        Self { mark, local, remote, unsure: BTreeSet::new() }
    }

    /// What differs at the beginning: what the copy has already need not be copied.
    pub(super) fn to_begin(remote: &Tree, now: &Tree) -> Difference {
        keep_own(Difference::between(remote, now, Stamp::equals))
    }

    /// What has changed here since.
    pub(super) fn to_push(&self, now: &Tree) -> Difference {
        let mut change = Difference::between(&self.local, now, |old, new| old == new);
        // A script has made something of another kind there, which an archive does not replace.
        let is_other = |name: &&Name| {
            let kind = |tree: &Tree| tree.get(*name).map(|stamp| stamp.kind);
            kind(&self.remote).is_some_and(|remote| kind(now).is_some_and(|now| now != remote))
        };
        let others: Vec<Name> = change.put.iter().rev().filter(is_other).cloned().collect();
        change.removed.retain(|name| !others.contains(name));
        change.removed.extend(others);
        keep_own(change)
    }

    /// What has changed there since.
    pub(super) fn to_pull(&self, now: &Tree, rules: &Rules, hidden: &[Name]) -> Difference {
        let mut change = Difference::between(&self.remote, now, |old, new| old == new);
        change.put.retain(|name| rules.comes_back(name, hidden));
        change.removed.retain(|name| rules.comes_back(name, hidden));
        change
    }

    pub(super) fn set_local(&mut self, local: Tree) {
        self.local = local;
    }

    /// After a pull: what is here now, and there.
    pub(super) fn note_pulled(&mut self, result: Vec<(Name, Option<Stamp>)>, remote: Tree) {
        for (name, stamp) in result {
            match stamp {
                Some(stamp) => self.local.insert(name, stamp),
                None => self.local.remove(&name),
            };
        }
        self.remote = remote;
    }

    /// Before a push that may fail, or be dropped, at any point: until it is known to be complete, the names of the
    /// change are pushed again.
    pub(super) fn begin_push(&mut self, change: &Difference, now: &Tree) {
        for name in change.names() {
            if let Some(stamp) = now.get(name).or_else(|| self.local.get(name)) {
                let stamp = Stamp { detail: NOT_COPIED.to_owned(), ..stamp.clone() };
                self.local.insert(name.clone(), stamp);
            }
            self.unsure.insert(name.clone());
        }
    }

    /// What the copy has after it was changed so. What else differs there is of a script that runs, and is brought back
    /// when that has ended.
    pub(super) fn note_pushed(&mut self, change: &Difference, mut remote: Tree, now: Tree) {
        for name in change.names() {
            self.unsure.remove(name);
            self.note_remote(name, remote.remove(name));
        }
        self.local = now;
    }

    /// What the copy has after a push that failed. What a script changes from now on comes back.
    pub(super) fn note_failed_push(&mut self, mut remote: Tree) {
        for name in std::mem::take(&mut self.unsure) {
            self.note_remote(&name, remote.remove(&name));
        }
    }

    /// Before a pull: what an unfinished push has changed is not of a script. Returns what may be either, which nothing
    /// is known of.
    pub(super) fn settle(&mut self, remote: &Tree) -> Vec<Name> {
        let mut conflicts = Vec::new();
        for name in std::mem::take(&mut self.unsure) {
            let found = remote.get(&name);
            let is_pushed = match (self.local.get(&name), found) {
                (Some(pushed), Some(found)) => pushed.equals(found),
                (_, found) => found.is_none(),
            };
            if found != self.remote.get(&name) && !is_pushed {
                conflicts.push(name.clone());
            }
            self.note_remote(&name, found.cloned());
        }
        conflicts
    }

    fn note_remote(&mut self, name: &Name, found: Option<Stamp>) {
        match found {
            Some(stamp) => self.remote.insert(name.clone(), stamp),
            None => self.remote.remove(name),
        };
    }
}

/// Values and artifacts are in `.fabro` of the copy, also where there is none here.
fn keep_own(mut change: Difference) -> Difference {
    change.removed.retain(|name| name != b".fabro");
    change
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::sync::list::parse_list;
    use crate::remote::sync::tree::mark_missing;

    #[test]
    fn what_did_not_come_is_asked_for_again_or_removed() {
        let stamp = || parse_list(b"f 644 1 1.0 1.0 7 a\0end\0").unwrap();
        let rules = Rules { exclude: Vec::new(), hidden: Vec::new(), write_git: false };
        let mut state = SyncState::default();
        let mut remote = stamp();
        let missing = remote.keys().cloned().collect();
        mark_missing(&mut remote, &missing);
        state.note_pulled(Vec::new(), remote);
        assert_eq!(state.to_pull(&stamp(), &rules, &[]).put.len(), 1);
        assert_eq!(state.to_pull(&Tree::new(), &rules, &[]).removed.len(), 1);
    }

    /// Both changes of a push that was cut off are pushed again; what a script does afterwards comes back.
    #[test]
    fn an_unfinished_push_is_repeated_and_takes_nothing_from_scripts() {
        let tree = |files: &[(&str, u32)]| {
            let line = |(name, time): &(&str, u32)| format!("f 644 1 {time}.0 1.0 7 {name}\0");
            parse_list(format!("{}end\0", files.iter().map(line).collect::<String>()).as_bytes())
                .unwrap()
        };
        let rules = Rules { exclude: Vec::new(), hidden: Vec::new(), write_git: false };
        let begun = || {
            let mut state = SyncState::new(
                String::new(),
                tree(&[("a", 1), ("b", 1), ("c", 1)]),
                tree(&[("a", 1), ("b", 1), ("c", 1)]),
            );
            let now = tree(&[("a", 2), ("c", 1)]);
            let change = state.to_push(&now);
            state.begin_push(&change, &now);
            state
        };
        let names = |change: Difference| {
            let text = |names: Vec<Name>| String::from_utf8(names.join(&b' ')).unwrap();
            format!("put {} removed {}", text(change.put), text(change.removed))
        };
        let check = |state: &SyncState, now: &[(&str, u32)], expected: &str| {
            assert_eq!(names(state.to_push(&tree(now))), expected);
        };
        check(&begun(), &[("a", 2), ("c", 1)], "put a removed b");
        check(&begun(), &[("a", 1), ("b", 1), ("c", 1)], "put a b removed ");
        check(&begun(), &[("c", 1)], "put  removed b a");
        // It failed, and what it has left in the copy is known.
        let mut state = begun();
        state.note_failed_push(tree(&[("a", 9), ("b", 1), ("c", 1), ("script", 5)]));
        let remote = tree(&[("a", 9), ("b", 6), ("c", 1), ("script", 5)]);
        assert!(state.settle(&remote).is_empty());
        assert_eq!(names(state.to_pull(&remote, &rules, &[])), "put b script removed ");
        // It was dropped: a file that is neither the old nor the new one may be cut off, and does not come back.
        let mut state = begun();
        let remote = tree(&[("a", 9), ("b", 1), ("c", 2)]);
        assert_eq!(state.settle(&remote), [b"a"]);
        assert_eq!(names(state.to_pull(&remote, &rules, &[])), "put c removed ");
        let mut state = begun();
        assert!(state.settle(&tree(&[("a", 2), ("c", 1)])).is_empty());
    }
}
