//! The usage and the files of a session and its subagents together.

use std::collections::BTreeSet;

use fabro_types::Usage;
use parking_lot::Mutex;

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    totals: Mutex<Totals>,
    /// What the user was warned of by the model's provider.
    warnings: Mutex<BTreeSet<String>>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) usage: Usage,
    /// Files written, changed or removed by calls that succeeded.
    pub(crate) touched: BTreeSet<String>,
    pub(crate) last_touched: Option<String>,
}

impl Ledger {
    pub(crate) fn get(&self) -> Totals {
        self.totals.lock().clone()
    }

    pub(crate) fn usage(&self) -> Usage {
        self.totals.lock().usage.clone()
    }

    pub(crate) fn add_usage(&self, usage: &Usage) {
        self.totals.lock().usage.add(usage);
    }

    /// Whether this is said for the first time.
    pub(crate) fn is_new_warning(&self, message: &str) -> bool {
        self.warnings.lock().insert(message.to_owned())
    }

    pub(crate) fn touch(&self, files: &[String]) {
        let mut totals = self.totals.lock();
        totals.touched.extend(files.iter().cloned());
        if let Some(last) = files.last() {
            totals.last_touched = Some(last.clone());
        }
    }

    /// Adds what was used and touched before this process began.
    pub(crate) fn restore(&self, before: Totals) {
        let mut totals = self.totals.lock();
        totals.usage.add(&before.usage);
        totals.touched.extend(before.touched);
        totals.last_touched = before.last_touched.or(totals.last_touched.take());
    }
}
