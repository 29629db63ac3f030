//! The lease of a run, renewed for as long as this process drives the run.

use std::sync::Arc;
use std::time::Duration;

use fabro_store::{Lease, LeaseOwner, LeasedStore, RunStore, Store, StoreError};
use fabro_types::RunId;
use futures_util::FutureExt as _;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::RunError;

/// After this time without a renewal another process may take a run over. A process that has ended
/// on the same machine is noticed at once.
const TTL: Duration = Duration::from_secs(30);

/// How often a lease is renewed, by the monotonic clock of this process.
const RENEW_PERIOD: Duration = Duration::from_secs(10);

/// A lease that a task renews until this value is dropped.
pub(crate) struct HeldLease {
    store: Arc<dyn RunStore>,
    lease: Lease,
    lost: CancellationToken,
    heartbeat: JoinHandle<()>,
    released: bool,
}

impl HeldLease {
    pub(crate) async fn acquire(store: &Arc<dyn RunStore>, run: RunId) -> Result<Self, StoreError> {
        let lease = acquire(&**store, run).await?;
        let lost = CancellationToken::new();
        let heartbeat = tokio::spawn(renew(Arc::clone(store), lease, lost.clone()));
        Ok(Self { store: Arc::clone(store), lease, lost, heartbeat, released: false })
    }

    pub(crate) fn lease(&self) -> Lease {
        self.lease
    }

    /// The store, for commits under this lease.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::new(LeasedStore::new(Arc::clone(&self.store), self.lease))
    }

    /// Fires when another process has taken the lease over.
    pub(crate) fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    /// The process that currently drives the run.
    pub(crate) async fn driver(&self) -> Result<Option<LeaseOwner>, StoreError> {
        self.store.driver(self.lease.run).await
    }

    /// Renews it now: after something that took long, another process may have taken it over.
    ///
    /// # Errors
    ///
    /// [`StoreError::LeaseLost`] when that has happened, or the store cannot be written.
    pub(crate) async fn check(&self) -> Result<(), StoreError> {
        self.store.renew(self.lease, TTL).await
    }

    pub(crate) async fn release(&mut self) -> Result<(), StoreError> {
        self.heartbeat.abort();
        self.released = true;
        self.store.release(self.lease).await
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        self.heartbeat.abort();
        if !self.released {
            // A store that does not finish the call at once keeps the lease until it expires, or
            // until this process has ended.
            let _ = self.store.release(self.lease).now_or_never();
        }
    }
}

async fn renew(store: Arc<dyn RunStore>, lease: Lease, lost: CancellationToken) {
    let mut period =
        tokio::time::interval_at(tokio::time::Instant::now() + RENEW_PERIOD, RENEW_PERIOD);
    period.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        period.tick().await;
        // Another error, a full disk for example, ends the run at its next commit if it lasts.
        if let Err(StoreError::LeaseLost { .. }) = store.renew(lease, TTL).await {
            lost.cancel();
            return;
        }
    }
}

async fn acquire(store: &dyn RunStore, run: RunId) -> Result<Lease, StoreError> {
    store.acquire(run, &LeaseOwner::this_process(), TTL).await
}

/// Makes a short change during which no process can drive the run.
pub(crate) async fn with_lease<T>(
    store: &dyn RunStore,
    run: RunId,
    change: impl AsyncFnOnce(Lease) -> Result<T, RunError>,
) -> Result<T, RunError> {
    let lease = acquire(store, run).await?;
    let result = change(lease).await;
    let released = store.release(lease).await;
    // The change's own error says more than that of the release.
    let changed = result?;
    released?;
    Ok(changed)
}
