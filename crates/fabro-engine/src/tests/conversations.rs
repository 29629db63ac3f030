use std::sync::atomic::AtomicUsize;

use super::*;
use fabro_blob::{BlobError, BlobStore};
use fabro_events::{Note, PauseReason};
use fabro_store::{
    ChangeMark, Follow, Inbox, InboxId, Message, RunSummary, Runs, StoreError, StoreWarning,
};
use fabro_types::BlobRef;
use serde_json::json;

/// Reports one answer after the other, as many as it may, and what it found of them.
struct Talker {
    /// Answers of the whole stage.
    of: usize,
    /// Answers before it gives up, as a driver that dies or a budget that is used up would.
    now: usize,
    found: Mutex<Vec<String>>,
}

fn answer(text: &str, cost_usd: f64) -> Note {
    let usage = Usage { turns: 1, cost_usd, ..Usage::default() };
    EventBody::AgentMessage {
        role: "assistant".into(),
        text: text.into(),
        message: Some(Arc::new(json!(text))),
        usage: Some(usage),
        given: None,
        purpose: None,
    }
    .into()
}

fn texts(events: &[Event]) -> String {
    let texts = events.iter().filter_map(|event| match &event.entry.body {
        EventBody::AgentMessage { text, .. } | EventBody::AgentSteered { text, .. } => {
            Some(text.as_str())
        }
        _ => None,
    });
    texts.collect::<Vec<_>>().join(" ")
}

#[async_trait]
impl Handler for Talker {
    async fn execute(&self, mut stage: Stage) -> StageEnd {
        let before = stage.recorded().await.unwrap();
        let mut earlier = Vec::new();
        for record in &stage.history {
            let events = stage.recorded_by(record).await.unwrap();
            earlier.push(format!("{}: {}", record.node, texts(&events)));
        }
        let line = format!(
            "{}@{}.{} [{}] after [{}]",
            stage.at.node,
            stage.at.visit,
            stage.at.attempt,
            texts(&before),
            earlier.join(", ")
        );
        self.found.lock().unwrap().push(line);
        if let Some(Letter::Steer { id, text }) = stage.mailbox.try_next() {
            let body = EventBody::AgentSteered { text, source: "inbox".into() };
            stage.reporter.record(vec![body.into()], Vec::new(), vec![id]).await.unwrap();
        }
        let done = before.len();
        for turn in done..self.of.min(done + self.now) {
            let text = format!("{}{}", stage.at.node, turn + 1);
            stage.reporter.record(vec![answer(&text, 1.0)], Vec::new(), Vec::new()).await.unwrap();
        }
        if done + self.now < self.of {
            return StageEnd::Suspended(PauseReason::Budget);
        }
        let usage = Usage {
            turns: 4,
            cost_usd: f64::from(u32::try_from(self.of).unwrap()),
            ..Usage::default()
        };
        Outcome { usage: Some(usage), ..Outcome::succeeded() }.into()
    }
}

fn drive_with(bench: &Bench, talker: &Arc<Talker>, first: Input) -> RunEnd {
    let world = World { handler: Arc::clone(talker) as _, ..bench.world() };
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true);
    runtime.build().unwrap().block_on(drive(bench.machine(), first, world)).unwrap()
}

const LINE: &str = "digraph { start -> a -> b -> exit }";

#[test]
fn a_stage_finds_what_it_said_before_it_was_left() {
    let bench = Bench::new(LINE, &[]);
    let talker = Arc::new(Talker { of: 4, now: 3, found: Mutex::default() });
    let end = drive_with(&bench, &talker, Input::Start);
    assert_eq!(end, RunEnd::Paused(PauseReason::Budget));
    // What a stage at work has spent counts already.
    assert!((bench.state().usage_so_far().cost_usd - 3.0).abs() < f64::EPSILON);
    let more = Input::Resume { max_cost: Some(99.0) };
    assert_eq!(drive_with(&bench, &talker, more.clone()), RunEnd::Paused(PauseReason::Budget));
    drive_with(&bench, &talker, more);
    insta::assert_snapshot!(talker.found.lock().unwrap().join("\n"), @r"
    a@1.1 [] after []
    a@1.1 [a1 a2 a3] after []
    b@1.1 [] after [a: a1 a2 a3 a4]
    b@1.1 [b1 b2 b3] after [a: a1 a2 a3 a4]
    ");
    assert!((bench.state().usage.cost_usd - 8.0).abs() < f64::EPSILON);
}

#[test]
fn steering_waits_for_an_agent_and_is_taken_once() {
    let bench = Bench::new(LINE, &[]);
    let steer = |text: &str, node: Option<&str>| {
        let message = Message::Steer { text: text.into(), node: node.map(str::to_owned) };
        now(bench.store.post(bench.run_id, &message)).unwrap();
    };
    steer("be brief", Some("b"));
    let talker = Arc::new(Talker { of: 1, now: 1, found: Mutex::default() });
    drive_with(&bench, &talker, Input::Start);
    let steered: Vec<String> = bench
        .events()
        .iter()
        .filter(|event| matches!(event.entry.body, EventBody::AgentSteered { .. }))
        .map(|event| event.entry.node_id.as_deref().unwrap_or_default().to_owned())
        .collect();
    insta::assert_snapshot!(steered.join(" "), @"b");
    assert!(now(bench.store.pending(bench.run_id)).unwrap().is_empty());
}

/// A store that counts the records it hands out.
#[derive(Default)]
struct Counting {
    store: MemoryStore,
    handed_out: AtomicUsize,
}

#[async_trait]
impl RunLog for Counting {
    async fn append(
        &self,
        run: RunId,
        expected_seq: u64,
        batch: &Batch<'_>,
    ) -> Result<(), StoreError> {
        self.store.append(run, expected_seq, batch).await
    }

    async fn read(
        &self,
        run: RunId,
        after_seq: u64,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let events = self.store.read(run, after_seq, limit).await?;
        self.handed_out.fetch_add(events.len(), Ordering::Relaxed);
        Ok(events)
    }
}

#[async_trait]
impl Runs for Counting {
    async fn list(&self) -> Result<Vec<RunSummary>, StoreError> {
        self.store.list().await
    }

    async fn find(&self, text: &str) -> Result<RunId, StoreError> {
        self.store.find(text).await
    }

    async fn delete(&self, run: RunId) -> Result<(), StoreError> {
        self.store.delete(run).await
    }

    async fn last_seq(&self, run: RunId) -> Result<u64, StoreError> {
        self.store.last_seq(run).await
    }

    async fn check(&self, run: RunId) -> Result<Option<StoreWarning>, StoreError> {
        self.store.check(run).await
    }
}

#[async_trait]
impl Inbox for Counting {
    async fn post(&self, run: RunId, message: &Message) -> Result<InboxId, StoreError> {
        self.store.post(run, message).await
    }

    async fn pending(&self, run: RunId) -> Result<Vec<(InboxId, Message)>, StoreError> {
        self.store.pending(run).await
    }
}

#[async_trait]
impl Follow for Counting {
    async fn mark(&self) -> Result<ChangeMark, StoreError> {
        self.store.mark().await
    }
}

impl BlobStore for Counting {
    fn get(&self, blob: &BlobRef) -> Result<Vec<u8>, BlobError> {
        self.store.get(blob)
    }

    fn put(&self, bytes: &[u8]) -> Result<BlobRef, BlobError> {
        self.store.put(bytes)
    }

    fn len(&self, blob: &BlobRef) -> Result<u64, BlobError> {
        self.store.len(blob)
    }
}

#[test]
fn an_earlier_stage_is_read_without_what_came_after_it() {
    const STAGES: usize = 40;
    let nodes: Vec<String> = (0..STAGES).map(|n| format!("n{n}")).collect();
    let bench = Bench::new(&format!("digraph {{ start -> {} -> exit }}", nodes.join(" -> ")), &[]);
    let counting = Arc::new(Counting::default());
    now(counting.append(bench.run_id, 0, &Batch::of(&bench.events()))).unwrap();
    let talker = Arc::new(Talker { of: 1, now: 1, found: Mutex::default() });
    let world = World {
        store: Arc::clone(&counting) as _,
        handler: Arc::clone(&talker) as _,
        ..bench.world()
    };
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true);
    runtime.build().unwrap().block_on(drive(bench.machine(), Input::Start, world)).unwrap();
    assert_eq!(talker.found.lock().unwrap().len(), STAGES);
    // What each stage said, and its end, once for every stage after it.
    let pairs = STAGES * (STAGES - 1) / 2;
    assert_eq!(counting.handed_out.load(Ordering::Relaxed), 2 * pairs);
}
