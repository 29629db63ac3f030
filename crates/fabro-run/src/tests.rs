//! Runs over the store in memory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fabro_engine::DriveError;
use fabro_events::{Event, EventBody};
use fabro_store::{
    Inbox as _, Lease, LeaseOwner, Leases as _, MemoryStore, Message, RunLog as _, RunStore,
    StoreError,
};
use fabro_types::RunId;
use tokio::sync::mpsc;

use crate::lease::HeldLease;
use crate::*;

async fn create(store: &Arc<MemoryStore>, dir: &Path, script: &str) -> Run {
    let source = format!(
        "digraph {{ start -> work -> exit; work [shape=parallelogram, script=\"{script}\"] }}"
    );
    let spec = RunSpec::new(LoadedWorkflow::parse("demo", &source).unwrap(), dir);
    Run::create(store.clone(), &dir.join("runs"), spec).await.unwrap()
}

/// Gives the lease of a run to a process on another machine, as after it expired.
async fn take_over(store: &MemoryStore, run: RunId) {
    store.release(Lease { run, epoch: 1 }).await.unwrap();
    let owner = LeaseOwner { host: "elsewhere".into(), pid: 7, started: 1 };
    store.acquire(run, &owner, Duration::from_mins(1)).await.unwrap();
}

#[tokio::test]
async fn a_run_is_driven_over_a_store_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(MemoryStore::default());
    let run = create(&store, dir.path(), "echo done").await;
    let id = run.id();
    assert!(is_driven(&*store, id).await.unwrap());
    let second = Run::open(store.clone(), dir.path(), id).await.err().unwrap();
    assert!(matches!(second, RunError::Store(StoreError::Driven { .. })), "{second}");
    assert_eq!(run.drive(RunServices::default()).await.unwrap(), DriveResult::Succeeded);
    assert!(!is_driven(&*store, id).await.unwrap());
    assert!(dir.path().join("runs").join(id.to_string()).exists());
}

#[tokio::test]
async fn a_driver_stops_when_another_process_has_taken_the_run_over() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(MemoryStore::default());
    let run = create(&store, dir.path(), "sleep 600").await;
    let id = run.id();
    let (started, mut is_started) = mpsc::unbounded_channel();
    let sink = move |event: &Event| {
        if matches!(event.entry.body, EventBody::StageStarted { .. }) {
            started.send(()).unwrap();
        }
    };
    let services = RunServices { sink: Arc::new(sink), ..RunServices::default() };
    let other = async {
        is_started.recv().await.unwrap();
        take_over(&store, id).await;
        // The driver records what follows from a message.
        store.post(id, &Message::Cancel { reason: "test".into() }).await.unwrap();
    };
    let (result, ()) = tokio::join!(run.drive(services), other);
    let error = result.unwrap_err();
    assert!(
        matches!(error, RunError::Drive(DriveError::Store(StoreError::LeaseLost { .. }))),
        "{error}"
    );
    let events = store.read(id, 0, 100).await.unwrap();
    assert!(!events.iter().any(|event| matches!(event.entry.body, EventBody::RunCanceled { .. })));
    assert_eq!(store.driver(id).await.unwrap().unwrap().host, "elsewhere");
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_is_noticed_when_it_is_renewed() {
    let store = Arc::new(MemoryStore::default());
    let run = RunId::from_parts(0, 1);
    let held = HeldLease::acquire(&(store.clone() as Arc<dyn RunStore>), run).await.unwrap();
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert!(!held.lost().is_cancelled());
    take_over(&store, run).await;
    held.lost().cancelled().await;
    drop(held);
    assert_eq!(store.driver(run).await.unwrap().unwrap().host, "elsewhere");
}
