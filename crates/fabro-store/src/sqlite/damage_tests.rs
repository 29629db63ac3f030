//! What a rotting disk, a lost file or a copy of the wrong age does to a store: nothing passes in
//! silence.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;

use super::tests::{Dir, TO_FORMAT_2, fill};
use super::*;
use crate::conformance::{message, run};
use crate::tests::wait;

/// All that a person can see of a store: its list, its logs, and what is pending.
fn look(dir: &Dir) -> Result<String, StoreError> {
    let store = SqliteStore::open_read_only(&dir.path())?;
    let lost = wait(store.lost_runs())?;
    if let Some(run) = lost.first() {
        wait(store.read(*run, 0, 100))?;
    }
    let mut text = vec![format!("{:?}", wait(store.list())?)];
    for number in 1..=2 {
        let run = run(number);
        let events = wait(store.read(run, 0, 100))?;
        let check = wait(store.check(run))?;
        let verified = wait(store.verify(run))?;
        if let Some(problem) = verified.problems.into_iter().next() {
            return Err(problem);
        }
        text.push(format!("{events:?} {check:?} {:?}", wait(store.pending(run))?));
    }
    Ok(text.concat())
}

fn filled() -> Dir {
    let dir = Dir::new();
    let store = dir.open();
    fill(&store, run(1), 1..=20);
    fill(&store, run(2), 1..=3);
    let bytes: Arc<[u8]> = b"a small blob".as_slice().into();
    let blob = BlobRef::of(&bytes);
    let events = [message(run(1), 21, &blob.to_string())];
    let batch = Batch { events: &events, blobs: &[(blob, bytes)], ..Batch::default() };
    store.append(run(1), 20, &batch).unwrap();
    store.post(run(1), &Message::Steer { text: "a hint".to_owned(), node: None }).unwrap();
    dir
}

#[test]
fn no_flipped_bit_passes_in_silence() {
    let dir = filled();
    let whole = look(&dir).unwrap();
    dir.sql("PRAGMA wal_checkpoint(TRUNCATE)");
    assert_eq!(look(&dir).unwrap(), whole);
    let heads = [1, 2].map(|number| dir.path().join("heads").join(run(number).to_string()));
    let mut files = vec![dir.db()];
    files.extend(heads);
    for file in files {
        let bytes = fs::read(&file).unwrap();
        // A step without a factor in common with the page size, so that every part of a page is met.
        let step = if bytes.len() > 1_000 { 61 } else { 1 };
        for at in (0..bytes.len()).step_by(step) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            fs::write(&file, &flipped).unwrap();
            match look(&dir) {
                Ok(found) => assert_eq!(found, whole, "byte {at} of {}", file.display()),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
        fs::write(&file, bytes).unwrap();
    }
}

#[test]
fn no_flipped_bit_of_the_write_ahead_log_passes_in_silence() {
    let dir = filled();
    let whole = look(&dir).unwrap();
    let log = dir.path().join("fabro.db-wal");
    let bytes = fs::read(&log).unwrap();
    assert!(bytes.len() > 10_000);
    for at in (0..bytes.len()).step_by(97) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        fs::write(&log, &flipped).unwrap();
        let _ = fs::remove_file(dir.path().join("fabro.db-shm"));
        match look(&dir) {
            Ok(found) => assert_eq!(found, whole, "byte {at}"),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

#[test]
fn lost_events_are_named_until_the_loss_is_accepted() {
    let dir = Dir::new();
    fill(&dir.open(), run(1), 1..=3);
    dir.sql("PRAGMA wal_checkpoint(TRUNCATE)");
    fill(&dir.open(), run(1), 4..=9);
    fill(&dir.open(), run(2), 1..=1);
    fs::remove_file(dir.path().join("fabro.db-wal")).unwrap();
    let store = dir.open();
    let error = store.read(run(1), 0, 100).unwrap_err();
    let message =
        error.to_string().replace(&*dir.path().canonicalize().unwrap().to_string_lossy(), "");
    insta::assert_snapshot!(message, @"run 01HF7YAT010000000000000001 is incomplete: events 4 to 9 were committed, and /fabro.db does not have them (its write-ahead log is lost, or it is an older copy); restore the newer one");
    let verified = wait(store.verify(run(1))).unwrap();
    assert!(matches!(verified.problems[..], [StoreError::Lost { from: 4, to: 9, .. }]));
    // Its records may be gone, but not the run.
    assert_eq!(store.find(&run(2).to_string()).unwrap(), run(2));
    assert_eq!(wait(store.lost_runs()).unwrap(), [run(2)]);
    assert!(matches!(store.read(run(2), 0, 1), Err(StoreError::Lost { from: 1, to: 1, .. })));

    wait(store.accept_loss(run(1))).unwrap();
    wait(store.accept_loss(run(2))).unwrap();
    assert_eq!(store.read(run(1), 0, 100).unwrap().len(), 3);
    assert!(wait(store.lost_runs()).unwrap().is_empty());
    fill(&store, run(1), 4..=5);
    assert!(wait(store.verify(run(1))).unwrap().problems.is_empty());
}

#[test]
fn a_database_that_is_gone_is_not_begun_anew() {
    let dir = Dir::new();
    fill(&dir.open(), run(1), 1..=3);
    for file in ["fabro.db", "fabro.db-wal", "fabro.db-shm"] {
        fs::remove_file(dir.path().join(file)).unwrap();
    }
    insta::assert_snapshot!(dir.refused(), @"/state/fabro.db is missing, and it held 1 run; restore it from a backup, or remove /state/heads to begin with an empty store");
    fs::remove_dir_all(dir.path().join("heads")).unwrap();
    assert!(dir.open().list().unwrap().is_empty());
}

#[test]
fn a_writer_notices_that_its_files_were_replaced() {
    let append = |dir: &Dir, store: &crate::tests::Blocking<SqliteStore>| {
        let error = store.append(run(1), 3, &Batch::of(&[message(run(1), 4, "x")])).unwrap_err();
        let text = error.to_string();
        text.replace(&*dir.path().canonicalize().unwrap().to_string_lossy(), "")
    };
    let dir = Dir::new();
    let store = dir.open();
    fill(&store, run(1), 1..=3);
    fs::rename(dir.db(), dir.path().join("away")).unwrap();
    insta::assert_snapshot!(append(&dir, &store), @"/fabro.db was deleted or replaced while it was in use; what happened since then is not recorded: put it back and resume the run");
    fs::copy(dir.path().join("away"), dir.db()).unwrap();
    assert_eq!(append(&dir, &store), append(&dir, &store));

    let dir = Dir::new();
    let store = dir.open();
    fill(&store, run(1), 1..=3);
    fs::remove_file(dir.path().join("fabro.db-wal")).unwrap();
    insta::assert_snapshot!(append(&dir, &store), @"/fabro.db-wal was deleted or replaced while it was in use; what happened since then is not recorded: put it back and resume the run");
}

#[test]
fn a_store_of_format_2_gets_hashes_from_then_on() {
    let dir = Dir::new();
    fill(&dir.open(), run(1), 1..=3);
    dir.sql(TO_FORMAT_2);
    fs::remove_dir_all(dir.path().join("heads")).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let old = SqliteStore::open_read_only(&dir.path()).unwrap();
    assert_eq!(wait(old.read(run(1), 0, 9)).unwrap().len(), 3);
    assert_eq!(wait(old.verify(run(1))).unwrap().unhashed, 3);
    assert_eq!(wait(old.list()).unwrap().len(), 1);
    drop(old);
    let store = dir.open();
    fill(&store, run(1), 4..=6);
    fill(&store, run(2), 1..=2);
    let verified = wait(store.verify(run(1))).unwrap();
    assert_eq!((verified.events, verified.unhashed, verified.problems.len()), (6, 3, 0));
    assert_eq!(wait(store.verify(run(2))).unwrap().unhashed, 0);
    drop(store);
    dir.sql("UPDATE events SET ts = ts + 1 WHERE id & 0xff = 5");
    let read = dir.open().read(run(1), 3, 9).unwrap_err();
    assert!(matches!(read, StoreError::Damaged { seq: 5, .. }), "{read}");
    assert_eq!(fs::metadata(dir.path()).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn pipes_and_endless_files_in_the_place_of_files_are_refused_at_once() {
    let dir = filled();
    let head = dir.path().join("heads").join(run(1).to_string());
    let pipe = |path: &Path| {
        fs::remove_file(path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    File::options().write(true).open(&head).unwrap().set_len(1 << 40).unwrap();
    let endless = dir.open().read(run(1), 0, 9).unwrap_err();
    assert!(matches!(endless, StoreError::DamagedHead { .. }), "{endless}");
    pipe(&head);
    let read = dir.open().read(run(1), 0, 9).unwrap_err();
    assert!(read.to_string().contains("not a regular file"), "{read}");
    fs::remove_file(&head).unwrap();
    let log = dir.path().join("fabro.db-wal");
    let bytes = fs::read(&log).unwrap();
    pipe(&log);
    assert!(dir.refused().contains("not a regular file"));
    fs::remove_file(&log).unwrap();
    fs::write(&log, bytes).unwrap();
    pipe(&dir.db());
    for suffix in ["-wal", "-shm"] {
        let _ = fs::remove_file(format!("{}{suffix}", dir.db().display()));
    }
    assert_eq!(dir.refused(), "/state/fabro.db is not a Fabro store; move it away");
    let read_only = SqliteStore::open_read_only(&dir.path()).unwrap_err();
    assert!(matches!(read_only, StoreError::NotAStore { .. }), "{read_only}");
}

#[test]
fn only_the_owner_may_read_a_store() {
    let dir = filled();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir.path()), 0o700);
    for entry in fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
    }
}

#[test]
fn what_runs_write_is_private_in_a_directory_that_was_there_before() {
    let dir = Dir::new();
    fs::create_dir(dir.path()).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let store = dir.open();
    fill(&store, run(1), 1..=2);
    store.put(&vec![b'x'; 1 << 20]).unwrap();
    for entry in fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
    }
    let names = ["blobs", "heads", "runs"];
    assert!(names.iter().all(|name| dir.path().join(name).is_dir()));
}

#[test]
fn a_backup_is_a_store_in_one_file() {
    let dir = Dir::new();
    let store = dir.open();
    let large: Arc<[u8]> = vec![b'7'; SMALL_BLOB * 2].into();
    let blob = BlobRef::of(&large);
    let events = [message(run(1), 1, &blob.to_string())];
    let batch = Batch { events: &events, blobs: &[(blob, large)], ..Batch::default() };
    store.append(run(1), 0, &batch).unwrap();
    let copy = Dir::new();
    fs::create_dir_all(copy.path()).unwrap();
    wait(store.backup(&copy.db())).unwrap();
    let refused = wait(store.backup(&copy.db())).unwrap_err();
    assert!(matches!(refused, StoreError::Io { .. }), "{refused}");
    assert_eq!(fs::metadata(copy.db()).unwrap().permissions().mode() & 0o777, 0o600);
    fill(&store, run(1), 2..=2);

    let read_only = SqliteStore::open_read_only(&copy.path()).unwrap();
    assert_eq!(wait(read_only.read(run(1), 0, 9)).unwrap(), events);
    drop(read_only);
    let restored = copy.open();
    let verified = wait(restored.verify(run(1))).unwrap();
    assert_eq!((verified.events, verified.blobs, verified.problems.len()), (1, 1, 0));
    assert_eq!(restored.get(&blob).unwrap().len(), SMALL_BLOB * 2);
    fill(&restored, run(1), 2..=2);
    assert_eq!(wait(restored.check_database()).unwrap(), Vec::<String>::new());
}

#[test]
fn the_end_of_a_run_folds_the_log_into_the_database() {
    let dir = Dir::new();
    let store = dir.open();
    fill(&store, run(1), 1..=3);
    let lease = store.acquire(run(1)).unwrap();
    let body = fabro_events::EventBody::RunCanceled { reason: "enough".into(), by_parent: None };
    let end = [crate::conformance::event(run(1), 4, body)];
    wait(store.append_leased(lease, run(1), 3, &Batch::of(&end))).unwrap();
    assert_eq!(fs::metadata(dir.path().join("fabro.db-wal")).unwrap().len(), 0);
    let copy = Dir::new();
    fs::create_dir_all(copy.path()).unwrap();
    fs::copy(dir.db(), copy.db()).unwrap();
    assert_eq!(copy.open().read(run(1), 0, 9).unwrap().len(), 4);
}

#[test]
fn a_run_does_not_end_in_files_that_were_truncated() {
    let ends = |damage: &dyn Fn(&Dir)| {
        let dir = Dir::new();
        let store = dir.open();
        fill(&store, run(1), 1..=3);
        let lease = store.acquire(run(1)).unwrap();
        fill(&store, run(2), 1..=3);
        damage(&dir);
        let body =
            fabro_events::EventBody::RunCanceled { reason: "enough".into(), by_parent: None };
        let end = [crate::conformance::event(run(1), 4, body)];
        wait(store.append_leased(lease, run(1), 3, &Batch::of(&end)))
    };
    ends(&|_| {}).unwrap();
    let empty = |file: &str| {
        let file = file.to_owned();
        move |dir: &Dir| drop(fs::File::create(dir.path().join(&file)).unwrap())
    };
    let folded = |dir: &Dir| {
        dir.sql("PRAGMA wal_checkpoint(TRUNCATE)");
        empty("fabro.db")(dir);
    };
    ends(&folded).unwrap_err();
    // By an empty one.
    let overwritten = |dir: &Dir| {
        let empty = Dir::new();
        drop(empty.open());
        empty.sql("PRAGMA wal_checkpoint(TRUNCATE)");
        dir.sql("PRAGMA wal_checkpoint(TRUNCATE)");
        let file = File::options().write(true).open(dir.db()).unwrap();
        let bytes = fs::read(empty.db()).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
    };
    ends(&overwritten).unwrap_err();
}

#[test]
fn verify_checks_the_messages_of_a_run() {
    let dir = filled();
    let problems = || {
        let store = SqliteStore::open_read_only(&dir.path()).unwrap();
        wait(store.verify(run(1))).unwrap().problems
    };
    assert!(problems().is_empty());
    let file = dir.path().join("heads").join(format!("{}.inbox", run(1)));
    let whole = fs::read(&file).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&file, &bytes).unwrap();
        assert!(!problems().is_empty(), "byte {at}");
    }
    fs::write(&file, &whole).unwrap();
    assert!(problems().is_empty());
    dir.sql("UPDATE inbox SET message = replace(message, 'hint', 'lint')");
    assert!(matches!(problems()[..], [StoreError::Corrupt { .. }]));
}

#[test]
fn latest_is_no_earlier_run_than_one_that_is_lost() {
    let dir = Dir::new();
    let store = dir.open();
    fill(&store, run(2), 1..=3);
    let latest = || wait(SqliteStore::open_read_only(&dir.path()).unwrap().find("latest"));
    assert_eq!(latest().unwrap(), run(2));
    let heads = dir.path().join("heads");
    let head = |number| heads.join(run(number).to_string());
    fs::copy(head(2), head(1)).unwrap();
    assert_eq!(latest().unwrap(), run(2), "a later run is recorded");
    fs::write(head(3), "").unwrap();
    assert_eq!(latest().unwrap(), run(2), "an empty file says nothing");
    fs::copy(head(2), head(3)).unwrap();
    assert_eq!(latest().unwrap(), run(3));
    assert!(store.read(run(3), 0, 9).is_err());
    for number in [1, 3] {
        store.delete(run(number)).unwrap();
    }
    assert_eq!(latest().unwrap(), run(2));
    store.delete(run(2)).unwrap();
    assert!(matches!(latest(), Err(StoreError::NoRuns)));
    fs::write(head(3), "damaged").unwrap();
    assert_eq!(latest().unwrap(), run(3));
}

#[test]
fn a_head_that_cannot_be_written_is_reported_by_the_next_append() {
    let dir = Dir::new();
    fill(&dir.open(), run(1), 1..=3);
    let head = dir.path().join("heads").join(run(1).to_string());
    let append = |store: &crate::tests::Blocking<SqliteStore>, seq| {
        store.append(run(1), seq - 1, &Batch::of(&[message(run(1), seq, "text")]))
    };
    let store = dir.open();
    fs::remove_file(&head).unwrap();
    fs::create_dir(&head).unwrap();
    append(&store, 4).unwrap();
    assert!(matches!(append(&store, 5), Err(StoreError::Io { path, .. }) if path == head));
    fs::remove_dir(&head).unwrap();
    append(&store, 6).unwrap();
    assert!(fs::read_to_string(&head).unwrap().starts_with("00000000000000000006 "));
    append(&store, 7).unwrap();
    drop(store);
    assert!(fs::read_to_string(&head).unwrap().starts_with("00000000000000000007 "));
}

#[test]
fn what_lists_show_is_computed_anew() {
    let dir = Dir::new();
    let store = dir.open();
    let created = crate::conformance::created(run(1), "demo", None);
    store.append(run(1), 0, &Batch::of(&[created])).unwrap();
    let before = store.list().unwrap();
    dir.sql("UPDATE runs SET workflow = 'another'");
    assert!(matches!(store.list(), Err(StoreError::Corrupt { .. })));
    wait(store.accept_loss(run(1))).unwrap();
    assert_eq!(store.list().unwrap(), before);
}

#[test]
fn verify_names_blobs_whose_rows_are_gone() {
    let dir = filled();
    let problems = |number| {
        let store = SqliteStore::open_read_only(&dir.path()).unwrap();
        wait(store.verify(run(number))).unwrap().problems
    };
    // A name that the store never had is text.
    let text = BlobRef::of(b"never stored").to_string();
    dir.open().append(run(2), 3, &Batch::of(&[message(run(2), 4, &text)])).unwrap();
    assert!(problems(2).is_empty());
    // Nor does it count as lost when a row is gone.
    let lost = BlobRef::of(b"a small blob");
    let inner = BlobRef::of(b"an inner blob");
    let outer = serde_json::to_vec(&serde_json::json!([inner.to_string()])).unwrap();
    let mention = [message(run(1), 22, &format!("see {text} and {}", BlobRef::of(&outer)))];
    let blobs = [b"an inner blob".to_vec(), outer].map(|bytes| (BlobRef::of(&bytes), bytes.into()));
    let batch = Batch { events: &mention, blobs: &blobs, ..Batch::default() };
    dir.open().append(run(1), 21, &batch).unwrap();
    assert!(problems(1).is_empty(), "{:?}", problems(1));
    dir.sql("DELETE FROM blobs WHERE bytes = CAST('an inner blob' AS BLOB)");
    assert!(
        matches!(problems(1)[..], [StoreError::Blob(BlobError::Lost { blob })] if blob == inner)
    );
    // Of this one no name is left.
    dir.sql("DELETE FROM blobs");
    assert!(problems(2).is_empty());
    let found = problems(1);
    assert!(
        matches!(&found[..], [StoreError::Blob(BlobError::Lost { blob }), StoreError::Corrupt { detail, .. }]
            if *blob == lost && detail.starts_with("the rows of 2 values")),
        "{found:?}"
    );
}

#[test]
fn a_run_that_is_removed_meanwhile_is_not_incomplete() {
    let dir = Dir::new();
    let store = dir.open();
    for number in 1..=30 {
        fill(&store, run(number), 1..=3);
    }
    let end = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let reader = dir.open();
                while !end.load(std::sync::atomic::Ordering::Relaxed) {
                    for number in 1..=30 {
                        let events = match reader.read(run(number), 0, 10) {
                            Err(StoreError::NotFound { .. }) => continue,
                            events => events.unwrap(),
                        };
                        assert!(events.len() == 3 || events.is_empty());
                    }
                }
            });
        }
        for number in 1..=30 {
            let deleted = store.delete(run(number));
            if deleted.is_err() {
                end.store(true, std::sync::atomic::Ordering::Relaxed);
            }
            deleted.unwrap();
        }
        end.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
