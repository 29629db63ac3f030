use std::sync::Barrier;

use fabro_events::{
    CreatedRun, Entry, EventBody, ForkPoint, ParentStage, PauseReason, QuestionType,
};
use fabro_types::{Failure, FailureClass, RunStatus, Status, Usage};
use serde_json::Value;

use super::*;

/// Runs a check on each implementation.
#[track_caller]
fn each(check: impl Fn(&Blocking<dyn Store>)) {
    check(&Blocking(Arc::new(MemoryStore::default())));
    #[cfg(feature = "sqlite")]
    {
        let dir = tempfile::tempdir().unwrap();
        check(&Blocking(Arc::new(SqliteStore::open(&dir.path().join("state")).unwrap())));
    }
}

/// A store whose calls are waited for.
pub(crate) struct Blocking<S: ?Sized>(pub(crate) Arc<S>);

impl<S: ?Sized> std::ops::Deref for Blocking<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.0
    }
}

pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

impl<S: Store + ?Sized> Blocking<S> {
    pub(crate) fn append(
        &self,
        run: RunId,
        expected_seq: u64,
        batch: &Batch<'_>,
    ) -> Result<(), StoreError> {
        wait(self.0.append(run, expected_seq, batch))
    }

    pub(crate) fn read(
        &self,
        run: RunId,
        after_seq: u64,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        wait(self.0.read(run, after_seq, limit))
    }

    pub(crate) fn list(&self) -> Result<Vec<RunSummary>, StoreError> {
        wait(self.0.list())
    }

    pub(crate) fn find(&self, text: &str) -> Result<RunId, StoreError> {
        wait(self.0.find(text))
    }

    pub(crate) fn delete(&self, run: RunId) -> Result<(), StoreError> {
        wait(self.0.delete(run))
    }

    pub(crate) fn last_seq(&self, run: RunId) -> Result<u64, StoreError> {
        wait(self.0.last_seq(run))
    }

    pub(crate) fn check(&self, run: RunId) -> Result<Option<StoreWarning>, StoreError> {
        wait(self.0.check(run))
    }

    pub(crate) fn post(&self, run: RunId, message: &Message) -> Result<InboxId, StoreError> {
        wait(self.0.post(run, message))
    }

    pub(crate) fn pending(&self, run: RunId) -> Result<Vec<(InboxId, Message)>, StoreError> {
        wait(self.0.pending(run))
    }

    pub(crate) fn mark(&self) -> Result<ChangeMark, StoreError> {
        wait(self.0.mark())
    }
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
        parent: parent.map(|run_id| ParentStage { run_id, node_id: "sub".into(), visit: 1 }),
        dry_run: false,
    };
    event(run_id, 1, EventBody::RunCreated(created.into()))
}

pub(crate) fn asked(run_id: RunId, seq: u64, branch: Option<&str>) -> Event {
    let body = EventBody::GateAsked {
        question: "Go?".into(),
        question_type: QuestionType::default(),
        options: vec![],
        freeform: false,
        deadline_ms: None,
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
    }
}

#[test]
fn appended_events_read_back() {
    each(|store| {
        let run = run(1);
        let events =
            [created(run, "demo", None), message(run, 2, "a\u{0}\"é"), message(run, 3, "b")];
        store.append(run, 0, &Batch::of(&events[..2])).unwrap();
        store.append(run, 2, &Batch::of(&events[2..])).unwrap();
        assert_eq!(store.read(run, 0, 100).unwrap(), events);
        assert_eq!(store.read(run, 1, 1).unwrap(), events[1..2]);
        assert_eq!(store.read(run, 3, 100).unwrap(), []);
        assert_eq!(store.read(run, u64::MAX, usize::MAX).unwrap(), []);
        assert_eq!(store.read(self::run(2), 0, 100).unwrap(), []);
        assert_eq!((store.last_seq(run).unwrap(), store.last_seq(self::run(2)).unwrap()), (3, 0));
        assert_eq!(store.check(run).unwrap(), None);
    });
}

#[test]
fn batches_that_do_not_continue_the_log_are_refused() {
    each(|store| {
        let run = run(1);
        store.append(run, 0, &Batch::of(&[message(run, 1, "a")])).unwrap();
        let refused = |expected, events: &[Event]| {
            let error = store.append(run, expected, &Batch::of(events)).unwrap_err();
            assert_eq!(store.last_seq(run).unwrap(), 1);
            error.to_string()
        };
        insta::allow_duplicates! {
            insta::assert_snapshot!(refused(0, &[message(run, 1, "b")]), @"run 01HF7YAT010000000000000001 was written by another process: its log ends at 1, not at 0; see whether it is still being driven, then resume it");
            insta::assert_snapshot!(refused(5, &[message(run, 6, "b")]), @"run 01HF7YAT010000000000000001 was written by another process: its log ends at 1, not at 5; see whether it is still being driven, then resume it");
            insta::assert_snapshot!(refused(1, &[message(run, 2, "b"), message(run, 4, "c")]), @"event 01HF7YAT010000000000000001-4 does not follow 01HF7YAT010000000000000001-2 in one batch");
            insta::assert_snapshot!(refused(1, &[message(self::run(2), 2, "b")]), @"event 01HF7YAT020000000000000002-2 does not follow 01HF7YAT020000000000000002-1 in one batch");
        }
        store.append(run, 1, &Batch::default()).unwrap();
        store.append(self::run(2), 0, &Batch::default()).unwrap();
        assert_eq!(store.list().unwrap().len(), 1);
    });
}

#[test]
fn exactly_one_of_several_writers_wins() {
    each(|store| {
        let run = run(1);
        let start = Barrier::new(4);
        let won: usize = std::thread::scope(|scope| {
            let writers = ["a", "b", "c", "d"].map(|name| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    let wins = (0..25).filter(|seq| {
                        let event = message(run, seq + 1, name);
                        match store.append(run, *seq, &Batch::of(&[event])) {
                            Ok(()) => true,
                            Err(StoreError::Conflict { .. }) => false,
                            Err(error) => panic!("{error}"),
                        }
                    });
                    wins.count()
                })
            });
            writers.into_iter().map(|writer| writer.join().unwrap()).sum()
        });
        assert_eq!(won as u64, store.last_seq(run).unwrap());
        assert_eq!(store.read(run, 0, 100).unwrap().len(), won);
    });
}

#[test]
fn the_list_follows_the_log() {
    let failure = || Failure::new(FailureClass::Deterministic, "broken");
    let rewound = |from_run| ForkPoint {
        from_run,
        from_seq: 1,
        in_place: true,
        stage: None,
        set: fabro_types::ContextPatch::new(),
    };
    let ends = [
        EventBody::RunCompleted {
            status: Status::Succeeded,
            usage: Usage::default(),
            artifact_count: 0,
        },
        EventBody::RunFailed {
            failure: failure(),
            usage: Usage::default(),
            candidates: Vec::new(),
        },
        EventBody::RunCanceled { reason: "test".into() },
        EventBody::RunPaused { reason: PauseReason::Human, message: String::new(), gates: vec![] },
    ];
    each(|store| {
        let expect = ["succeeded", "failed", "canceled", "paused"];
        for (number, (body, status)) in (1..).zip(ends.clone().into_iter().zip(expect)) {
            let run = run(number);
            let batch = [created(run, "demo", None), event(run, 2, body)];
            store.append(run, 0, &Batch::of(&batch)).unwrap();
            let first = store.list().unwrap().remove(0);
            assert_eq!((first.id, first.status.as_str()), (run, status));
            assert_eq!((&*first.workflow, &*first.goal), ("demo", "goal of demo"));
            assert_eq!(first.started_at_ms, 10);
            assert_eq!(first.ended_at_ms, (status != "paused").then_some(20));
        }
        let run = run(1);
        let rewind = EventBody::CheckpointForked(rewound(run).into());
        store.append(run, 2, &Batch::of(&[event(run, 3, rewind)])).unwrap();
        let last = store.list().unwrap().pop().unwrap();
        assert!(matches!(last.status, RunStatus::Running | RunStatus::Interrupted));
        assert_eq!((last.started_at_ms, last.ended_at_ms), (10, None));
    });
}

#[test]
fn the_newest_run_is_the_one_that_started_last() {
    each(|store| {
        // Of runs that start at once another one may be recorded first.
        for (number, ts_ms) in [(1, 30), (2, 20), (3, 30), (4, 10)] {
            let run = run(number);
            let event = Event { ts_ms, ..created(run, "demo", None) };
            store.append(run, 0, &Batch::of(&[event])).unwrap();
        }
        let ids: Vec<_> = store.list().unwrap().iter().map(|run| run.id).collect();
        assert_eq!(ids, [3, 1, 2, 4].map(run));
        assert_eq!(store.find("latest").unwrap(), run(3));
    });
}

#[test]
fn a_text_means_one_run() {
    each(|store| {
        let found = |text: &str| match store.find(text) {
            Ok(run) => run.to_string(),
            Err(error) => error.to_string(),
        };
        insta::allow_duplicates! {
            insta::assert_snapshot!(found("latest"), @"there are no runs yet; start one with `fabro run`");
        }
        for number in [1, 2] {
            let run = run(number);
            store.append(run, 0, &Batch::of(&[created(run, "demo", None)])).unwrap();
        }
        let child = run(2).derive("sub@1");
        store.append(child, 0, &Batch::of(&[created(child, "child", Some(run(2)))])).unwrap();
        assert_eq!(found("latest"), run(2).to_string());
        assert_eq!(found("01HF7YAT01"), run(1).to_string());
        assert_eq!(found("01hf7yat02"), run(2).to_string(), "its sub-workflow begins so too");
        assert_eq!(found(&child.to_string()), child.to_string());
        insta::allow_duplicates! {
            insta::assert_snapshot!(found("01HF"), @"`01HF` may mean 01HF7YAT020000000000000002, 01HF7YAT010000000000000001; write more of the id");
            insta::assert_snapshot!(found("é"), @"there is no run `é`; `fabro ps` lists them");
            insta::assert_snapshot!(found(""), @"there is no run ``; `fabro ps` lists them");
        }
    });
}

#[test]
fn messages_wait_until_a_commit_consumes_them() {
    each(|store| {
        let run = run(1);
        let cancel = Message::Cancel { reason: "enough".into() };
        let steer = Message::Steer { text: "left".into(), node: None };
        assert!(matches!(store.post(run, &cancel), Err(StoreError::NotFound { .. })));
        store.append(run, 0, &Batch::of(&[message(run, 1, "a")])).unwrap();
        let first = store.post(run, &steer).unwrap();
        let second = store.post(run, &cancel).unwrap();
        let both = [(first, steer), (second, cancel)];
        assert_eq!(store.pending(run).unwrap(), both);
        assert_eq!(store.pending(self::run(2)).unwrap(), []);

        let events = [message(run, 2, "b")];
        let batch = Batch { events: &events, consumed: &[first], ..Batch::default() };
        store.append(run, 1, &batch).unwrap();
        assert_eq!(store.pending(run).unwrap(), both[1..]);
        let again = Batch { events: &[message(run, 3, "c")], ..batch };
        let refused = store.append(run, 2, &again);
        assert!(matches!(refused, Err(StoreError::NotPending { id, .. }) if id == first));
        assert_eq!(store.last_seq(run).unwrap(), 2);
        let alone = Batch { consumed: &[second], ..Batch::default() };
        store.append(run, 2, &alone).unwrap();
        assert_eq!(store.pending(run).unwrap(), []);
    });
}

#[test]
fn a_gate_takes_one_answer() {
    each(|store| {
        let run = run(1);
        let refused = |answer: &Message| {
            matches!(store.post(run, answer), Err(StoreError::AlreadyAnswered { visit: 1, .. }))
        };
        store.append(run, 0, &Batch::of(&[asked(run, 1, None)])).unwrap();
        let first = store.post(run, &answer(None, "A")).unwrap();
        assert!(refused(&answer(None, "B")));
        store.post(run, &answer(Some("checks@1/lint"), "B")).unwrap();

        // Asked again after a crash: the answer that waits is still the answer.
        store.append(run, 1, &Batch::of(&[asked(run, 2, None)])).unwrap();
        assert!(refused(&answer(None, "B")));
        let consumed = Batch { consumed: &[first], ..Batch::default() };
        store.append(run, 2, &consumed).unwrap();
        assert!(refused(&answer(None, "B")), "it stays answered after the answer is taken");

        // Asked again after that: a new question.
        store.append(run, 2, &Batch::of(&[asked(run, 3, None)])).unwrap();
        let second = store.post(run, &answer(None, "C")).unwrap();
        assert!(refused(&answer(None, "D")));
        assert!(refused(&answer(Some("checks@1/lint"), "B")));

        // A text that the gate does not take is consumed and the gate asked again, in one commit.
        let events = [asked(run, 4, None)];
        let batch = Batch { events: &events, consumed: &[second], ..Batch::default() };
        store.append(run, 3, &batch).unwrap();
        store.post(run, &answer(None, "E")).unwrap();
    });
}

#[test]
fn a_rewind_drops_answers() {
    each(|store| {
        let run = run(1);
        store.append(run, 0, &Batch::of(&[asked(run, 1, None)])).unwrap();
        let steer = Message::Steer { text: "left".into(), node: None };
        store.post(run, &answer(None, "A")).unwrap();
        let kept = store.post(run, &steer).unwrap();
        let point = ForkPoint {
            from_run: run,
            from_seq: 0,
            in_place: true,
            stage: None,
            set: fabro_types::ContextPatch::new(),
        };
        let rewind = event(run, 2, EventBody::CheckpointForked(point.into()));
        store.append(run, 1, &Batch::of(&[rewind])).unwrap();
        assert_eq!(store.pending(run).unwrap(), [(kept, steer)]);
        store.post(run, &answer(None, "B")).unwrap();
    });
}

#[test]
fn a_deleted_run_takes_its_sub_workflows_along() {
    each(|store| {
        let parent = run(1);
        let other = run(2);
        let child = parent.derive("sub@1");
        for (id, above) in [(parent, None), (child, Some(parent)), (other, None)] {
            store.append(id, 0, &Batch::of(&[created(id, "demo", above)])).unwrap();
            store.post(id, &answer(None, "A")).unwrap();
        }
        store.delete(parent).unwrap();
        let left: Vec<_> = store.list().unwrap().into_iter().map(|run| run.id).collect();
        assert_eq!(left, [other]);
        assert_eq!((store.last_seq(parent).unwrap(), store.last_seq(child).unwrap()), (0, 0));
        assert_eq!(store.pending(parent).unwrap(), []);
        assert_eq!(store.pending(other).unwrap().len(), 1);
        assert!(matches!(store.delete(parent), Err(StoreError::NotFound { .. })));
        // The id is free again, and nothing of before is left to it.
        store.append(parent, 0, &Batch::of(&[created(parent, "demo", None)])).unwrap();
        assert_eq!(store.pending(parent).unwrap(), []);
        store.post(parent, &answer(None, "A")).unwrap();
    });
}

#[test]
fn families_are_found_from_both_ends() {
    each(|store| {
        let parent = run(1);
        let other = run(2);
        let child = parent.derive("sub@1");
        let grandchild = child.derive("sub@1");
        let runs =
            [(parent, None), (other, None), (child, Some(parent)), (grandchild, Some(child))];
        for (id, above) in runs {
            store.append(id, 0, &Batch::of(&[created(id, "demo", above)])).unwrap();
        }
        assert_eq!(wait(store.family(parent)).unwrap(), [parent, child, grandchild]);
        assert_eq!(wait(store.family(child)).unwrap(), [child, grandchild]);
        assert_eq!(wait(store.family(other)).unwrap(), [other]);
        for (id, root) in [(grandchild, parent), (parent, parent), (other, other), (run(9), run(9))]
        {
            assert_eq!(wait(store.root(id)).unwrap(), root);
        }
    });
}

#[test]
fn a_mark_changes_with_every_commit() {
    each(|store| {
        let run = run(1);
        let mut marks = vec![store.mark().unwrap()];
        assert_eq!(store.mark().unwrap(), marks[0]);
        store.append(run, 0, &Batch::of(&[message(run, 1, "a")])).unwrap();
        marks.push(store.mark().unwrap());
        store.post(run, &answer(None, "A")).unwrap();
        marks.push(store.mark().unwrap());
        store.read(run, 0, 9).unwrap();
        assert_eq!(store.mark().unwrap(), marks[2]);
        assert!(marks[0] != marks[1] && marks[1] != marks[2]);
    });
}

#[test]
fn blobs_of_a_batch_are_there_with_it() {
    each(|store| {
        let run = run(1);
        for (size, seq) in [(2, 0), (65_535, 1), (65_536, 2), (300_000, 3)] {
            let bytes: Arc<[u8]> =
                Value::from("x".repeat(size - 2)).to_string().into_bytes().into();
            let blob = BlobRef::of(&bytes);
            let events = [message(run, seq + 1, &blob.to_string())];
            let blobs = [(blob, Arc::clone(&bytes))];
            let batch = Batch { events: &events, blobs: &blobs, ..Batch::default() };
            store.append(run, seq, &batch).unwrap();
            assert_eq!(store.get(&blob).unwrap(), *bytes);
            assert_eq!(store.len(&blob).unwrap(), size as u64);
            let mut copy = Vec::new();
            assert_eq!(store.copy_to(&blob, &mut copy).unwrap(), size as u64);
            assert_eq!(copy, *bytes);
            assert_eq!(store.put(&bytes).unwrap(), blob);
            let text = "x".repeat(size - 2) + "\n";
            assert_eq!(store.put_json_string(&mut text.as_bytes()).unwrap(), blob);
        }
        let missing = store.get(&BlobRef::of(b"?"));
        assert!(matches!(missing, Err(fabro_blob::BlobError::Missing { .. })));
    });
}
