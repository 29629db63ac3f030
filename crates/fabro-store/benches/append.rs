//! What a durable commit of three events costs beside a bare append with `fdatasync`.
//!
//! The two take turns in one process, for what a sync costs changes from minute to minute:
//! compare the medians of one run. Seen on two cores and an ext4 disk: RATIO.

#![expect(clippy::expect_used, reason = "a benchmark has nobody to report an error to")]

use std::cell::RefCell;
use std::fs::File;
use std::io::Write;

use divan::Bencher;
use fabro_events::{Entry, Event, EventBody};
use fabro_store::{Batch, MemoryStore, RunLog, SqliteStore};
use fabro_types::RunId;

fn main() {
    divan::main();
}

fn events(run_id: RunId, after: u64) -> [Event; 3] {
    [1, 2, 3].map(|more| {
        let text = "x".repeat(150);
        let entry = Entry::new(EventBody::AgentMessage { role: "assistant".into(), text });
        Event { run_id, seq: after + more, ts_ms: 1_700_000_000_000, entry }
    })
}

/// Appends three events again and again.
fn append(bencher: Bencher<'_, '_>, store: &impl RunLog) {
    let run = RunId::from_parts(1_700_000_000_000, 1);
    let last = RefCell::new(0);
    bencher
        .with_inputs(|| {
            let after = last.replace_with(|last| *last + 3);
            (after, events(run, after))
        })
        .bench_local_refs(|(after, events)| {
            store.append(run, *after, &Batch::of(events)).expect("the store takes the events");
        });
}

mod durable {
    use super::*;

    /// The limit: the same bytes at the end of a file, and a sync.
    #[divan::bench(sample_count = 1000, sample_size = 1)]
    fn raw_append_and_fdatasync(bencher: Bencher<'_, '_>) {
        let dir = tempfile::tempdir().expect("a directory");
        let mut file = File::create(dir.path().join("log")).expect("a file");
        let run = RunId::from_parts(1_700_000_000_000, 1);
        let text: String = events(run, 0).iter().map(Event::to_json_line).collect();
        bencher.bench_local(|| {
            file.write_all(text.as_bytes()).expect("room on the disk");
            file.sync_data().expect("a disk");
        });
    }

    #[divan::bench(sample_count = 1000, sample_size = 1)]
    fn sqlite(bencher: Bencher<'_, '_>) {
        let dir = tempfile::tempdir().expect("a directory");
        append(bencher, &SqliteStore::open(dir.path()).expect("a store"));
    }
}

#[divan::bench]
fn memory(bencher: Bencher<'_, '_>) {
    append(bencher, &MemoryStore::default());
}

/// A whole store: created, one commit, closed.
#[divan::bench(sample_count = 100, sample_size = 1)]
fn fresh_store(bencher: Bencher<'_, '_>) {
    let run = RunId::from_parts(1_700_000_000_000, 1);
    bencher.with_inputs(|| tempfile::tempdir().expect("a directory")).bench_local_refs(|dir| {
        let store = SqliteStore::open(&dir.path().join("state")).expect("a store");
        store.append(run, 0, &Batch::of(&events(run, 0))).expect("the store takes the events");
    });
}
