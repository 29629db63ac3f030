//! Which calls wait for a result.

use std::collections::HashMap;

/// The calls that have no result yet, by id. A result belongs to the last of its id.
#[derive(Default)]
pub(crate) struct OpenCalls<'a> {
    /// The last one of each id. Calls leave with their result, so this stays small.
    last: HashMap<&'a str, usize>,
    /// For each call that came, the one with the same id that waited already.
    earlier: Vec<Option<usize>>,
}

impl<'a> OpenCalls<'a> {
    /// Takes the next call. Calls are numbered from 0.
    pub(crate) fn push(&mut self, id: &'a str) {
        let earlier = self.last.insert(id, self.earlier.len());
        self.earlier.push(earlier);
    }

    /// The number of the call that a result with this id belongs to, which waits no longer.
    pub(crate) fn answer(&mut self, id: &'a str) -> Option<usize> {
        let call = self.last.remove(id)?;
        if let Some(earlier) = self.earlier[call] {
            self.last.insert(id, earlier);
        }
        Some(call)
    }
}
