//! A log that two parties use: a driver appends and waits at a gate, another process answers.
//!
//! `cargo run -p fabro-store --features sqlite --example two_processes -- [DIR]`
//!
//! With a directory the store stays there; run it again to see that the log continues.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fabro_events::{Entry, Event, EventBody};
use fabro_store::{Batch, Inbox, Lease, LeaseOwner, Leases, Message, RunLog, Runs, SqliteStore};
use fabro_types::RunId;

/// How long a lease lasts unless it is renewed.
const TTL: Duration = Duration::from_secs(30);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let temporary = tempfile::tempdir()?;
    let dir = std::env::args().nth(1).map_or(temporary.path().join("state"), PathBuf::from);
    let run = RunId::from_parts(1_700_000_000_000, 1);

    let driver = SqliteStore::open(&dir)?;
    let lease = driver.acquire(run, &LeaseOwner::this_process(), TTL).await?;
    let mut last = driver.last_seq(run).await?;
    say(&driver, lease, &mut last, "Shall I go on?").await?;

    answer(&dir, run).await?;

    for (id, message) in driver.pending(run).await? {
        last += 1;
        let text = serde_json::to_string(&message)?;
        let events = [event(run, last, "user", &text)];
        let batch = Batch { events: &events, consumed: &[id], ..Batch::default() };
        driver.append_leased(lease, run, last - 1, &batch).await?;
    }
    driver.release(lease).await?;
    for event in driver.read(run, 0, usize::MAX).await? {
        println!("{}", event.to_json_line());
    }
    Ok(())
}

/// What another process would do.
async fn answer(dir: &Path, run: RunId) -> Result<(), Box<dyn Error>> {
    let store = SqliteStore::open(dir)?;
    let second = store.acquire(run, &LeaseOwner::this_process(), TTL).await;
    println!("second driver: {}", second.err().ok_or("it was let in")?);
    store.post(run, &Message::Steer { text: "Yes.".into(), node: None }).await?;
    Ok(())
}

async fn say(
    store: &SqliteStore,
    lease: Lease,
    last: &mut u64,
    text: &str,
) -> Result<(), Box<dyn Error>> {
    let event = event(lease.run, *last + 1, "assistant", text);
    store.append_leased(lease, lease.run, *last, &Batch::of(&[event])).await?;
    *last += 1;
    Ok(())
}

fn event(run_id: RunId, seq: u64, role: &str, text: &str) -> Event {
    let body = EventBody::AgentMessage {
        role: role.into(),
        text: text.into(),
        message: None,
        usage: None,
        given: None,
        purpose: None,
    };
    Event { run_id, seq, ts_ms: 0, entry: Entry::new(body) }
}
