//! While a commit takes its time, running stages continue; what they did is decided after it.

use std::time::Duration;

use tokio::time::Instant;

use super::test_store::TestStore;
use super::*;

const FORK: &str = "digraph { start -> fork -> reporter -> join; fork -> worker -> join -> exit
    fork [shape=component]; join [shape=tripleoctagon]; worker [timeout=8s] }";

/// `reporter` reports at once, and begins a commit of 10 s with that; `worker` works meanwhile.
struct TwoStages {
    began: Instant,
    notes: Mutex<Vec<String>>,
    /// How long `worker` takes.
    works: Duration,
}

impl TwoStages {
    fn note(&self, what: &str) {
        self.notes.lock().unwrap().push(format!("{what} at {:?}", self.began.elapsed()));
    }
}

#[async_trait]
impl Handler for TwoStages {
    async fn execute(&self, stage: Stage) -> StageEnd {
        match &*stage.at.node {
            "reporter" => {
                let message = "slow".to_owned();
                let body = EventBody::AgentWarning { kind: "t".into(), message, window: None };
                match stage.reporter.report(body).await {
                    Ok(()) => self.note("recorded"),
                    Err(error) => self.note(&error.to_string()),
                }
            }
            "worker" => {
                tokio::select! {
                    () = tokio::time::sleep(self.works) => self.note("worker done"),
                    () = stage.cancel.cancelled() => {
                        self.note("worker canceled");
                        return Failure::new(FailureClass::Canceled, "canceled").into();
                    }
                }
            }
            _ => {}
        }
        Outcome::succeeded().into()
    }
}

/// What the stages noted, and the story of the run, which is stopped after so long.
async fn drive_slowly(works: Duration, stop_after: Option<Duration>) -> (String, String) {
    let bench = Bench::new(FORK, &[]);
    let store =
        Arc::new(TestStore { append_takes: Duration::from_secs(10), ..TestStore::default() });
    store.store.append(bench.run_id, 0, &Batch::of(&bench.events())).await.unwrap();
    // The first commit starts the branches.
    let began = Instant::now() + Duration::from_secs(10);
    let stages = Arc::new(TwoStages { began, notes: Mutex::default(), works });
    let world = World {
        store: Arc::clone(&store) as _,
        handler: Arc::clone(&stages) as _,
        ..bench.world()
    };
    let stop = world.stop.clone();
    if let Some(after) = stop_after {
        tokio::spawn(async move {
            tokio::time::sleep_until(began + after).await;
            stop.cancel();
        });
    }
    drive(bench.machine(), Input::Start, world).await.unwrap();
    let notes = stages.notes.lock().unwrap().join("\n");
    let events = store.store.read(bench.run_id, 0, usize::MAX).await.unwrap();
    (notes, story(&events))
}

#[tokio::test(start_paused = true)]
async fn a_timer_of_a_branch_continues_while_a_commit_is_slow() {
    let (notes, story) = drive_slowly(Duration::from_secs(3), None).await;
    insta::assert_snapshot!(notes, @r"
    worker done at 3s
    recorded at 10s
    ");
    insta::assert_snapshot!(story, @r"
    001 start@1 succeeded  -> fork (unconditional)
    fork@1 forks 2, joins at join
      004 worker@1 succeeded  -> join (unconditional)
      fork@1/worker succeeded
      003 reporter@1 succeeded  -> join (unconditional)
      fork@1/reporter succeeded
    002 fork@1 succeeded  -> join (join)
    005 join@1 succeeded  -> exit (unconditional)
    006 exit@1 succeeded
    run succeeded
    ");
}

#[tokio::test(start_paused = true)]
async fn a_timeout_and_a_cancellation_arrive_while_a_commit_is_slow() {
    let (notes, _) = drive_slowly(Duration::from_secs(30), None).await;
    insta::assert_snapshot!(notes, @r"
    worker canceled at 8s
    recorded at 10s
    ");
    let (notes, _) = drive_slowly(Duration::from_secs(30), Some(Duration::from_secs(2))).await;
    insta::assert_snapshot!(notes, @r"
    worker canceled at 2s
    recorded at 10s
    ");
}

#[tokio::test(start_paused = true)]
async fn a_result_that_arrives_during_a_slow_commit_is_kept_when_a_stop_follows() {
    let stop = Some(Duration::from_secs(5));
    let (_, story) = drive_slowly(Duration::from_secs(3), stop).await;
    insta::assert_snapshot!(story, @r"
    001 start@1 succeeded  -> fork (unconditional)
    fork@1 forks 2, joins at join
      004 worker@1 succeeded  -> join (unconditional)
      fork@1/worker succeeded
    ");
}
