//! The thread that waits for the disk.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use super::database::Database;
use crate::StoreError;

type Job = Box<dyn FnOnce(&Database) + Send>;

/// Does the blocking calls of a store, in order. Ends when it is dropped, after the last call.
#[derive(Debug)]
pub(super) struct Thread {
    /// Present until it is dropped.
    queue: Option<Sender<Job>>,
    handle: Option<JoinHandle<()>>,
}

impl Thread {
    pub(super) fn start(db: Arc<Database>) -> io::Result<Self> {
        let (queue, jobs) = mpsc::channel::<Job>();
        let work = move || {
            for job in jobs {
                job(&db);
            }
        };
        let handle = std::thread::Builder::new().name("store".to_owned()).spawn(work)?;
        Ok(Self { queue: Some(queue), handle: Some(handle) })
    }

    /// Does `call` on the thread. It is done even when the caller stops waiting.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Database) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run_then(move |db| Ok((call(db)?, |_: &Database| ()))).await
    }

    /// The same with what is done after the caller has the result, before the next call.
    pub(super) async fn run_then<T: Send + 'static, A: FnOnce(&Database)>(
        &self,
        call: impl FnOnce(&Database) -> Result<(T, A), StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (done, result) = oneshot::channel();
        let job: Job = Box::new(move |db| {
            let (value, after) = call(db)
                .map_or_else(|error| (Err(error), None), |(value, after)| (Ok(value), Some(after)));
            // The caller may have stopped waiting.
            let _ = done.send(value);
            if let Some(after) = after {
                after(db);
            }
        });
        if let Some(queue) = &self.queue {
            // Fails only when the thread has panicked; then there is no result either.
            let _ = queue.send(job);
        }
        #[expect(clippy::expect_used, reason = "a panic of the store's thread is a bug here")]
        result.await.expect("the store's thread ends only after the last call")
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(handle) = self.handle.take() {
            // A panic there was reported when it happened.
            let _ = handle.join();
        }
    }
}
