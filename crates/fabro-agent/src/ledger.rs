//! What a session and the agents it began have used and touched, counted together.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fabro_types::Usage;

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    totals: Mutex<Totals>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) usage: Usage,
    /// Requests made, those under way included: the place in a model's script.
    pub(crate) taken: u32,
    /// Files written, changed or removed by calls that succeeded.
    pub(crate) touched: BTreeSet<String>,
    pub(crate) last_touched: Option<String>,
}

impl Ledger {
    pub(crate) fn get(&self) -> Totals {
        self.lock().clone()
    }

    pub(crate) fn usage(&self) -> Usage {
        self.lock().usage.clone()
    }

    /// Takes the next place for a request; gives the number of those before it.
    pub(crate) fn take_place(&self) -> u32 {
        let mut totals = self.lock();
        let before = totals.taken;
        totals.taken = before.saturating_add(1);
        before
    }

    /// Counts what a request used; its first try has its place already.
    pub(crate) fn answered(&self, usage: &Usage) {
        let mut totals = self.lock();
        totals.usage.add(usage);
        totals.taken = totals.taken.saturating_add(usage.turns.saturating_sub(1));
    }

    pub(crate) fn touch(&self, files: &[String]) {
        let mut totals = self.lock();
        totals.touched.extend(files.iter().cloned());
        if let Some(last) = files.last() {
            totals.last_touched = Some(last.clone());
        }
    }

    /// Adds what was used and touched before this process began.
    pub(crate) fn restore(&self, before: Totals) {
        let mut totals = self.lock();
        totals.usage.add(&before.usage);
        totals.taken = totals.taken.saturating_add(before.usage.turns);
        totals.touched.extend(before.touched);
        totals.last_touched = before.last_touched.or(totals.last_touched.take());
    }

    fn lock(&self) -> MutexGuard<'_, Totals> {
        // Every change is whole before the lock is given back.
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
