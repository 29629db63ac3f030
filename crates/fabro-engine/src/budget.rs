//! The spending limits of a run and its sub-workflows while they are driven (`max_cost`, `max_tokens_total`).
//!
//! All stages that run at the same time look at the same sums after each turn: none works with a copy of what was
//! left when it began. A program that only takes a limit of its own gets a reservation: its share of what is left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fabro_events::Spent;
use fabro_types::NodeKind;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::key::Key;
use crate::machine::Machine;

/// What a run may spend, by its own limits.
#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    cost_usd: Option<f64>,
    tokens: Option<u64>,
}

/// One run of the family: a run or one of its sub-workflows.
#[derive(Debug, Default)]
struct Account {
    /// The account of the run that this is a sub-workflow of.
    parent: Option<usize>,
    /// The accounts of its sub-workflows, by their stages.
    children: BTreeMap<Key, usize>,
    limits: Limits,
    /// What its own log says.
    own: Spent,
    /// The same with its sub-workflows that have not ended.
    total: Spent,
    /// The reservations of its own stages.
    reservations: BTreeMap<Key, f64>,
    /// How many reservations there are, those of sub-workflows included.
    reserving: usize,
    /// Their sum.
    reserved: f64,
    /// Its running stages that may spend something.
    running: BTreeSet<Key>,
    /// How many stages share what is left: those that may spend and have no reservation.
    own_spenders: usize,
    /// The same with sub-workflows.
    spenders: usize,
    /// Stages whose sub-workflows began before this driver and are not opened yet: what they have spent is not known.
    unread: BTreeSet<Key>,
    /// Stages that ended because too little was left for them, with the amount that was too little.
    waiting: BTreeMap<Key, f64>,
}

#[derive(Debug, Default)]
struct Accounts(Vec<Account>);

#[derive(Debug, Default)]
struct Family {
    accounts: Mutex<Accounts>,
    /// A sub-workflow was opened, or its stage has ended.
    read: Notify,
}

/// The budget of one run that is being driven.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    family: Arc<Family>,
    run: usize,
}

/// The budget of one running stage.
#[derive(Clone, Debug)]
pub struct StageBudget {
    budget: Budget,
    key: Key,
}

/// Part of the budget that one program may use; dropping it gives back what is left of it.
#[derive(Debug)]
pub struct Reservation {
    stage: StageBudget,
    dollars: f64,
}

/// The spending limit is reached, or what is left is reserved by stages that are running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the spending limit is reached")]
pub struct LimitReached;

impl Accounts {
    /// The account and those of the runs that it is a part of.
    fn upwards(&self, run: usize) -> impl Iterator<Item = &Account> {
        let above = |run: &usize| self.0[*run].parent;
        std::iter::successors(Some(run), above).map(|run| &self.0[run])
    }

    /// Changes an account and those of the runs that it is a part of.
    fn change_upwards(&mut self, run: usize, change: impl Fn(&mut Account)) {
        let mut next = Some(run);
        while let Some(run) = next {
            let account = &mut self.0[run];
            change(account);
            next = account.parent;
        }
    }

    /// What may be spent more, in US dollars, if this many stages share it besides those that run; `None` without
    /// a limit.
    fn share(&self, run: usize, others: usize) -> Option<f64> {
        let shares = self.upwards(run).filter_map(|account| {
            let left = account.limits.cost_usd? - account.total.cost_usd - account.reserved;
            let spenders = u32::try_from(account.spenders + others).unwrap_or(u32::MAX);
            Some(left / f64::from(spenders.max(1)))
        });
        shares.reduce(f64::min)
    }

    fn is_over(&self, run: usize) -> bool {
        self.upwards(run).any(Account::is_over)
    }

    fn has_room(&self, run: usize) -> bool {
        !self.is_over(run) && self.share(run, 0).is_none_or(|share| share > 0.0)
    }

    fn may_spend(&mut self, run: usize, key: &Key) -> bool {
        let may_spend = self.has_room(run);
        if !may_spend {
            self.0[run].waiting.insert(key.clone(), 0.0);
        }
        may_spend
    }

    fn add(&mut self, run: usize, before: Spent, now: Spent) {
        self.change_upwards(run, |account| {
            account.total.cost_usd += now.cost_usd - before.cost_usd;
            let without = account.total.tokens.saturating_sub(before.tokens);
            account.total.tokens = without.saturating_add(now.tokens);
        });
    }

    fn reserve(&mut self, run: usize, key: &Key, dollars: f64) {
        self.0[run].reservations.insert(key.clone(), dollars);
        self.change_upwards(run, |account| {
            account.reserving += 1;
            account.reserved += dollars;
        });
        self.count_spenders(run);
    }

    fn release(&mut self, run: usize, key: &Key) {
        if let Some(dollars) = self.0[run].reservations.remove(key) {
            self.change_upwards(run, |account| {
                account.reserving -= 1;
                account.reserved -= dollars;
                if account.reserving == 0 {
                    // Without what was rounded.
                    account.reserved = 0.0;
                }
            });
            self.count_spenders(run);
        }
    }

    /// A stage with a sub-workflow that has stages to share with counts as these.
    fn count_spenders(&mut self, run: usize) {
        let account = &self.0[run];
        let shares = |key: &&Key| {
            let child = account.children.get(*key);
            !account.reservations.contains_key(*key)
                && child.is_none_or(|child| self.0[*child].running.is_empty())
        };
        let count = account.running.iter().filter(shares).count();
        let before = std::mem::replace(&mut self.0[run].own_spenders, count);
        self.change_upwards(run, |account| account.spenders = account.spenders + count - before);
    }

    /// The sub-workflow of a stage that has ended: what it spent is part of the stage's own usage, if `is_included`.
    fn close(&mut self, run: usize, key: &Key, is_included: bool) {
        if let Some(child) = self.0[run].children.remove(key) {
            let running = std::mem::take(&mut self.0[child].running);
            if !running.is_empty() {
                self.count_spenders(child);
            }
            if is_included {
                let total = self.0[child].total;
                self.add(run, total, Spent::default());
                self.0[child].parent = None;
            }
        }
    }
}

impl Account {
    fn is_over(&self) -> bool {
        let Limits { cost_usd, tokens } = self.limits;
        cost_usd.is_some_and(|max| self.total.cost_usd >= max)
            || tokens.is_some_and(|max| self.total.tokens >= max)
    }
}

impl Budget {
    /// That of a run which is no sub-workflow.
    pub(crate) fn new(machine: &Machine) -> Self {
        let family = Arc::new(Family::default());
        family.accounts.lock().0.push(Account { unread: unread(machine), ..Account::default() });
        let budget = Self { family, run: 0 };
        budget.record(machine);
        budget
    }

    /// That of a stage.
    pub(crate) fn of_stage(&self, key: Key) -> StageBudget {
        StageBudget { budget: self.clone(), key }
    }

    /// Takes over what the run has spent and its limits.
    pub(crate) fn record(&self, machine: &Machine) {
        let state = machine.state();
        let mut accounts = self.family.accounts.lock();
        let account = &mut accounts.0[self.run];
        let (cost_usd, tokens) = machine.spending_limits();
        account.limits = Limits { cost_usd, tokens };
        let now = state.spent();
        let before = std::mem::replace(&mut account.own, now);
        account.waiting.retain(|key, _| state.is_current(key));
        let unread = account.unread.len();
        account.unread.retain(|key| state.is_current(key));
        let is_read = account.unread.len() < unread;
        let left: Vec<Key> =
            account.children.keys().filter(|key| !state.is_current(key)).cloned().collect();
        accounts.add(self.run, before, now);
        for key in left {
            // It was canceled with its branch: what it spent is nowhere else.
            accounts.close(self.run, &key, false);
        }
        if is_read {
            self.family.read.notify_waiters();
        }
    }

    /// The running stages, which share what is left, as far as they may spend something.
    pub(crate) fn set_running(&self, running: BTreeSet<Key>) {
        let mut accounts = self.family.accounts.lock();
        if accounts.0[self.run].running != running {
            accounts.0[self.run].running = running;
            accounts.count_spenders(self.run);
            if let Some(parent) = accounts.0[self.run].parent {
                accounts.count_spenders(parent);
            }
        }
    }

    /// A stage has ended, with what its sub-workflow spent in its own usage.
    pub(crate) fn ended(&self, key: &Key, is_included: bool) {
        let mut accounts = self.family.accounts.lock();
        if accounts.0[self.run].unread.remove(key) {
            self.family.read.notify_waiters();
        }
        if is_included {
            accounts.close(self.run, key, true);
        }
    }

    /// The limit of this run, or of one that it is a part of, is reached.
    pub(crate) fn is_over(&self) -> bool {
        self.family.accounts.lock().is_over(self.run)
    }

    /// Something is left that no running stage has reserved.
    pub(crate) fn has_room(&self) -> bool {
        self.family.accounts.lock().has_room(self.run)
    }

    /// More is left for a stage than when too little was left for it.
    pub(crate) fn has_more_for(&self, key: &Key) -> bool {
        let accounts = self.family.accounts.lock();
        let too_little = accounts.0[self.run].waiting.get(key);
        !accounts.is_over(self.run)
            && too_little.is_some_and(|least| {
                accounts.share(self.run, 1).is_some_and(|share| share > *least)
            })
    }

    /// Running stages may give back what they have reserved.
    pub(crate) fn may_get_more(&self) -> bool {
        let accounts = self.family.accounts.lock();
        !accounts.is_over(self.run) && accounts.upwards(self.run).any(|it| it.reserving > 0)
    }

    /// The same for a stage that ended because too little was left for it.
    pub(crate) fn may_get_more_for(&self, key: &Key) -> bool {
        let too_little = self.family.accounts.lock().0[self.run].waiting.get(key).copied();
        too_little.is_some_and(f64::is_finite) && self.may_get_more()
    }

    /// What sub-workflows that have not ended have spent.
    pub(crate) fn spent_below(&self) -> Spent {
        let accounts = self.family.accounts.lock();
        let Account { own, total, .. } = &accounts.0[self.run];
        Spent {
            cost_usd: total.cost_usd - own.cost_usd,
            tokens: total.tokens.saturating_sub(own.tokens),
        }
    }
}

impl StageBudget {
    /// Whether another turn may be asked for: neither the limit of the run is reached nor that of a run that it is a
    /// part of, and running programs have not reserved what is left.
    pub fn may_spend(&self) -> bool {
        self.budget.family.accounts.lock().may_spend(self.budget.run, &self.key)
    }

    /// Whether what the stage spends counts towards a limit in US dollars.
    pub fn has_cost_limit(&self) -> bool {
        let accounts = self.budget.family.accounts.lock();
        accounts.upwards(self.budget.run).any(|account| account.limits.cost_usd.is_some())
    }

    /// Reserves the stage's share of what is left, for a program that takes a limit; `None` without a limit in US
    /// dollars.
    ///
    /// # Errors
    ///
    /// [`LimitReached`] when nothing is left, or other stages have reserved it.
    pub fn reserve(&self) -> Result<Option<Reservation>, LimitReached> {
        let run = self.budget.run;
        let mut accounts = self.budget.family.accounts.lock();
        if !accounts.may_spend(run, &self.key) {
            return Err(LimitReached);
        }
        let Some(dollars) = accounts.share(run, 0) else { return Ok(None) };
        accounts.reserve(run, &self.key, dollars);
        Ok(Some(Reservation { stage: self.clone(), dollars }))
    }

    /// Waits until it is known what sub-workflows have spent that began before this driver.
    pub(crate) async fn known(&self) {
        let family = &self.budget.family;
        loop {
            let read = family.read.notified();
            let is_known = family.accounts.lock().0.iter().all(|account| account.unread.is_empty());
            if is_known {
                return;
            }
            read.await;
        }
    }

    /// The budget of the stage's sub-workflow.
    pub(crate) fn sub_workflow(&self, machine: &Machine) -> Budget {
        let Budget { family, run: parent } = &self.budget;
        let run = {
            let mut accounts = family.accounts.lock();
            let run = match accounts.0[*parent].children.get(&self.key) {
                Some(run) => *run,
                None => accounts.0.len(),
            };
            if run == accounts.0.len() {
                let parent = Some(*parent);
                let unread = unread(machine);
                accounts.0.push(Account { parent, unread, ..Account::default() });
            }
            let above = &mut accounts.0[*parent];
            above.children.insert(self.key.clone(), run);
            above.unread.remove(&self.key);
            run
        };
        let budget = Budget { family: Arc::clone(family), run };
        budget.record(machine);
        family.read.notify_waiters();
        budget
    }
}

impl Reservation {
    /// What the program may spend, in US dollars.
    pub fn dollars(&self) -> f64 {
        self.dollars
    }

    /// The program stopped because it has used up its part, of which it reports `spent`. The stage runs again when
    /// others leave it more.
    pub fn used_up(self, spent: f64) {
        // One that stops at once, or gets next to nothing, would be started again and again.
        let has_used_it = spent * 2.0 >= self.dollars;
        let least = if has_used_it { (self.dollars / 4.0).max(0.001) } else { f64::INFINITY };
        let StageBudget { budget, key } = &self.stage;
        budget.family.accounts.lock().0[budget.run].waiting.insert(key.clone(), least);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let StageBudget { budget, key } = &self.stage;
        budget.family.accounts.lock().release(budget.run, key);
    }
}

/// The stages whose sub-workflows an earlier driver may have begun. One that waits for another attempt has none yet.
fn unread(machine: &Machine) -> BTreeSet<Key> {
    let active = machine.state().active();
    let managers = active.filter(|(_, at)| at.handler == NodeKind::ManagerLoop && at.delay_ms == 0);
    managers.map(|(branch, at)| Key::of(branch, at)).collect()
}
