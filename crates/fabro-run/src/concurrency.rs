//! Limits concurrent runs with the same key (`[run.concurrency]`), for jobs that start again before the
//! last one ended. Each driven run holds one of `limit` leases of the store, so a killed driver leaves
//! no stale lock.

use std::sync::Arc;
use std::time::Duration;

use fabro_config::{Concurrency, OnBusy};
use fabro_store::{RunStore, StoreError};
use fabro_types::{RunId, RunStatus};
use serde_json::{Map, Value};

use crate::control::cancel;
use crate::lease::HeldLease;
use crate::{RunError, render_goal};

/// How often a waiting run tries to acquire a slot.
pub(crate) const POLL_PERIOD: Duration = Duration::from_millis(500);

/// The slots of the runs with one key.
pub(crate) struct Slots {
    pub(crate) key: String,
    limit: u32,
    on_busy: OnBusy,
}

impl Slots {
    /// The slots for a run with these settings; `None` without a limit.
    pub(crate) fn of(
        settings: Option<&Concurrency>,
        workflow: &str,
        inputs: &Map<String, Value>,
    ) -> Result<Option<Self>, RunError> {
        let Some(Concurrency { key, limit, on_busy }) = settings else { return Ok(None) };
        let key = match key {
            Some(key) => render_goal(key, inputs)?,
            None => workflow.to_owned(),
        };
        Ok(Some(Self { key, limit: limit.unwrap_or(1), on_busy: *on_busy }))
    }

    /// Acquires a free slot; `None` when all are taken.
    pub(crate) async fn take(
        &self,
        store: &Arc<dyn RunStore>,
    ) -> Result<Option<HeldLease>, StoreError> {
        for slot in self.ids() {
            match HeldLease::acquire(store, slot).await {
                Ok(lease) => return Ok(Some(lease)),
                Err(StoreError::Driven { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Acquires a slot for a new run, or applies `on_busy`. Returns `None` if the run has to wait.
    ///
    /// # Errors
    ///
    /// [`RunError::Busy`] when `on_busy` says that the run must not start.
    pub(crate) async fn enter(
        &self,
        store: &Arc<dyn RunStore>,
    ) -> Result<Option<HeldLease>, RunError> {
        if let Some(lease) = self.take(store).await? {
            return Ok(Some(lease));
        }
        let runs = self.holders(&**store).await?;
        match self.on_busy {
            OnBusy::Queue => Ok(None),
            OnBusy::Skip => Err(RunError::Busy { key: self.key.clone(), runs }),
            OnBusy::Cancel => {
                if let Some(oldest) = runs.first() {
                    let reason = format!("superseded by a newer run with the key `{}`", self.key);
                    match cancel(&**store, *oldest, &reason, None).await {
                        // It has just ended.
                        Ok(_) | Err(RunError::Ended { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(None)
            }
        }
    }

    /// The runs that hold the slots, oldest first.
    pub(crate) async fn holders(&self, store: &dyn RunStore) -> Result<Vec<RunId>, StoreError> {
        let mut owners = Vec::new();
        for slot in self.ids() {
            owners.extend(store.driver(slot).await?);
        }
        let mut holders = Vec::new();
        for run in store.list().await?.into_iter().rev() {
            let is_running = run.status == RunStatus::Running && run.parent.is_none();
            if is_running && store.driver(run.id).await?.is_some_and(|it| owners.contains(&it)) {
                holders.push(run.id);
            }
        }
        Ok(holders)
    }

    /// The lease ids of the slots. They are not ids of runs.
    fn ids(&self) -> impl Iterator<Item = RunId> {
        let base = RunId::from_parts(0, 0);
        (0..self.limit).map(move |slot| base.derive(&format!("concurrency {slot} {}", self.key)))
    }
}
