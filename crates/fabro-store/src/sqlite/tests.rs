use std::fs;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use fabro_events::EventBody;
use proptest::prelude::*;
use rusqlite::Connection;

use super::*;
use crate::conformance::{answer, asked, created, event, message, run};
use crate::tests::{Blocking, wait};
use crate::{Batch, MemoryStore, RunStore, StoreWarning};

pub(super) struct Dir(tempfile::TempDir);

impl Dir {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(super) fn path(&self) -> PathBuf {
        self.0.path().join("state")
    }

    pub(super) fn db(&self) -> PathBuf {
        self.path().join("fabro.db")
    }

    pub(super) fn open(&self) -> Blocking<SqliteStore> {
        Blocking(Arc::new(SqliteStore::open(&self.path()).unwrap()))
    }

    /// Changes the database behind the store's back.
    pub(super) fn sql(&self, sql: &str) {
        Connection::open(self.db()).unwrap().execute_batch(sql).unwrap();
    }

    pub(super) fn refused(&self) -> String {
        let message = SqliteStore::open(&self.path()).unwrap_err().to_string();
        message.replace(&*self.0.path().canonicalize().unwrap().to_string_lossy(), "")
    }
}

pub(super) fn fill(store: &Blocking<SqliteStore>, run: RunId, seqs: std::ops::RangeInclusive<u64>) {
    let before = seqs.start() - 1;
    let events: Vec<_> = seqs.map(|seq| message(run, seq, "text")).collect();
    store.append(run, before, &Batch::of(&events)).unwrap();
}

/// Takes from a store what format 3 added.
pub(super) const TO_FORMAT_2: &str = "
    ALTER TABLE events DROP COLUMN hash;
    ALTER TABLE runs DROP COLUMN unhashed;
    ALTER TABLE runs DROP COLUMN sum;
    ALTER TABLE inbox DROP COLUMN sum;
    PRAGMA user_version = 2;";

#[test]
fn what_root_records_for_another_user_is_that_users() {
    use std::os::unix::fs::{MetadataExt as _, chown};

    let dir = Dir::new();
    let store = dir.open();
    fill(&store, run(1), 1..=2);
    let heads = dir.path().join("heads");
    // Only root may give files away.
    if chown(dir.path(), Some(4321), Some(4322)).is_err() {
        return;
    }
    fill(&store, run(2), 1..=2);
    store.post(run(2), &answer(None, "yes")).unwrap();
    let owner = |name: String| {
        let found = fs::metadata(heads.join(name)).unwrap();
        (found.uid(), found.gid(), found.mode() & 0o777)
    };
    assert_eq!(owner(run(2).to_string()), (4321, 4322, 0o600));
    assert_eq!(owner(format!("{}.inbox", run(2))), (4321, 4322, 0o600));
    let before = owner(run(1).to_string());
    fill(&store, run(1), 3..=3);
    assert_eq!(owner(run(1).to_string()), before, "one that was there stays as it is");
    fs::remove_dir_all(&heads).unwrap();
    fill(&store, run(3), 1..=2);
    assert_eq!(owner(String::new()), (4321, 4322, 0o700), "the directory too");
    assert_eq!(owner(run(3).to_string()), (4321, 4322, 0o600));
}

/// The first run of root in the directory of another user.
#[test]
fn a_store_belongs_to_the_owner_of_the_directory_above() {
    use std::os::unix::fs::{MetadataExt as _, chown};

    let dir = tempfile::tempdir().unwrap();
    if chown(dir.path(), Some(4321), Some(4322)).is_err() {
        eprintln!("skipped: only root may give files away");
        return;
    }
    let store = dir.path().join(".fabro/state");
    drop(SqliteStore::open(&store).unwrap());
    for path in [&dir.path().join(".fabro"), &store, &store.join("runs"), &store.join("fabro.db")] {
        let found = fs::metadata(path).unwrap();
        assert_eq!((found.uid(), found.gid()), (4321, 4322), "{}", path.display());
    }
}

#[test]
fn a_store_outlives_its_object() {
    let dir = Dir::new();
    let run = run(1);
    fill(&dir.open(), run, 1..=3);
    assert_eq!(dir.open().read(run, 0, 9).unwrap().len(), 3);
    assert_eq!(wait(SqliteStore::open_read_only(&dir.path()).unwrap().last_seq(run)).unwrap(), 3);
    assert_eq!(fs::read_to_string(dir.path().join(".gitignore")).unwrap(), "*\n");
    let files: Vec<_> =
        fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert!(files.iter().all(|name| !name.to_string_lossy().starts_with(".new-")), "{files:?}");
}

#[test]
fn many_may_create_a_store_at_once() {
    let dir = Dir::new();
    std::thread::scope(|scope| {
        for number in 0..6 {
            let dir = &dir;
            scope.spawn(move || fill(&dir.open(), run(number), 1..=2));
        }
    });
    assert_eq!(dir.open().list().unwrap().len(), 6);
}

#[test]
fn several_connections_write_one_run_in_turn() {
    let dir = Dir::new();
    let run = run(1);
    let won: usize = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|_| {
                let store = dir.open();
                scope.spawn(move || {
                    let append =
                        |seq| store.append(run, seq, &Batch::of(&[message(run, seq + 1, "x")]));
                    (0..20).filter(|seq| append(*seq).is_ok()).count()
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    assert_eq!(won as u64, dir.open().last_seq(run).unwrap());
}

#[test]
fn commits_of_others_change_the_mark() {
    let dir = Dir::new();
    let one = dir.open();
    let two = dir.open();
    let before = one.mark().unwrap();
    fill(&two, run(1), 1..=1);
    let after = one.mark().unwrap();
    assert_ne!(before, after);
    assert_eq!(after, one.mark().unwrap());
}

#[test]
fn a_half_written_last_record_is_dropped() {
    let dir = Dir::new();
    let run = run(1);
    fill(&dir.open(), run, 1..=3);
    dir.sql(
        "UPDATE events SET entry = substr(entry, 1, 20) WHERE id = (SELECT max(id) FROM events)",
    );
    let store = dir.open();
    assert_eq!(store.read(run, 0, 9).unwrap().len(), 2);
    assert_eq!(store.read(run, 2, 1).unwrap().len(), 0);
    assert_eq!(store.last_seq(run).unwrap(), 2);
    let warning = store.check(run).unwrap();
    assert_eq!(warning, Some(StoreWarning::HalfWritten { run, seq: 3 }));
    insta::assert_snapshot!(warning.unwrap(), @"the last record of run 01HF7YAT010000000000000001 (3) was only half written and is left out");
    fill(&store, run, 3..=4);
    assert_eq!(store.read(run, 0, 9).unwrap().len(), 4);
    assert_eq!(store.check(run).unwrap(), None);
}

#[test]
fn a_last_record_that_was_overwritten_is_corrupt_and_stays() {
    for entry in ["x'ff'", "x'0000'", "'not JSON'", "replace(entry, '{', '[')", "entry || '}'"] {
        let dir = Dir::new();
        let run = run(1);
        fill(&dir.open(), run, 1..=3);
        dir.sql(&format!(
            "UPDATE events SET entry = {entry} WHERE id = (SELECT max(id) FROM events)"
        ));
        let store = dir.open();
        let read = store.read(run, 0, 9).unwrap_err();
        assert!(
            matches!(&read, StoreError::Damaged { run: it, seq: 3, .. } if *it == run),
            "{read}"
        );
        assert_eq!((store.last_seq(run).unwrap(), store.check(run).unwrap()), (3, None));
        let append = store.append(run, 2, &Batch::of(&[message(run, 3, "text")]));
        assert!(matches!(append, Err(StoreError::Conflict { found: 3, .. })), "{append:?}");
    }
}

#[test]
fn other_unreadable_records_are_errors() {
    let read = |sql: &str| {
        let dir = Dir::new();
        let run = run(1);
        fill(&dir.open(), run, 1..=3);
        dir.sql(sql);
        let error = dir.open().read(run, 0, 9).unwrap_err().to_string();
        error.split_once(" (").unwrap().1.split_once(';').unwrap().0.to_owned()
    };
    insta::assert_snapshot!(read("UPDATE events SET entry = '{' WHERE id % 4 = 2"), @"its text does not match its hash)");
    insta::assert_snapshot!(read("UPDATE events SET entry = x'ff' WHERE id % 4 = 2"), @"its text does not match its hash)");
    // Of older formats, without hashes.
    insta::assert_snapshot!(read(&format!("{TO_FORMAT_2} UPDATE events SET entry = x'ff' WHERE id % 4 = 2")), @"expected value at line 1 column 1)");
    insta::assert_snapshot!(read(&format!("{TO_FORMAT_2} UPDATE events SET entry = '{{\"event\":\"run.dreamt\"}}' WHERE id % 4 = 3")), @"unknown variant `run.dreamt`)");
}

#[test]
fn deep_values_read_back_or_are_refused() {
    let store = Dir::new();
    let store = store.open();
    let run = run(1);
    let nested = |depth: usize| {
        let value = (1..depth).fold(serde_json::json!([]), |inner, _| serde_json::json!([inner]));
        let outcome = fabro_types::Outcome::succeeded().with_update("deep", value);
        let stage = fabro_events::CompletedStage {
            rank: 1,
            attempts: 1,
            outcome,
            prompt: None,
            script: None,
            env: std::collections::BTreeMap::new(),
        };
        [event(run, 1, EventBody::StageCompleted(stage.into()))]
    };
    let refused = store.append(run, 0, &Batch::of(&nested(254)));
    assert!(matches!(refused, Err(StoreError::TooDeep { limit: 256, .. })));
    store.append(run, 0, &Batch::of(&nested(253))).unwrap();
    assert_eq!(store.read(run, 0, 9).unwrap(), nested(253));
    // Brackets in texts do not count.
    let text = message(run, 2, &"[\"\\".repeat(10_000));
    store.append(run, 1, &Batch::of(&[text])).unwrap();
    assert_eq!(store.read(run, 1, 9).unwrap().len(), 1);
}

#[test]
fn what_is_no_store_is_refused() {
    let db = |bytes: &[u8]| {
        let dir = Dir::new();
        fs::create_dir_all(dir.path()).unwrap();
        fs::write(dir.db(), bytes).unwrap();
        let refused = dir.refused();
        assert_eq!(fs::read(dir.db()).unwrap(), bytes, "it is left as it was");
        refused
    };
    insta::assert_snapshot!(db(&b"garbage ".repeat(1000)), @"/state/fabro.db is not a Fabro store; move it away");
    insta::assert_snapshot!(db(b""), @"/state/fabro.db is not a Fabro store; move it away");
    let dir = Dir::new();
    fs::write(dir.path(), "a file").unwrap();
    insta::assert_snapshot!(dir.refused(), @"/state is not a Fabro store; move it away");
    let dir = Dir::new();
    drop(dir.open());
    dir.sql("PRAGMA user_version = 7");
    insta::assert_snapshot!(dir.refused(), @"/state/fabro.db has format 7, and this version reads up to 3; use a newer version of fabro");
    let nothing = SqliteStore::open_read_only(&Dir::new().path()).unwrap_err();
    assert!(matches!(nothing, StoreError::NoStore { .. }), "{nothing}");
}

#[test]
fn a_truncated_database_is_an_error_and_stays_as_it_is() {
    let dir = Dir::new();
    let run = run(1);
    let store = dir.open();
    fill(&store, run, 1..=400);
    drop(store);
    dir.sql("PRAGMA wal_checkpoint(TRUNCATE)");
    let whole = fs::read(dir.db()).unwrap();
    for length in [100, 4096, 8192, whole.len() - 4096, whole.len() - 100] {
        fs::write(dir.db(), &whole[..length]).unwrap();
        let read = SqliteStore::open(&dir.path()).and_then(|store| wait(store.read(run, 0, 1000)));
        match read {
            Err(
                StoreError::Corrupt { .. }
                | StoreError::NotAStore { .. }
                | StoreError::Damaged { .. },
            ) => {}
            read => panic!("{length} of {}: {read:?}", whole.len()),
        }
    }
    fs::write(dir.db(), &whole).unwrap();
    assert_eq!(dir.open().read(run, 0, 1000).unwrap().len(), 400);
}

#[test]
fn what_a_message_said_is_gone_once_it_is_consumed() {
    let dir = Dir::new();
    let store = dir.open();
    fill(&store, run(1), 1..=1);
    let said = crate::Message::Steer { text: "said-in-confidence".into(), node: None };
    let id = store.post(run(1), &said).unwrap();
    let is_kept = || {
        dir.sql("PRAGMA wal_checkpoint(TRUNCATE)");
        memchr::memmem::find(&fs::read(dir.db()).unwrap(), b"said-in-confidence").is_some()
    };
    assert!(is_kept());
    let batch = Batch { consumed: &[id], ..Batch::default() };
    store.append(run(1), 1, &batch).unwrap();
    assert!(!is_kept());
}

#[test]
fn a_corrupted_blob_is_found() {
    let dir = Dir::new();
    let store = dir.open();
    let large = vec![b'1'; SMALL_BLOB];
    let small = store.put(b"1").unwrap();
    let large = store.put(&large).unwrap();
    dir.sql("UPDATE blobs SET bytes = x'32'");
    fs::write(store.db.files.path(&large), "other").unwrap();
    for blob in [small, large] {
        let copied = store.copy_to(&blob, &mut io::sink());
        for error in [store.get(&blob).unwrap_err(), copied.unwrap_err()] {
            assert!(matches!(error, BlobError::Corrupt { path: Some(_), .. }), "{error}");
        }
    }
    // The stage that made it makes it again.
    store.put(b"1").unwrap();
    store.put(&vec![b'1'; SMALL_BLOB]).unwrap();
    assert!(store.get(&small).is_ok() && store.get(&large).is_ok());
}

#[test]
#[cfg(target_os = "linux")]
fn a_lease_of_this_machine_does_not_follow_the_wall_clock() {
    let dir = Dir::new();
    let store = dir.open();
    let lease = store.acquire(run(1)).unwrap();
    // What the row looks like after the clock was set forward by more than the time to live.
    dir.sql("UPDATE leases SET expires = 0");
    assert!(store.is_driven(run(1)));
    assert!(matches!(dir.open().acquire(run(1)), Err(StoreError::Driven { .. })));
    wait(store.0.renew(lease, Duration::ZERO)).unwrap();
    // And after it was set back: the lease ends by the monotonic clock.
    dir.sql("UPDATE leases SET expires = 9000000000000000");
    assert!(!store.is_driven(run(1)));
    assert!(dir.open().acquire(run(1)).is_ok());
}

#[test]
fn a_lease_is_seen_by_every_connection() {
    let dir = Dir::new();
    let one = dir.open();
    let two = dir.open();
    let run = run(1);
    let lease = one.acquire(run).unwrap();
    assert!(one.is_driven(run) && two.is_driven(run));
    assert!(matches!(two.acquire(run), Err(StoreError::Driven { .. })));
    one.release(lease);
    assert!(!two.is_driven(run));
    let other = two.acquire(run).unwrap();
    let late = wait(one.append_leased(lease, run, 0, &Batch::of(&[message(run, 1, "a")])));
    assert!(matches!(late, Err(StoreError::LeaseLost { .. })), "{late:?}");
    wait(two.append_leased(other, run, 0, &Batch::of(&[message(run, 1, "a")]))).unwrap();
    assert!(SqliteStore::open_read_only(&dir.path()).unwrap().runs_dir().is_dir());
}

#[test]
fn a_store_of_format_1_is_read_and_migrated_when_it_is_written() {
    let dir = Dir::new();
    fill(&dir.open(), run(1), 1..=3);
    dir.sql(TO_FORMAT_2);
    dir.sql("DROP TABLE leases; PRAGMA user_version = 1");
    let old = SqliteStore::open_read_only(&dir.path()).unwrap();
    assert_eq!(wait(old.list()).unwrap()[0].status, fabro_types::RunStatus::Interrupted);
    assert_eq!(wait(old.driver(run(1))).unwrap(), None);

    let drivers = dir.path().join("drivers.lock");
    let driver = fs::File::create(&drivers).unwrap();
    driver.lock_shared().unwrap();
    let refused = SqliteStore::open(&dir.path()).unwrap_err();
    assert!(matches!(refused, StoreError::Busy { .. }), "a driver of that version is running");
    driver.unlock().unwrap();
    let store = dir.open();
    assert!(!drivers.exists());
    let lease = store.acquire(run(1)).unwrap();
    wait(store.append_leased(lease, run(1), 3, &Batch::of(&[message(run(1), 4, "a")]))).unwrap();
    assert!(wait(old.driver(run(1))).unwrap().is_some());
    assert_eq!(wait(old.last_seq(run(1))).unwrap(), 4);
}

#[test]
fn deleting_a_run_frees_what_only_it_names() {
    let dir = Dir::new();
    let store = dir.open();
    let bytes = |text: &str, size: usize| -> Arc<[u8]> { text.repeat(size).into_bytes().into() };
    let own = [bytes("a", 10), bytes("b", SMALL_BLOB)].map(|bytes| (BlobRef::of(&bytes), bytes));
    let shared = [bytes("c", 10), bytes("d", SMALL_BLOB)].map(|bytes| (BlobRef::of(&bytes), bytes));
    let commit = |run: RunId, blobs: &[(BlobRef, Arc<[u8]>)]| {
        let names: Vec<_> = blobs.iter().map(|(blob, _)| blob.to_string()).collect();
        let events = [message(run, 1, &names.join(" "))];
        store.append(run, 0, &Batch { events: &events, blobs, ..Batch::default() }).unwrap();
    };
    commit(run(1), &[own.clone(), shared.clone()].concat());
    commit(run(2), &shared);
    fs::create_dir_all(dir.path().join("blobs/unfinished")).unwrap();
    fs::write(dir.path().join("blobs/unfinished/Left12.tmp"), "half").unwrap();

    let other_driver = store.acquire(run(3)).unwrap();
    store.delete(run(1)).unwrap();
    assert!(store.get(&own[0].0).is_ok(), "a driver may be about to name it");
    store.release(other_driver);
    assert!(store.db.sweep().unwrap());
    for (blob, _) in &own {
        assert!(matches!(store.get(blob), Err(BlobError::Missing { .. })));
    }
    for (blob, _) in &shared {
        assert!(store.get(blob).is_ok());
    }
    assert_eq!(store.db.files.list().unwrap(), [shared[1].0]);
    assert_eq!(fs::read_dir(dir.path().join("blobs/unfinished")).unwrap().count(), 0);
}

#[test]
fn a_stage_takes_little_room() {
    let dir = Dir::new();
    let store = dir.open();
    store.db.conn().pragma_update(None, "synchronous", "OFF").unwrap();
    let run = run(1);
    for stage in 0..1000 {
        let seq = stage * 3;
        let events = [1, 2, 3].map(|more| message(run, seq + more, &"x".repeat(100)));
        store.append(run, seq, &Batch::of(&events)).unwrap();
    }
    let text = serde_json::to_string(&message(run, 1, &"x".repeat(100)).entry).unwrap();
    drop(store);
    dir.sql("PRAGMA wal_checkpoint(TRUNCATE)");
    let size = fs::metadata(dir.db()).unwrap().len();
    let beyond = size.saturating_sub(3000 * text.len() as u64) / 3000;
    assert!(beyond < 80, "{beyond} bytes a record beyond its text");
}

#[derive(Clone, Debug)]
enum Step {
    Append { run: u128, behind: u64, kinds: Vec<u8>, consume: bool },
    Post { run: u128, kind: u8 },
    Delete { run: u128 },
    Read { run: u128, after: u64, limit: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let run = 0..3_u128;
    prop_oneof![
        4 => (run.clone(), prop_oneof![9 => Just(0), 1 => 0..3_u64], prop::collection::vec(0..6_u8, 0..4), any::<bool>())
            .prop_map(|(run, behind, kinds, consume)| Step::Append { run, behind, kinds, consume }),
        2 => (run.clone(), 0..4_u8).prop_map(|(run, kind)| Step::Post { run, kind }),
        1 => run.clone().prop_map(|run| Step::Delete { run }),
        2 => (run, 0..6_u64, 0..5_usize).prop_map(|(run, after, limit)| Step::Read { run, after, limit }),
    ]
}

fn body(run_id: RunId, seq: u64, kind: u8) -> crate::Event {
    match kind {
        0 => crate::Event { seq, ..created(run_id, "demo", None) },
        1 => asked(run_id, seq, None),
        2 => asked(run_id, seq, Some("b")),
        3 => event(run_id, seq, EventBody::RunCanceled { reason: "no".into(), by_parent: None }),
        4 => {
            let point = fabro_events::ForkPoint {
                from_run: run_id,
                from_seq: 1,
                in_place: seq.is_multiple_of(2),
                stage: None,
                set: fabro_types::ContextPatch::new(),
                retry: None,
            };
            event(run_id, seq, EventBody::CheckpointForked(point.into()))
        }
        _ => message(run_id, seq, "text"),
    }
}

/// What a step came to, without what the two stores name differently.
fn play(store: &Blocking<impl RunStore>, step: &Step) -> String {
    let plain = |result: Result<(), StoreError>| match result {
        Err(StoreError::NotPending { .. }) => "not pending".to_owned(),
        result => format!("{:?}", result.map_err(|error| error.to_string())),
    };
    match step {
        Step::Append { run: number, behind, kinds, consume } => {
            let run = run(*number);
            let last = store.last_seq(run).unwrap().saturating_sub(*behind);
            let events: Vec<_> =
                (last + 1..).zip(kinds).map(|(seq, kind)| body(run, seq, *kind)).collect();
            let pending = store.pending(run).unwrap();
            let consumed: Vec<_> = pending.iter().map(|(id, _)| *id).filter(|_| *consume).collect();
            let batch = Batch { events: &events, consumed: &consumed, ..Batch::default() };
            plain(store.append(run, last, &batch))
        }
        Step::Post { run: number, kind } => {
            let message = match kind {
                0 => answer(None, "A"),
                1 => answer(Some("b"), "A"),
                _ => crate::Message::Steer { text: "left".into(), node: None },
            };
            plain(store.post(run(*number), &message).map(drop))
        }
        Step::Delete { run: number } => plain(store.delete(run(*number))),
        Step::Read { run: number, after, limit } => {
            format!("{:?}", store.read(run(*number), *after, *limit).unwrap())
        }
    }
}

fn look(store: &Blocking<impl RunStore>) -> String {
    let mut runs = store.list().unwrap();
    for run in &mut runs {
        if run.status == fabro_types::RunStatus::Interrupted {
            run.status = fabro_types::RunStatus::Running;
        }
    }
    let messages = |number| {
        let pending = store.pending(run(number)).unwrap();
        pending.into_iter().map(|(_, message)| message).collect::<Vec<_>>()
    };
    let latest = store.find("latest").map_err(|error| error.to_string());
    format!("{runs:?} {latest:?} {:?}", [0, 1, 2].map(messages))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn both_stores_do_the_same(steps in prop::collection::vec(step(), 1..40)) {
        let dir = Dir::new();
        let memory = Blocking(Arc::new(MemoryStore::default()));
        let sqlite = dir.open();
        // Only the rules are compared here; durability costs too much a step.
        sqlite.db.conn().pragma_update(None, "synchronous", "OFF").unwrap();
        for step in &steps {
            prop_assert_eq!(play(&memory, step), play(&sqlite, step), "{:?}", step);
            prop_assert_eq!(look(&memory), look(&sqlite), "after {:?}", step);
        }
    }
}

#[test]
fn several_stores_append_in_turn() {
    let dir = Dir::new();
    let stores = [dir.open(), dir.open(), dir.open()];
    let text = "x".repeat(3_000);
    for seq in 1..=600 {
        let store = &stores[seq as usize % 3];
        store.append(run(1), seq - 1, &Batch::of(&[message(run(1), seq, &text)])).unwrap();
    }
    drop(stores);
    let events = dir.open().read(run(1), 0, 1000).unwrap();
    assert_eq!(events.len(), 600);
    assert_eq!(events[599], message(run(1), 600, &text));
}
