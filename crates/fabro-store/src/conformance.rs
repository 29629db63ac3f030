//! What every store has to do. An implementation calls [`check`] in its tests.

use std::sync::Arc;
use std::time::Duration;

use fabro_events::{
    CreatedRun, Entry, Event, EventBody, ForkPoint, ParentStage, PauseReason, QuestionType, Spent,
};
use fabro_types::{BlobRef, Failure, FailureClass, RunId, RunStatus, Status, Usage};
use serde_json::Value;

use crate::{Batch, LeaseOwner, Message, RunAt, RunStore, StoreError};

type Checked = Result<(), StoreError>;

const TTL: Duration = Duration::from_mins(1);

macro_rules! check_each {
    ($make:ident: $($case:ident),* $(,)?) => {$(
        let store = $make().await;
        if let Err(error) = $case(&store).await {
            panic!("{}: {error}", stringify!($case));
        }
    )*};
}

/// Checks an implementation: its log, list, inbox, marks, blobs and leases. `make` returns an empty
/// store each time.
///
/// # Panics
///
/// The store does not do what its traits say.
pub async fn check<S: RunStore>(make: impl AsyncFn() -> S) {
    check_each! { make:
        appended_events_read_back,
        batches_that_do_not_continue_the_log_are_refused,
        exactly_one_of_two_writers_wins,
        the_list_follows_the_log,
        the_newest_run_is_the_one_recorded_last,
        a_text_means_one_run,
        messages_wait_until_a_commit_consumes_them,
        a_gate_takes_one_answer,
        a_message_may_name_the_end_of_the_log,
        a_rewind_drops_answers,
        a_deleted_run_takes_its_sub_workflows_along,
        families_are_found_from_both_ends,
        a_mark_changes_with_every_commit,
        blobs_of_a_batch_are_there_with_it,
        one_process_has_the_lease,
        a_lease_is_taken_over_when_it_expires_or_its_owner_has_ended,
        a_commit_is_refused_without_the_lease,
        only_driven_runs_are_running,
    }
}

async fn appended_events_read_back(store: &dyn RunStore) -> Checked {
    let run = run(1);
    let events = [created(run, "demo", None), message(run, 2, "a\u{0}\"é"), message(run, 3, "b")];
    store.append(run, 0, &Batch::of(&events[..2])).await?;
    store.append(run, 2, &Batch::of(&events[2..])).await?;
    assert_eq!(store.read(run, 0, 100).await?, events);
    assert_eq!(store.read(run, 1, 1).await?, events[1..2]);
    assert_eq!(store.read(run, 3, 100).await?, []);
    assert_eq!(store.read(run, u64::MAX, usize::MAX).await?, []);
    assert_eq!(store.read(self::run(2), 0, 100).await?, []);
    assert_eq!((store.last_seq(run).await?, store.last_seq(self::run(2)).await?), (3, 0));
    assert_eq!(store.check(run).await?, None);
    Ok(())
}

async fn batches_that_do_not_continue_the_log_are_refused(store: &dyn RunStore) -> Checked {
    let run = run(1);
    let other = self::run(2);
    store.append(run, 0, &Batch::of(&[message(run, 1, "a")])).await?;
    let wrong = [
        (0, vec![message(run, 1, "b")]),
        (5, vec![message(run, 6, "b")]),
        (1, vec![message(run, 2, "b"), message(run, 4, "c")]),
        (1, vec![message(other, 2, "b")]),
    ];
    for (expected, events) in wrong {
        let refused = store.append(run, expected, &Batch::of(&events)).await;
        let known = matches!(
            refused,
            Err(StoreError::Conflict { found: 1, .. } | StoreError::OutOfOrder { .. })
        );
        assert!(known, "{refused:?}");
        assert_eq!(store.last_seq(run).await?, 1);
    }
    store.append(run, 1, &Batch::default()).await?;
    store.append(other, 0, &Batch::default()).await?;
    assert_eq!(store.list().await?.len(), 1);
    Ok(())
}

async fn exactly_one_of_two_writers_wins(store: &dyn RunStore) -> Checked {
    let run = run(1);
    let write = async |name: &str| {
        let mut won = 0;
        for seq in 0..25 {
            let event = message(run, seq + 1, name);
            match store.append(run, seq, &Batch::of(&[event])).await {
                Ok(()) => won += 1,
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok::<u64, StoreError>(won)
    };
    let (one, two) = tokio::join!(write("one"), write("two"));
    assert_eq!(one? + two?, store.last_seq(run).await?);
    assert_eq!(store.read(run, 0, 100).await?.len() as u64, store.last_seq(run).await?);
    Ok(())
}

async fn the_list_follows_the_log(store: &dyn RunStore) -> Checked {
    let failure = Failure::new(FailureClass::Deterministic, "broken");
    let ends = [
        EventBody::RunCompleted {
            status: Status::Succeeded,
            usage: Usage::default(),
            artifact_count: 0,
            unhandled: Vec::new(),
            overridden: Vec::new(),
        },
        EventBody::RunFailed {
            failure,
            cause: None,
            usage: Usage::default(),
            candidates: Vec::new(),
            overridden: Vec::new(),
        },
        EventBody::RunCanceled { reason: "test".into(), by_parent: None },
        EventBody::RunPaused {
            reason: PauseReason::Human,
            message: String::new(),
            gates: vec![],
            unavailable: vec![],
            failed_turns: [].into(),
            used: [].into(),
            sub_workflows: Spent::default(),
        },
    ];
    let expect = ["succeeded", "failed", "canceled", "paused"];
    for (number, (body, status)) in (1..).zip(ends.into_iter().zip(expect)) {
        let run = run(number);
        let batch = [created(run, "demo", None), event(run, 2, body)];
        store.append(run, 0, &Batch::of(&batch)).await?;
        let first = store.list().await?.remove(0);
        assert_eq!((first.id, first.status.as_str()), (run, status));
        assert_eq!((&*first.workflow, &*first.goal), ("demo", "goal of demo"));
        assert_eq!(first.started_at_ms, 10);
        assert_eq!(first.ended_at_ms, (status != "paused").then_some(20));
    }
    let run = run(1);
    store.append(run, 2, &Batch::of(&[event(run, 3, rewind(run, 1))])).await?;
    let runs = store.list().await?;
    let last = runs.last().map(|run| (run.status, run.started_at_ms, run.ended_at_ms));
    assert_eq!(last, Some((RunStatus::Interrupted, 10, None)));
    Ok(())
}

async fn the_newest_run_is_the_one_recorded_last(store: &dyn RunStore) -> Checked {
    // For any time that their clock shows: it may have been set back.
    for (number, ts_ms) in [(1, 30), (2, 20), (3, 30), (4, 10)] {
        let run = run(number);
        let event = Event { ts_ms, ..created(run, "demo", None) };
        store.append(run, 0, &Batch::of(&[event])).await?;
    }
    let ids: Vec<_> = store.list().await?.iter().map(|run| run.id).collect();
    assert_eq!(ids, [4, 3, 2, 1].map(run));
    assert_eq!(store.find("latest").await?, run(4));
    store.delete(run(4)).await?;
    assert_eq!(store.find("latest").await?, run(3));
    Ok(())
}

async fn a_text_means_one_run(store: &dyn RunStore) -> Checked {
    assert!(matches!(store.find("latest").await, Err(StoreError::NoRuns)));
    for number in [1, 2] {
        let run = run(number);
        store.append(run, 0, &Batch::of(&[created(run, "demo", None)])).await?;
    }
    let child = run(2).derive("sub@1");
    store.append(child, 0, &Batch::of(&[created(child, "child", Some(run(2)))])).await?;
    let child_id = child.to_string();
    let texts = [
        ("latest", run(2)),
        ("01HF7YAT01", run(1)),
        // Its sub-workflow begins so too.
        ("01hf7yat02", run(2)),
        (&*child_id, child),
    ];
    for (text, expect) in texts {
        assert_eq!(store.find(text).await?, expect, "{text}");
    }
    match store.find("01HF").await {
        Err(StoreError::Ambiguous { candidates, .. }) => assert_eq!(candidates, [run(2), run(1)]),
        found => panic!("{found:?}"),
    }
    for text in ["é", ""] {
        assert!(matches!(store.find(text).await, Err(StoreError::NotFound { .. })));
    }
    Ok(())
}

async fn messages_wait_until_a_commit_consumes_them(store: &dyn RunStore) -> Checked {
    let run = run(1);
    let cancel = Message::Cancel { reason: "enough".into() };
    let steer = Message::Steer { text: "left".into(), node: None };
    assert!(matches!(store.post(run, &cancel).await, Err(StoreError::NotFound { .. })));
    store.append(run, 0, &Batch::of(&[message(run, 1, "a")])).await?;
    let first = store.post(run, &steer).await?;
    let second = store.post(run, &cancel).await?;
    let both = [(first, steer), (second, cancel)];
    assert_eq!(store.pending(run).await?, both);
    assert_eq!(store.pending(self::run(2)).await?, []);

    let events = [message(run, 2, "b")];
    let batch = Batch { events: &events, consumed: &[first], ..Batch::default() };
    store.append(run, 1, &batch).await?;
    assert_eq!(store.pending(run).await?, both[1..]);
    let again = Batch { events: &[message(run, 3, "c")], ..batch };
    let refused = store.append(run, 2, &again).await;
    assert!(matches!(refused, Err(StoreError::NotPending { id, .. }) if id == first));
    assert_eq!(store.last_seq(run).await?, 2);
    let alone = Batch { consumed: &[second], ..Batch::default() };
    store.append(run, 2, &alone).await?;
    assert_eq!(store.pending(run).await?, []);
    Ok(())
}

async fn a_gate_takes_one_answer(store: &dyn RunStore) -> Checked {
    let run = run(1);
    let refused = async |answer: &Message| {
        matches!(store.post(run, answer).await, Err(StoreError::AlreadyAnswered { visit: 1, .. }))
    };
    store.append(run, 0, &Batch::of(&[asked(run, 1, None)])).await?;
    let first = store.post(run, &answer(None, "A")).await?;
    assert!(refused(&answer(None, "B")).await);
    store.post(run, &answer(Some("checks@1/lint"), "B")).await?;

    // Asked again after a crash: the answer that waits is still the answer.
    store.append(run, 1, &Batch::of(&[asked(run, 2, None)])).await?;
    assert!(refused(&answer(None, "B")).await);
    let consumed = Batch { consumed: &[first], ..Batch::default() };
    store.append(run, 2, &consumed).await?;
    assert!(refused(&answer(None, "B")).await, "it stays answered after the answer is taken");

    // Asked again after that: a new question.
    store.append(run, 2, &Batch::of(&[asked(run, 3, None)])).await?;
    let second = store.post(run, &answer(None, "C")).await?;
    assert!(refused(&answer(None, "D")).await);
    assert!(refused(&answer(Some("checks@1/lint"), "B")).await);

    // A text that the gate does not take is consumed and the gate asked again, in one commit.
    let events = [asked(run, 4, None)];
    let batch = Batch { events: &events, consumed: &[second], ..Batch::default() };
    store.append(run, 3, &batch).await?;
    store.post(run, &answer(None, "E")).await?;
    Ok(())
}

async fn a_message_may_name_the_end_of_the_log(store: &dyn RunStore) -> Checked {
    let run = run(1);
    let child = run.derive("sub@1");
    store.append(run, 0, &Batch::of(&[asked(run, 1, None)])).await?;
    store.append(child, 0, &Batch::of(&[created(child, "sub", Some(run))])).await?;
    let steer = Message::Steer { text: "left".into(), node: None };
    let at = |seq| Some(RunAt { run, seq });
    let first = store.post_at(run, &answer(None, "A"), at(1)).await?;
    // The sub-workflow has an inbox of its own; what was seen is the log of the run above.
    store.post_at(child, &steer, at(1)).await?;
    let events = [message(run, 2, "b")];
    let batch = Batch { events: &events, consumed: &[first], ..Batch::default() };
    store.append(run, 1, &batch).await?;
    for seq in [0, 1, 3] {
        let refused = store.post_at(run, &steer, at(seq)).await;
        let is_refused = matches!(
            refused,
            Err(StoreError::Changed { expected, found: 2, .. }) if expected == seq
        );
        assert!(is_refused, "{seq}: {refused:?}");
    }
    assert_eq!(store.pending(run).await?, []);
    // What was seen last is refused for what it is, not for when it was seen.
    let second = store.post_at(run, &answer(None, "B"), at(2)).await;
    assert!(matches!(second, Err(StoreError::AlreadyAnswered { .. })), "{second:?}");
    Ok(())
}

async fn a_rewind_drops_answers(store: &dyn RunStore) -> Checked {
    let run = run(1);
    store.append(run, 0, &Batch::of(&[asked(run, 1, None)])).await?;
    let steer = Message::Steer { text: "left".into(), node: None };
    store.post(run, &answer(None, "A")).await?;
    let kept = store.post(run, &steer).await?;
    let rewind = event(run, 2, rewind(run, 0));
    store.append(run, 1, &Batch::of(&[rewind])).await?;
    assert_eq!(store.pending(run).await?, [(kept, steer)]);
    store.post(run, &answer(None, "B")).await?;
    Ok(())
}

async fn a_deleted_run_takes_its_sub_workflows_along(store: &dyn RunStore) -> Checked {
    let parent = run(1);
    let other = run(2);
    let child = parent.derive("sub@1");
    for (id, above) in [(parent, None), (child, Some(parent)), (other, None)] {
        store.append(id, 0, &Batch::of(&[created(id, "demo", above)])).await?;
        store.post(id, &answer(None, "A")).await?;
    }
    store.delete(parent).await?;
    let left: Vec<_> = store.list().await?.into_iter().map(|run| run.id).collect();
    assert_eq!(left, [other]);
    assert_eq!((store.last_seq(parent).await?, store.last_seq(child).await?), (0, 0));
    assert_eq!(store.pending(parent).await?, []);
    assert_eq!(store.pending(other).await?.len(), 1);
    assert!(matches!(store.delete(parent).await, Err(StoreError::NotFound { .. })));
    // The id is free again, and nothing of before is left to it.
    store.append(parent, 0, &Batch::of(&[created(parent, "demo", None)])).await?;
    assert_eq!(store.pending(parent).await?, []);
    store.post(parent, &answer(None, "A")).await?;
    Ok(())
}

async fn families_are_found_from_both_ends(store: &dyn RunStore) -> Checked {
    let parent = run(1);
    let other = run(2);
    let child = parent.derive("sub@1");
    let grandchild = child.derive("sub@1");
    let runs = [(parent, None), (other, None), (child, Some(parent)), (grandchild, Some(child))];
    for (id, above) in runs {
        store.append(id, 0, &Batch::of(&[created(id, "demo", above)])).await?;
    }
    assert_eq!(store.family(parent).await?, [parent, child, grandchild]);
    assert_eq!(store.family(child).await?, [child, grandchild]);
    assert_eq!(store.family(other).await?, [other]);
    for (id, root) in [(grandchild, parent), (parent, parent), (other, other), (run(9), run(9))] {
        assert_eq!(store.root(id).await?, root);
    }
    Ok(())
}

async fn a_mark_changes_with_every_commit(store: &dyn RunStore) -> Checked {
    let run = run(1);
    let mut marks = vec![store.mark().await?];
    assert_eq!(store.mark().await?, marks[0]);
    store.append(run, 0, &Batch::of(&[message(run, 1, "a")])).await?;
    marks.push(store.mark().await?);
    store.post(run, &answer(None, "A")).await?;
    marks.push(store.mark().await?);
    store.read(run, 0, 9).await?;
    assert_eq!(store.mark().await?, marks[2]);
    assert!(marks[0] != marks[1] && marks[1] != marks[2]);
    Ok(())
}

async fn blobs_of_a_batch_are_there_with_it(store: &dyn RunStore) -> Checked {
    let run = run(1);
    for (size, seq) in [(2, 0), (65_535, 1), (65_536, 2), (300_000, 3)] {
        let bytes: Arc<[u8]> = Value::from("x".repeat(size - 2)).to_string().into_bytes().into();
        let blob = BlobRef::of(&bytes);
        let events = [message(run, seq + 1, &blob.to_string())];
        let blobs = [(blob, Arc::clone(&bytes))];
        let batch = Batch { events: &events, blobs: &blobs, ..Batch::default() };
        store.append(run, seq, &batch).await?;
        assert_eq!(store.get(&blob)?, *bytes);
        assert_eq!(store.len(&blob)?, size as u64);
        let mut copy = Vec::new();
        assert_eq!(store.copy_to(&blob, &mut copy)?, size as u64);
        assert_eq!(copy, *bytes);
        assert_eq!(store.put(&bytes)?, blob);
        let text = "x".repeat(size - 2) + "\n";
        assert_eq!(store.put_json_string(&mut text.as_bytes())?, blob);
    }
    let missing = store.get(&BlobRef::of(b"?"));
    assert!(matches!(missing, Err(fabro_blob::BlobError::Missing { .. })));
    Ok(())
}

async fn one_process_has_the_lease(store: &dyn RunStore) -> Checked {
    let run = run(1);
    let this = LeaseOwner::this_process();
    assert_eq!(store.driver(run).await?, None);
    let lease = store.acquire(run, &this, TTL).await?;
    assert_eq!(store.driver(run).await?.as_ref(), Some(&this));
    let refused = store.acquire(run, &elsewhere(), TTL).await;
    assert!(
        matches!(refused, Err(StoreError::Driven { pid: Some(pid), .. }) if pid == this.pid),
        "{refused:?}"
    );
    // Another run has a lease of its own.
    store.acquire(self::run(2), &elsewhere(), TTL).await?;
    store.renew(lease, TTL).await?;
    store.release(lease).await?;
    assert_eq!(store.driver(run).await?, None);
    assert!(matches!(store.renew(lease, TTL).await, Err(StoreError::LeaseLost { .. })));
    let next = store.acquire(run, &elsewhere(), TTL).await?;
    assert!(next.epoch > lease.epoch);
    // What the earlier owner does has no effect any more.
    store.release(lease).await?;
    assert_eq!(store.driver(run).await?, Some(elsewhere()));
    Ok(())
}

async fn a_lease_is_taken_over_when_it_expires_or_its_owner_has_ended(
    store: &dyn RunStore,
) -> Checked {
    let this = LeaseOwner::this_process();
    let ended = LeaseOwner { started: this.started.wrapping_sub(1), ..this.clone() };
    let expired = store.acquire(run(1), &elsewhere(), Duration::ZERO).await?;
    store.renew(expired, Duration::ZERO).await?;
    assert_eq!(store.driver(run(1)).await?, None);
    store.acquire(run(1), &this, TTL).await?;
    assert!(matches!(store.renew(expired, TTL).await, Err(StoreError::LeaseLost { .. })));
    // Where the system does not tell, the owner may still be running.
    if !this.host.is_empty() {
        store.acquire(run(2), &ended, TTL).await?;
        assert_eq!(store.driver(run(2)).await?, None);
        store.acquire(run(2), &this, TTL).await?;
    }
    Ok(())
}

async fn a_commit_is_refused_without_the_lease(store: &dyn RunStore) -> Checked {
    let parent = run(1);
    let child = parent.derive("sub@1");
    let lost = |result: Result<(), StoreError>| matches!(result, Err(StoreError::LeaseLost { .. }));
    let earlier = store.acquire(parent, &elsewhere(), Duration::ZERO).await?;
    let first = [created(parent, "demo", None)];
    // It has expired, and no other process has it.
    store.append_leased(earlier, parent, 0, &Batch::of(&first)).await?;
    let lease = store.acquire(parent, &LeaseOwner::this_process(), TTL).await?;
    let second = [message(parent, 2, "a")];
    let second = Batch::of(&second);
    assert!(lost(store.append_leased(earlier, parent, 1, &second).await));
    let refused = store.append(parent, 1, &second).await;
    assert!(matches!(refused, Err(StoreError::Driven { .. })), "{refused:?}");
    assert_eq!(store.last_seq(parent).await?, 1);
    store.append_leased(lease, parent, 1, &second).await?;
    // The lease covers sub-workflows.
    let first = [created(child, "sub", Some(parent))];
    assert!(lost(store.append_leased(earlier, child, 0, &Batch::of(&first)).await));
    store.append_leased(lease, child, 0, &Batch::of(&first)).await?;
    store.release(lease).await?;
    let third = [message(parent, 3, "b")];
    assert!(lost(store.append_leased(lease, parent, 2, &Batch::of(&third)).await));
    store.append(parent, 2, &Batch::of(&third)).await?;
    Ok(())
}

async fn only_driven_runs_are_running(store: &dyn RunStore) -> Checked {
    let parent = run(1);
    let child = parent.derive("sub@1");
    store.append(parent, 0, &Batch::of(&[created(parent, "demo", None)])).await?;
    store.append(child, 0, &Batch::of(&[created(child, "sub", Some(parent))])).await?;
    let statuses = async || {
        let runs = store.list().await?.into_iter();
        Ok::<Vec<RunStatus>, StoreError>(runs.map(|run| run.status).collect())
    };
    assert_eq!(statuses().await?, [RunStatus::Interrupted; 2]);
    let lease = store.acquire(parent, &LeaseOwner::this_process(), TTL).await?;
    assert_eq!(statuses().await?, [RunStatus::Running; 2]);
    for run in [parent, child] {
        assert!(matches!(store.delete(run).await, Err(StoreError::Driven { .. })));
    }
    store.release(lease).await?;
    store.delete(parent).await?;
    assert_eq!(store.list().await?, []);
    let late = store.append_leased(lease, parent, 0, &Batch::of(&[message(parent, 1, "a")])).await;
    assert!(matches!(late, Err(StoreError::LeaseLost { .. })));
    Ok(())
}

pub(crate) fn run(number: u128) -> RunId {
    RunId::from_parts(1_700_000_000_000 + number as u64, number)
}

pub(crate) fn event(run_id: RunId, seq: u64, body: EventBody) -> Event {
    Event { run_id, seq, ts_ms: seq.cast_signed() * 10, entry: Entry::new(body) }
}

pub(crate) fn message(run_id: RunId, seq: u64, text: &str) -> Event {
    let role = "assistant".into();
    let text = text.into();
    let body = EventBody::AgentMessage {
        role,
        text,
        message: None,
        usage: None,
        given: None,
        purpose: None,
    };
    event(run_id, seq, body)
}

pub(crate) fn created(run_id: RunId, workflow: &str, parent: Option<RunId>) -> Event {
    let created = CreatedRun {
        workflow: workflow.into(),
        goal: format!("goal of {workflow}"),
        inputs: serde_json::Map::new(),
        seed: 1,
        work_dir: "/w".into(),
        bundle: BlobRef::of(b"bundle"),
        context: fabro_types::ContextPatch::new(),
        max_cost: None,
        parent: parent.map(|run_id| ParentStage {
            run_id,
            node_id: "sub".into(),
            visit: 1,
            branch: None,
            attempt: 1,
        }),
        dry_run: false,
        worktree: None,
        rules: 0,
    };
    event(run_id, 1, EventBody::RunCreated(created.into()))
}

pub(crate) fn asked(run_id: RunId, seq: u64, branch: Option<&str>) -> Event {
    let body = EventBody::GateAsked {
        question: "Go?".into(),
        question_type: QuestionType::default(),
        options: vec![],
        freeform: false,
        text_option: None,
        default_choice: None,
        deadline_ms: None,
        item: None,
        show: Vec::new(),
    };
    let mut event = event(run_id, seq, body);
    event.entry.node_id = Some("gate".into());
    event.entry.visit = Some(1);
    event.entry.branch = branch.map(Arc::from);
    event
}

pub(crate) fn answer(branch: Option<&str>, choice: &str) -> Message {
    Message::Answer {
        node: "gate".into(),
        visit: 1,
        branch: branch.map(str::to_owned),
        choice: choice.into(),
        source: "test".into(),
        by: None,
    }
}

fn rewind(from_run: RunId, from_seq: u64) -> EventBody {
    let point = ForkPoint {
        from_run,
        from_seq,
        in_place: true,
        stage: None,
        set: fabro_types::ContextPatch::new(),
        retry: None,
    };
    EventBody::CheckpointForked(point.into())
}

fn elsewhere() -> LeaseOwner {
    LeaseOwner { host: "elsewhere".into(), pid: 7, started: 1 }
}
