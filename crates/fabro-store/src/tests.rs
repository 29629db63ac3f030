use std::sync::Barrier;
use std::time::Duration;

use crate::conformance::{created, message, run};
use fabro_events::Event;

use super::*;

/// Runs a check on each implementation.
#[track_caller]
fn each(check: impl Fn(&Blocking<dyn RunStore>)) {
    check(&Blocking(Arc::new(MemoryStore::default())));
    #[cfg(feature = "sqlite")]
    {
        let dir = tempfile::tempdir().unwrap();
        check(&Blocking(Arc::new(SqliteStore::open(&dir.path().join("state")).unwrap())));
    }
}

/// A store whose calls are waited for.
pub(crate) struct Blocking<S: ?Sized>(pub(crate) Arc<S>);

impl<S: ?Sized> std::ops::Deref for Blocking<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.0
    }
}

pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

impl<S: RunStore + ?Sized> Blocking<S> {
    pub(crate) fn append(
        &self,
        run: RunId,
        expected_seq: u64,
        batch: &Batch<'_>,
    ) -> Result<(), StoreError> {
        wait(self.0.append(run, expected_seq, batch))
    }

    pub(crate) fn read(
        &self,
        run: RunId,
        after_seq: u64,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        wait(self.0.read(run, after_seq, limit))
    }

    pub(crate) fn list(&self) -> Result<Vec<RunSummary>, StoreError> {
        wait(self.0.list())
    }

    pub(crate) fn find(&self, text: &str) -> Result<RunId, StoreError> {
        wait(self.0.find(text))
    }

    pub(crate) fn delete(&self, run: RunId) -> Result<(), StoreError> {
        wait(self.0.delete(run))
    }

    pub(crate) fn last_seq(&self, run: RunId) -> Result<u64, StoreError> {
        wait(self.0.last_seq(run))
    }

    pub(crate) fn check(&self, run: RunId) -> Result<Option<StoreWarning>, StoreError> {
        wait(self.0.check(run))
    }

    pub(crate) fn post(&self, run: RunId, message: &Message) -> Result<InboxId, StoreError> {
        wait(self.0.post(run, message))
    }

    pub(crate) fn pending(&self, run: RunId) -> Result<Vec<(InboxId, Message)>, StoreError> {
        wait(self.0.pending(run))
    }

    pub(crate) fn mark(&self) -> Result<ChangeMark, StoreError> {
        wait(self.0.mark())
    }

    pub(crate) fn acquire(&self, run: RunId) -> Result<Lease, StoreError> {
        wait(self.0.acquire(run, &LeaseOwner::this_process(), Duration::from_mins(1)))
    }

    pub(crate) fn release(&self, lease: Lease) {
        wait(self.0.release(lease)).unwrap();
    }

    pub(crate) fn is_driven(&self, run: RunId) -> bool {
        wait(self.0.driver(run)).unwrap().is_some()
    }
}

#[test]
fn stores_do_what_their_traits_say() {
    wait(conformance::check(async || MemoryStore::default()));
    #[cfg(feature = "sqlite")]
    {
        let dir = tempfile::tempdir().unwrap();
        let made = std::cell::Cell::new(0);
        wait(conformance::check(async || {
            made.set(made.get() + 1);
            SqliteStore::open(&dir.path().join(made.get().to_string())).unwrap()
        }));
    }
}

#[test]
fn errors_say_what_is_wrong() {
    each(|store| {
        let first = run(1);
        let found = |text: &str| store.find(text).unwrap_err().to_string();
        let none = found("latest");
        for number in [1, 2] {
            let run = run(number);
            store.append(run, 0, &Batch::of(&[created(run, "demo", None)])).unwrap();
        }
        let refused = |expected, events: &[Event]| {
            store.append(first, expected, &Batch::of(events)).unwrap_err().to_string()
        };
        let lease = store.acquire(first).unwrap();
        let driven = store.acquire(first).unwrap_err().to_string();
        store.release(lease);
        let lost = wait(store.renew(lease, Duration::ZERO)).unwrap_err();
        insta::allow_duplicates! {
            insta::assert_snapshot!(none, @"there are no runs yet; start one with `fabro run`");
            insta::assert_snapshot!(found("01HF"), @"`01HF` matches 01HF7YAT020000000000000002, 01HF7YAT010000000000000001; write more of the id");
            insta::assert_snapshot!(found(""), @"there is no run ``; `fabro ps` lists them");
            insta::assert_snapshot!(refused(0, &[message(first, 1, "b")]), @"run 01HF7YAT010000000000000001 was written by another process: its log ends at 1, not at 0; see whether it is still being driven, then resume it");
            insta::assert_snapshot!(refused(1, &[message(first, 2, "b"), message(first, 4, "c")]), @"event 01HF7YAT010000000000000001-4 does not follow 01HF7YAT010000000000000001-2 in one batch");
            insta::assert_snapshot!(refused(1, &[message(run(2), 2, "b")]), @"event 01HF7YAT020000000000000002-2 does not follow 01HF7YAT020000000000000002-1 in one batch");
            insta::assert_snapshot!(driven.replace(&format!("process {}", std::process::id()), "process 7"), @"run 01HF7YAT010000000000000001 is being driven by process 7; wait for it, or end it with `fabro cancel 01HF7YAT010000000000000001`");
            insta::assert_snapshot!(lost, @"run 01HF7YAT010000000000000001 was taken over by another process; this process stops driving it");
        }
    });
}

#[test]
fn exactly_one_of_several_writers_wins() {
    each(|store| {
        let run = run(1);
        let start = Barrier::new(4);
        let won: usize = std::thread::scope(|scope| {
            let writers = ["a", "b", "c", "d"].map(|name| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    let wins = (0..25).filter(|seq| {
                        let event = message(run, seq + 1, name);
                        match store.append(run, *seq, &Batch::of(&[event])) {
                            Ok(()) => true,
                            Err(StoreError::Conflict { .. }) => false,
                            Err(error) => panic!("{error}"),
                        }
                    });
                    wins.count()
                })
            });
            writers.into_iter().map(|writer| writer.join().unwrap()).sum()
        });
        assert_eq!(won as u64, store.last_seq(run).unwrap());
        assert_eq!(store.read(run, 0, 100).unwrap().len(), won);
    });
}
