//! Whole runs on a scripted handler and a memory store: a workflow goes in, its story comes out.

mod assumed;
mod budget;
mod conversations;
mod failures;
mod fan_out;
mod fan_out_attempts;
mod fan_out_retries;
mod for_each;
mod in_memory;
mod machine;
mod reference;
mod results;
mod resume;
mod routing;
mod run_retry;
mod slow_store;
mod test_store;
mod timers;
mod unavailable;
mod unhandled;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use fabro_events::{Event, EventBody};
use fabro_graph::Workflow;
use fabro_store::{Batch, MemoryStore, RunLog};
use fabro_types::{Failure, FailureClass, NodeKind, Outcome, RunId, Usage};
use futures_util::FutureExt as _;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::*;

pub(super) const RUN: u128 = 7;

/// Answers for each node, in order, the last one repeated; a success when there are none.
#[derive(Default)]
pub(super) struct Script {
    ends: Mutex<BTreeMap<String, Vec<Reply>>>,
    pub(super) ran: Mutex<Vec<String>>,
    /// How many stages may run at once.
    pub(super) places: Option<Arc<Semaphore>>,
}

#[derive(Clone)]
pub(super) enum Reply {
    End(Box<Outcome>),
    /// Never ends by itself.
    Hang,
    /// Ends, and returns only when it is to end.
    Tidy,
    /// Takes eight seconds, in the last place that is free.
    Slow,
    Suspend,
}

#[async_trait]
impl Handler for Script {
    async fn execute(&self, stage: Stage) -> StageEnd {
        let node = stage.node().id.to_string();
        self.ran.lock().unwrap().push(format!("{node}@{}.{}", stage.at.visit, stage.at.attempt));
        let reply = {
            let mut ends = self.ends.lock().unwrap();
            match ends.get_mut(&node) {
                Some(replies) if replies.len() > 1 => replies.remove(0),
                Some(replies) => replies[0].clone(),
                None => Reply::End(Box::new(Outcome::succeeded())),
            }
        };
        match reply {
            Reply::End(outcome) => (*outcome).into(),
            Reply::Slow => {
                let free = self.places.as_ref().map(|places| places.available_permits());
                assert_eq!(free, Some(0));
                tokio::time::sleep(Duration::from_secs(8)).await;
                Outcome::succeeded().into()
            }
            Reply::Suspend => StageEnd::Suspended(fabro_events::PauseReason::Human),
            Reply::Tidy => {
                stage.cancel.cancelled().await;
                Finished { in_time: true, ..Outcome::succeeded().into() }.into()
            }
            Reply::Hang => {
                stage.cancel.cancelled().await;
                Failure::new(FailureClass::Canceled, "canceled").into()
            }
        }
    }

    fn places(&self, _: NodeKind) -> Option<Arc<Semaphore>> {
        self.places.clone()
    }
}

pub(super) fn ok() -> Reply {
    Reply::End(Box::new(Outcome::succeeded()))
}

pub(super) fn sets(key: &str, value: impl Into<serde_json::Value>) -> Reply {
    Reply::End(Box::new(Outcome::succeeded().with_update(key, value)))
}

pub(super) fn fails(class: FailureClass, message: &str) -> Reply {
    Reply::End(Box::new(Outcome::failed(Failure::new(class, message))))
}

pub(super) fn exits(code: i32) -> Reply {
    fails(FailureClass::Deterministic, &format!("exit code {code}"))
}

pub(super) fn wants(label: &str) -> Reply {
    let outcome = Outcome { preferred_label: Some(label.to_owned()), ..Outcome::succeeded() };
    Reply::End(Box::new(outcome))
}

pub(super) fn costs(usd: f64) -> Reply {
    let usage = Usage { cost_usd: usd, ..Usage::default() };
    Reply::End(Box::new(Outcome { usage: Some(usage), ..Outcome::succeeded() }))
}

pub(super) struct Bench {
    pub(super) plan: Arc<Plan>,
    pub(super) store: Arc<MemoryStore>,
    pub(super) script: Arc<Script>,
    pub(super) run_id: RunId,
}

/// The result of a call that never waits, as those of a store in memory.
pub(super) fn now<T>(call: impl Future<Output = T>) -> T {
    call.now_or_never().unwrap()
}

impl Bench {
    #[track_caller]
    pub(super) fn new(source: &str, replies: &[(&str, Vec<Reply>)]) -> Self {
        Self::begun(source, replies, NewRun::default())
    }

    #[track_caller]
    pub(super) fn begun(source: &str, replies: &[(&str, Vec<Reply>)], new: NewRun) -> Self {
        let workflow = Workflow::from_source("test", source).unwrap();
        assert_eq!(workflow.findings(), []);
        let plan = Arc::new(Plan::compile(workflow).unwrap());
        let ends = replies.iter().map(|(node, list)| ((*node).to_owned(), list.clone()));
        let script = Script { ends: Mutex::new(ends.collect()), ..Script::default() };
        let store = Arc::new(MemoryStore::default());
        let run_id = RunId::from_parts(1_700_000_000_000, RUN);
        let commit = begin(run_id, 0, &plan, NewRun { goal: "test it".into(), ..new });
        let batch = Batch { events: &commit.events, blobs: &commit.blobs, consumed: &[] };
        now(store.append(run_id, 0, &batch)).unwrap();
        Self { plan, store, script: Arc::new(script), run_id }
    }

    pub(super) fn events(&self) -> Vec<Event> {
        now(self.store.read(self.run_id, 0, usize::MAX)).unwrap()
    }

    pub(super) fn state(&self) -> RunState {
        RunState::replay(self.run_id, &self.events())
    }

    pub(super) fn machine(&self) -> Machine {
        Machine::new(Arc::clone(&self.plan), self.state())
    }

    pub(super) fn world(&self) -> World {
        let now = AtomicI64::new(1_000);
        World {
            store: Arc::clone(&self.store) as _,
            handler: Arc::clone(&self.script) as _,
            sink: Arc::new(|_: &Event| {}),
            clock: Arc::new(move || now.fetch_add(1, Ordering::Relaxed)),
            run_dir: "/nowhere".into(),
            stop: CancellationToken::new(),
        }
    }

    pub(super) fn drive(&self, first: Input) -> RunEnd {
        self.drive_in(self.world(), first)
    }

    /// Drives in a world of its own, with a paused clock.
    pub(super) fn drive_in(&self, world: World, first: Input) -> RunEnd {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(drive(self.machine(), first, world)).unwrap()
    }

    /// Runs to the end and tells the story.
    pub(super) fn story(&self) -> String {
        self.drive(Input::Start);
        story(&self.events())
    }
}

#[track_caller]
pub(super) fn run(source: &str, replies: &[(&str, Vec<Reply>)]) -> String {
    Bench::new(source, replies).story()
}

/// One line an event that matters.
pub(super) fn story(events: &[Event]) -> String {
    let mut text = String::new();
    for event in events {
        let entry = &event.entry;
        let node = entry.node_id.as_deref().unwrap_or_default();
        let visit = entry.visit.unwrap_or_default();
        let indent = "  ".repeat(entry.branch.as_deref().map_or(0, |b| b.matches('@').count()));
        let line = match &entry.body {
            EventBody::StageCompleted(end) | EventBody::StageFailed(end) => {
                let attempts =
                    if end.attempts > 1 { format!(" in {}", end.attempts) } else { String::new() };
                format!("{:03} {node}@{visit} {}{attempts}", end.rank, end.outcome.reads_as())
            }
            EventBody::StageRetrying { failure, .. } => {
                format!("{node}@{visit} retries: {failure}")
            }
            EventBody::EdgeSelected(choice) => {
                format!("  -> {} ({})", choice.to, choice.tier.as_str())
            }
            EventBody::LoopRestart { to } => format!("restart at {to}"),
            EventBody::ParallelStarted { branches, join, .. } => format!(
                "{node}@{visit} forks {}, joins at {}",
                branches.len(),
                join.as_deref().unwrap_or("nothing")
            ),
            EventBody::BranchCompleted { status, canceled, .. } => {
                let how = if *canceled { "canceled" } else { status.as_str() };
                format!("{} {how}", entry.branch.as_deref().unwrap_or_default())
            }
            EventBody::RunCompleted { status, unhandled, .. } => {
                let named = unhandled.iter().map(|stage| format!("; {stage}"));
                format!("run {status}{}", named.collect::<String>())
            }
            EventBody::RunFailed { failure, .. } => format!("run failed: {failure}"),
            EventBody::RunPaused { reason, gates, .. } => format!("paused: {reason:?} {gates:?}"),
            EventBody::RunResumed { .. } => "resumed".to_owned(),
            EventBody::RunCanceled { reason, .. } => format!("run canceled: {reason}"),
            _ => continue,
        };
        // Edges need no line of their own.
        if let EventBody::EdgeSelected(_) = entry.body {
            text.truncate(text.trim_end().len());
            let _ = writeln!(text, "{line}");
        } else {
            let _ = writeln!(text, "{indent}{line}");
        }
    }
    text
}
