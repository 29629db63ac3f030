//! Enforces the spending limits of a run and its sub-workflows (`max_cost`, `max_tokens_total`).
//!
//! Concurrent stages share one set of totals and check it after each turn. An external program
//! cannot check it, so it gets a reservation: its share of the remaining budget.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fabro_events::Spent;
use fabro_types::NodeKind;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::key::Key;
use crate::machine::Machine;

/// The spending limits of one run.
#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    cost_usd: Option<f64>,
    tokens: Option<u64>,
}

/// The spending of a run or of one of its sub-workflows.
#[derive(Debug, Default)]
struct Account {
    /// The account of the parent run.
    parent: Option<usize>,
    /// The accounts of its sub-workflows, by stage.
    children: BTreeMap<Key, usize>,
    limits: Limits,
    /// The spending recorded in its own log.
    own: Spent,
    /// `own` plus its unfinished sub-workflows.
    total: Spent,
    /// The reservations of its own stages, in US dollars.
    reservations: BTreeMap<Key, f64>,
    /// The number of reservations, including sub-workflows.
    reserving: usize,
    /// The sum of these reservations.
    reserved: f64,
    /// Its running stages that may spend.
    running: BTreeSet<Key>,
    /// How many of its stages share the remaining budget: they may spend and hold no reservation.
    own_spenders: usize,
    /// `own_spenders` plus those of sub-workflows.
    spenders: usize,
    /// Stages whose sub-workflow an earlier driver started and this one has not opened yet: its
    /// spending is unknown.
    unopened: BTreeSet<Key>,
    /// Stages that were suspended because the budget left was too small, with that amount.
    waiting: BTreeMap<Key, f64>,
}

#[derive(Debug, Default)]
struct Accounts(Vec<Account>);

#[derive(Debug, Default)]
struct Family {
    accounts: Mutex<Accounts>,
    /// Notified when a sub-workflow was opened or its stage ended.
    opened: Notify,
}

/// The budget of one run.
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

/// Part of the budget that one program may use. Dropping it releases the rest.
#[derive(Debug)]
pub struct Reservation {
    stage: StageBudget,
    dollars: f64,
}

/// The spending limit is reached, or running stages have reserved the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the spending limit is reached")]
pub struct LimitReached;

impl Accounts {
    /// The account and its ancestors.
    fn with_ancestors(&self, run: usize) -> impl Iterator<Item = &Account> {
        let parent = |run: &usize| self.0[*run].parent;
        std::iter::successors(Some(run), parent).map(|run| &self.0[run])
    }

    /// Changes the account and its ancestors.
    fn change_with_ancestors(&mut self, run: usize, change: impl Fn(&mut Account)) {
        let mut next = Some(run);
        while let Some(run) = next {
            let account = &mut self.0[run];
            change(account);
            next = account.parent;
        }
    }

    /// The share of the remaining budget per stage, in US dollars, if `others` more stages than the
    /// running ones use it; `None` without a limit.
    fn share(&self, run: usize, others: usize) -> Option<f64> {
        let shares = self.with_ancestors(run).filter_map(|account| {
            let left = account.limits.cost_usd? - account.total.cost_usd - account.reserved;
            let spenders = u32::try_from(account.spenders + others).unwrap_or(u32::MAX);
            Some(left / f64::from(spenders.max(1)))
        });
        shares.reduce(f64::min)
    }

    fn is_over(&self, run: usize) -> bool {
        self.with_ancestors(run).any(Account::is_over)
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
        self.change_with_ancestors(run, |account| {
            account.total.cost_usd += now.cost_usd - before.cost_usd;
            let without = account.total.tokens.saturating_sub(before.tokens);
            account.total.tokens = without.saturating_add(now.tokens);
        });
    }

    fn reserve(&mut self, run: usize, key: &Key, dollars: f64) {
        self.0[run].reservations.insert(key.clone(), dollars);
        self.change_with_ancestors(run, |account| {
            account.reserving += 1;
            account.reserved += dollars;
        });
        self.count_spenders(run);
    }

    fn release(&mut self, run: usize, key: &Key) {
        if let Some(dollars) = self.0[run].reservations.remove(key) {
            self.change_with_ancestors(run, |account| {
                account.reserving -= 1;
                account.reserved -= dollars;
                if account.reserving == 0 {
                    // Discards rounding errors.
                    account.reserved = 0.0;
                }
            });
            self.count_spenders(run);
        }
    }

    /// Recounts the spenders. The running stages of a sub-workflow count instead of the stage that
    /// contains it.
    fn count_spenders(&mut self, run: usize) {
        let account = &self.0[run];
        let shares = |key: &&Key| {
            let child = account.children.get(*key);
            !account.reservations.contains_key(*key)
                && child.is_none_or(|child| self.0[*child].running.is_empty())
        };
        let count = account.running.iter().filter(shares).count();
        let before = std::mem::replace(&mut self.0[run].own_spenders, count);
        self.change_with_ancestors(run, |account| {
            account.spenders = account.spenders + count - before;
        });
    }

    /// Closes the sub-workflow of a finished stage. With `is_included` the usage of the stage already
    /// contains what the sub-workflow spent.
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
    /// The budget of a root run.
    pub(crate) fn new(machine: &Machine) -> Self {
        let family = Arc::new(Family::default());
        let unopened = unopened_sub_workflows(machine);
        family.accounts.lock().0.push(Account { unopened, ..Account::default() });
        let budget = Self { family, run: 0 };
        budget.record(machine);
        budget
    }

    /// The budget of a stage.
    pub(crate) fn of_stage(&self, key: Key) -> StageBudget {
        StageBudget { budget: self.clone(), key }
    }

    /// Updates the spending and the limits of the run.
    pub(crate) fn record(&self, machine: &Machine) {
        let state = machine.state();
        let mut accounts = self.family.accounts.lock();
        let account = &mut accounts.0[self.run];
        let (cost_usd, tokens) = machine.spending_limits();
        account.limits = Limits { cost_usd, tokens };
        let now = state.spent();
        let before = std::mem::replace(&mut account.own, now);
        account.waiting.retain(|key, _| state.is_current(key));
        let unopened = account.unopened.len();
        account.unopened.retain(|key| state.is_current(key));
        let has_ended = account.unopened.len() < unopened;
        let left: Vec<Key> =
            account.children.keys().filter(|key| !state.is_current(key)).cloned().collect();
        accounts.add(self.run, before, now);
        for key in left {
            // It was canceled with its branch, so no stage usage contains its spending.
            accounts.close(self.run, &key, false);
        }
        if has_ended {
            self.family.opened.notify_waiters();
        }
    }

    /// Sets the running stages that may spend: they share the remaining budget.
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

    /// A stage has ended. With `is_included` its usage contains what its sub-workflow spent.
    pub(crate) fn ended(&self, key: &Key, is_included: bool) {
        let mut accounts = self.family.accounts.lock();
        if accounts.0[self.run].unopened.remove(key) {
            self.family.opened.notify_waiters();
        }
        if is_included {
            accounts.close(self.run, key, true);
        }
    }

    /// Whether the limit of this run or of an ancestor is reached.
    pub(crate) fn is_over(&self) -> bool {
        self.family.accounts.lock().is_over(self.run)
    }

    /// Whether some of the budget is neither spent nor reserved.
    pub(crate) fn has_room(&self) -> bool {
        self.family.accounts.lock().has_room(self.run)
    }

    /// Whether the share of a suspended stage is now larger than when it was suspended.
    pub(crate) fn has_more_for(&self, key: &Key) -> bool {
        let accounts = self.family.accounts.lock();
        let too_little = accounts.0[self.run].waiting.get(key);
        !accounts.is_over(self.run)
            && too_little.is_some_and(|least| {
                accounts.share(self.run, 1).is_some_and(|share| share > *least)
            })
    }

    /// Whether running stages may still release reservations.
    pub(crate) fn may_get_more(&self) -> bool {
        let accounts = self.family.accounts.lock();
        !accounts.is_over(self.run) && accounts.with_ancestors(self.run).any(|it| it.reserving > 0)
    }

    /// The same for a stage that was suspended because its share was too small.
    pub(crate) fn may_get_more_for(&self, key: &Key) -> bool {
        let too_little = self.family.accounts.lock().0[self.run].waiting.get(key).copied();
        too_little.is_some_and(f64::is_finite) && self.may_get_more()
    }

    /// What unfinished sub-workflows have spent.
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
    /// Whether another turn may be requested: no limit of the run or an ancestor is reached, and
    /// running programs have not reserved the rest.
    pub fn may_spend(&self) -> bool {
        self.budget.family.accounts.lock().may_spend(self.budget.run, &self.key)
    }

    /// Whether a limit in US dollars applies to the stage.
    pub fn has_cost_limit(&self) -> bool {
        let accounts = self.budget.family.accounts.lock();
        accounts.with_ancestors(self.budget.run).any(|account| account.limits.cost_usd.is_some())
    }

    /// Reserves the stage's share of the remaining budget, for a program that accepts a spending
    /// limit; `None` without a limit in US dollars.
    ///
    /// # Errors
    ///
    /// [`LimitReached`] when nothing is left, or other stages have reserved the rest.
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

    /// Waits until the sub-workflows that an earlier driver started are open: only then their
    /// spending is known.
    pub(crate) async fn wait_until_known(&self) {
        let family = &self.budget.family;
        loop {
            let opened = family.opened.notified();
            let is_known =
                family.accounts.lock().0.iter().all(|account| account.unopened.is_empty());
            if is_known {
                return;
            }
            opened.await;
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
                let unopened = unopened_sub_workflows(machine);
                accounts.0.push(Account { parent, unopened, ..Account::default() });
            }
            let parent = &mut accounts.0[*parent];
            parent.children.insert(self.key.clone(), run);
            parent.unopened.remove(&self.key);
            run
        };
        let budget = Budget { family: Arc::clone(family), run };
        budget.record(machine);
        family.opened.notify_waiters();
        budget
    }
}

impl Reservation {
    /// The spending limit of the program, in US dollars.
    pub fn dollars(&self) -> f64 {
        self.dollars
    }

    /// The program stopped at its limit and reports that it spent `spent`. The stage runs again when
    /// other stages release more.
    pub fn used_up(self, spent: f64) {
        // Otherwise a program that stops at once, or gets a tiny share, would be restarted forever.
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

/// The stages whose sub-workflows an earlier driver may have started. A stage in its retry delay has
/// none yet.
fn unopened_sub_workflows(machine: &Machine) -> BTreeSet<Key> {
    let active = machine.state().active();
    let managers = active.filter(|(_, at)| at.handler == NodeKind::ManagerLoop && at.delay_ms == 0);
    managers.map(|(branch, at)| Key::of(branch, at)).collect()
}
