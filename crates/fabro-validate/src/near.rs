use std::cell::Cell;

use fabro_types::nearest;

/// How many names are compared with others in one workflow, in search of what was meant: with as many
/// wrong names as right ones the search would take the square of their number.
const MAX_COMPARISONS: usize = 200_000;

/// Looks for what was meant, up to a limit for the whole workflow.
#[derive(Debug)]
pub(crate) struct Nearby {
    left: Cell<usize>,
}

impl Nearby {
    pub(crate) fn new() -> Self {
        Self { left: Cell::new(MAX_COMPARISONS) }
    }

    /// [`nearest`]; `None` after too many comparisons.
    pub(crate) fn nearest<'n>(
        &self,
        word: &str,
        names: impl IntoIterator<Item = &'n str>,
    ) -> Option<&'n str> {
        let mut left = self.left.get();
        let names = names.into_iter().take_while(|_| {
            left = left.saturating_sub(1);
            left > 0
        });
        let found = nearest(word, names);
        self.left.set(left);
        found
    }
}
