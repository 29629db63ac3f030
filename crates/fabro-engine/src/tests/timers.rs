//! Retry delays that continue after a resume, and cancellations before a stage starts.

use std::time::Duration;

use fabro_store::{Inbox, Message};

use super::*;

/// A world whose clock starts at `now_ms` and advances with the runtime's clock.
fn at(bench: &Bench, now_ms: i64) -> World {
    let since = Mutex::new(None);
    World {
        clock: Arc::new(move || {
            let mut since = since.lock().unwrap();
            let since = since.get_or_insert_with(tokio::time::Instant::now);
            now_ms + i64::try_from(since.elapsed().as_millis()).unwrap()
        }),
        ..bench.world()
    }
}

/// Drives from `now_ms` and stops the driver after `seconds`. Returns the end and the elapsed seconds.
fn drive_for(bench: &Bench, now_ms: i64, seconds: u64, first: Input) -> (RunEnd, u64) {
    drive_in(bench, at(bench, now_ms), seconds, first)
}

/// The same in this world.
fn drive_in(bench: &Bench, world: World, seconds: u64, first: Input) -> (RunEnd, u64) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(async {
        let since = tokio::time::Instant::now();
        let stop = world.stop.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            stop.cancel();
        });
        let end = drive(bench.machine(), first, world).await.unwrap();
        (end, since.elapsed().as_secs())
    })
}

#[test]
fn a_resume_does_not_extend_a_retry_delay() {
    let failure = Failure {
        retry_after_ms: Some(50_000),
        ..Failure::new(FailureClass::TransientInfra, "busy")
    };
    let failed = Reply::End(Box::new(Outcome::failed(failure)));
    let bench = Bench::new(
        "digraph { start -> a -> exit; a [retry_policy=standard] }",
        &[("a", vec![failed, ok()])],
    );
    let (end, _) = drive_for(&bench, 1_000_000, 20, Input::Start);
    assert_eq!(end, RunEnd::Stopped);
    // Another driver continues ten seconds later: 20 of 50 seconds are left.
    let (end, seconds) = drive_for(&bench, 1_030_000, 99, Input::Resume { max_cost: None });
    assert!(matches!(end, RunEnd::Over(..)), "{end:?}");
    assert_eq!(seconds, 20);
}

/// Waits so many seconds like a wait node, and records the remaining time.
struct Waiter(u64, Mutex<Vec<u64>>);

#[async_trait]
impl Handler for Waiter {
    async fn execute(&self, stage: Stage) -> StageEnd {
        let left = Duration::from_secs(self.0).saturating_sub(stage.begun);
        self.1.lock().unwrap().push(left.as_secs());
        tokio::select! {
            () = tokio::time::sleep(left) => Outcome::succeeded().into(),
            () = stage.cancel.cancelled() => Failure::new(FailureClass::Canceled, "canceled").into(),
        }
    }
}

fn drive_waiter_for(bench: &Bench, waiter: &Arc<Waiter>, now_ms: i64, seconds: u64, first: Input) {
    let world = World { handler: Arc::clone(waiter) as _, ..at(bench, now_ms) };
    drive_in(bench, world, seconds, first);
}

#[test]
fn a_fan_out_does_not_take_the_time_between_drivers() {
    let source = "digraph {
        start -> fork; fork [shape=component]; fork -> w -> join; fork -> v -> join; join -> exit
        w [shape=insulator, duration=3000]; v [shape=insulator, duration=3000]
    }";
    let bench = Bench::new(source, &[]);
    let waiter = Arc::new(Waiter(3_000, Mutex::default()));
    drive_waiter_for(&bench, &waiter, 0, 50, Input::Start);
    drive_waiter_for(&bench, &waiter, 1_000_000, 9_000, Input::Resume { max_cost: None });
    let took = bench.events().iter().find_map(|event| match &event.entry.body {
        EventBody::StageCompleted(end) if event.entry.node_id.as_deref() == Some("fork") => {
            Some(end.outcome.duration_ms)
        }
        _ => None,
    });
    // The stages wait from 0 to 3000 seconds, and no driver is there before 1000.
    assert_eq!(took, Some(2_000_000));
}

#[test]
fn a_stage_knows_how_long_ago_it_began() {
    let bench =
        Bench::new("digraph { start -> a -> exit; a [shape=insulator, duration=100] }", &[]);
    let waiter = Arc::new(Waiter(100, Mutex::default()));
    drive_waiter_for(&bench, &waiter, 0, 50, Input::Start);
    drive_waiter_for(&bench, &waiter, 70_000, 50, Input::Resume { max_cost: None });
    assert_eq!(*waiter.1.lock().unwrap(), [100, 30]);
    insta::assert_snapshot!(story(&bench.events()), @r"
    001 start@1 succeeded  -> a (unconditional)
    resumed
    002 a@1 succeeded  -> exit (unconditional)
    003 exit@1 succeeded
    run succeeded
    ");
}

/// Cancels its own run, like `fabro cancel $FABRO_RUN_ID` in a script.
struct Canceler(Arc<MemoryStore>, Mutex<Vec<String>>);

#[async_trait]
impl Handler for Canceler {
    async fn execute(&self, stage: Stage) -> StageEnd {
        self.1.lock().unwrap().push(stage.at.node.to_string());
        let message = Message::Cancel { reason: "enough".into() };
        self.0.post(stage.run_id, &message).await.unwrap();
        Outcome::succeeded().into()
    }
}

#[test]
fn no_stage_starts_after_a_cancel() {
    let bench = Bench::new("digraph { start -> check -> publish -> exit }", &[]);
    let handler = Arc::new(Canceler(Arc::clone(&bench.store), Mutex::default()));
    bench.drive_in(World { handler: Arc::clone(&handler) as _, ..bench.world() }, Input::Start);
    assert_eq!(*handler.1.lock().unwrap(), ["check"]);
    insta::assert_snapshot!(story(&bench.events()), @r"
    001 start@1 succeeded  -> check (unconditional)
    002 check@1 succeeded  -> publish (unconditional)
    run canceled: enough
    ");
}
