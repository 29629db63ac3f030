use fabro_events::{Note, PauseReason};
use fabro_store::{Inbox, Message};
use serde_json::json;

use super::test_store::TestStore;
use super::*;

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
        if let Ok((id, Message::Steer { text, .. })) = stage.messages.try_recv() {
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
    bench.drive_in(World { handler: Arc::clone(talker) as _, ..bench.world() }, first)
}

const LINE: &str = "digraph { start -> a -> b -> exit }";

#[test]
fn a_stage_finds_what_it_said_before_it_was_left() {
    let bench = Bench::new(LINE, &[]);
    let talker = Arc::new(Talker { of: 4, now: 3, found: Mutex::default() });
    let end = drive_with(&bench, &talker, Input::Start);
    assert_eq!(end, RunEnd::Paused(PauseReason::Budget));
    // What a running stage has spent counts already.
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

#[test]
fn an_earlier_stage_is_read_without_what_came_after_it() {
    const STAGES: usize = 40;
    let nodes: Vec<String> = (0..STAGES).map(|n| format!("n{n}")).collect();
    let bench = Bench::new(&format!("digraph {{ start -> {} -> exit }}", nodes.join(" -> ")), &[]);
    let counting = Arc::new(TestStore::default());
    now(counting.append(bench.run_id, 0, &Batch::of(&bench.events()))).unwrap();
    let talker = Arc::new(Talker { of: 1, now: 1, found: Mutex::default() });
    let world = World {
        store: Arc::clone(&counting) as _,
        handler: Arc::clone(&talker) as _,
        ..bench.world()
    };
    bench.drive_in(world, Input::Start);
    assert_eq!(talker.found.lock().unwrap().len(), STAGES);
    // What each stage said, and its end, once for every stage after it.
    let pairs = STAGES * (STAGES - 1) / 2;
    assert_eq!(counting.events_read.load(Ordering::Relaxed), 2 * pairs);
}

/// Fails its first attempt and keeps what that reports with; the second one tries to use it.
struct Late(Mutex<Vec<Reporter>>);

#[async_trait]
impl Handler for Late {
    async fn execute(&self, stage: Stage) -> StageEnd {
        let earlier = self.0.lock().unwrap().pop();
        let Some(earlier) = earlier else {
            self.0.lock().unwrap().push(stage.reporter);
            return Failure::new(FailureClass::TransientInfra, "busy").into();
        };
        let recorded = earlier.record(vec![answer("late", 1.0)], Vec::new(), Vec::new()).await;
        Outcome { notes: Some(format!("{recorded:?}")), ..Outcome::succeeded() }.into()
    }
}

#[test]
fn a_report_of_an_attempt_that_has_ended_is_refused() {
    let bench = Bench::new("digraph { start -> a -> exit; a [retry_policy=standard] }", &[]);
    let handler = Arc::new(Late(Mutex::default()));
    bench.drive_in(World { handler, ..bench.world() }, Input::Start);
    let events = bench.events();
    assert_eq!(texts(&events), "");
    let notes = events.iter().find_map(|event| match &event.entry.body {
        EventBody::StageCompleted(end) if end.attempts == 2 => end.outcome.notes.clone(),
        _ => None,
    });
    assert_eq!(notes.as_deref(), Some("Err(Ending)"));
}

#[test]
fn a_log_that_is_not_one_is_not_driven() {
    let bench = Bench::new(LINE, &[]);
    bench.drive_in(bench.world(), Input::Start);
    let events = bench.events();
    assert!(RunState::try_replay(bench.run_id, &events).is_ok());
    let start = events.iter().position(|event| event.entry.node_id.as_deref() == Some("a"));
    let mut damaged = events;
    damaged.remove(start.unwrap());
    let error = RunState::try_replay(bench.run_id, &damaged).unwrap_err();
    insta::assert_snapshot!(error, @"this is a bug in fabro: a stage that is not running ended; please report it");
}
