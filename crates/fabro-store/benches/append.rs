//! What a durable commit of three events costs beside a bare append with `fdatasync`.
//!
//! The two take turns in one process, for what a sync costs changes from minute to minute. Medians
//! seen on two cores and an ext4 disk, optimised: 4.01 ms beside 3.97 ms (ratio 1.01) while the
//! disk is slow, 0.36 ms beside 0.24 ms (1.5) while it is fast. In a directory in memory, where a
//! sync is free, the commit itself is 11 µs and a fresh store 0.5 ms.

#![expect(clippy::expect_used, reason = "a benchmark cannot report an error otherwise")]
#![expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]

use std::cell::RefCell;
use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use divan::Bencher;
use fabro_events::{Entry, Event, EventBody};
use fabro_store::{Batch, MemoryStore, RunLog, SqliteStore};
use fabro_types::RunId;

/// How often the two take turns.
const ROUNDS: u64 = 1000;

fn main() {
    in_turn();
    divan::main();
}

/// Prints the medians of a durable commit and of its limit, the same bytes at the end of a file
/// and a sync.
fn in_turn() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = RunId::from_parts(1_700_000_000_000, 1);
    let text: String = events(run, 0).iter().map(Event::to_json_line).collect();
    let mut file = File::create(dir.path().join("log")).expect("a file");
    let store = SqliteStore::open(dir.path()).expect("a store");
    let mut raw = Vec::new();
    let mut durable = Vec::new();
    for round in 0..ROUNDS {
        let events = events(run, round * 3);
        raw.push(time(|| {
            file.write_all(text.as_bytes()).expect("room on the disk");
            file.sync_data().expect("a disk");
        }));
        durable.push(time(|| {
            wait(store.append(run, round * 3, &Batch::of(&events)))
                .expect("the store takes the events");
        }));
    }
    let [raw, durable] = [raw, durable].map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    });
    let ratio = durable.as_secs_f64() / raw.as_secs_f64();
    println!("in turn: append and fdatasync {raw:?}, commit {durable:?}, ratio {ratio:.2}");
}

/// Waits for a call as a driver does.
fn wait<T>(call: impl Future<Output = T>) -> T {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    }
    RUNTIME.with(|runtime| runtime.block_on(call))
}

fn time(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn events(run_id: RunId, after: u64) -> [Event; 3] {
    [1, 2, 3].map(|more| {
        let text = "x".repeat(150);
        let entry = Entry::new(EventBody::AgentMessage {
            role: "assistant".into(),
            text,
            message: None,
            usage: None,
            given: None,
            purpose: None,
        });
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
            wait(store.append(run, *after, &Batch::of(events)))
                .expect("the store takes the events");
        });
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
        wait(store.append(run, 0, &Batch::of(&events(run, 0))))
            .expect("the store takes the events");
    });
}
