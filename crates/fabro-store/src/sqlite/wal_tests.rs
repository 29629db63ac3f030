//! A damaged commit at the end of the write-ahead log, of a driver that was killed before it had written
//! its head.

use std::fs;
use std::ops::Range;

use proptest::prelude::*;

use super::tests::{Dir, TO_FORMAT_2, fill};
use super::*;
use crate::conformance::run;
use crate::tests::wait;

const TTL: Duration = Duration::from_secs(9);

/// A store whose last commit no head knows.
struct Killed {
    dir: Dir,
    wal: PathBuf,
    bytes: Vec<u8>,
    /// Where the last commit is in the log.
    last: Range<usize>,
}

impl Killed {
    fn new() -> Self {
        let dir = Dir::new();
        let store = dir.open();
        fill(&store, run(1), 1..=20);
        fill(&store, run(2), 1..=2);
        let wal = dir.path().join("fabro.db-wal");
        let before = fs::metadata(&wal).unwrap().len() as usize;
        let head = dir.path().join("heads").join(run(1).to_string());
        let line = fs::read(&head).unwrap();
        fill(&store, run(1), 21..=80);
        drop(store);
        fs::write(head, line).unwrap();
        let bytes = fs::read(&wal).unwrap();
        let last = before..bytes.len();
        assert!(last.len() > 2 * 4120, "{last:?}");
        let killed = Self { dir, wal, bytes, last };
        assert_eq!(killed.read(1).unwrap(), 80);
        killed
    }

    /// The store with other bytes in its log.
    fn with(&self, bytes: &[u8]) -> &Self {
        let _ = fs::remove_file(self.dir.path().join("fabro.db-shm"));
        fs::write(&self.wal, bytes).unwrap();
        self
    }

    fn flipped(&self, at: usize) -> &Self {
        let mut bytes = self.bytes.clone();
        bytes[at] ^= 1 << (at % 8);
        self.with(&bytes)
    }

    fn read(&self, number: u128) -> Result<usize, StoreError> {
        let store = SqliteStore::open_read_only(&self.dir.path()).unwrap();
        wait(store.read(run(number), 0, 100)).map(|events| events.len())
    }
}

#[test]
fn no_flipped_bit_hides_a_commit_that_no_head_knows() {
    let killed = Killed::new();
    let last_header = killed.last.end - 4120..killed.last.end - 4096;
    let places = killed.last.clone().step_by(181).chain(last_header);
    for at in places.chain(killed.last.clone().take(24)) {
        for bit in 0..8 {
            let mut bytes = killed.bytes.clone();
            bytes[at] ^= 1 << bit;
            fs::write(&killed.wal, bytes).unwrap();
            assert!(wal::hidden_commit(&killed.wal).unwrap().is_some(), "bit {bit} of byte {at}");
        }
    }
    for at in 0..32 {
        assert!(killed.flipped(at).read(1).is_err(), "byte {at}");
    }
}

#[test]
fn a_hidden_commit_keeps_writers_out_until_it_is_given_up() {
    let killed = Killed::new();
    killed.flipped(killed.last.start + 1_000);
    let dir = &killed.dir;
    let acquire = || {
        let error = dir.open().acquire(run(2)).unwrap_err().to_string();
        error.replace(&*dir.path().canonicalize().unwrap().to_string_lossy(), "")
    };
    insta::assert_snapshot!(acquire(), @"/fabro.db-wal is damaged: the commit at byte 24752 cannot be read, nor what follows it, which may be of any run; restore the store from a backup");
    assert_eq!(acquire(), acquire());
    let store = SqliteStore::open_read_only(&dir.path()).unwrap();
    let found = wait(store.verify(run(1))).unwrap();
    assert!(matches!(found.problems[..], [StoreError::HiddenCommit { .. }]), "{found:?}");
    assert_eq!(wait(store.check_database()).unwrap().len(), 1);
    assert!(wait(store.backup(&dir.path().join("copy"))).is_err());
    drop(store);

    let store = dir.open();
    let accepted = wait(store.accept_loss(run(1)));
    assert!(matches!(accepted, Err(StoreError::HiddenCommit { .. })), "{accepted:?}");
    let other = dir.open();
    assert!(wait(store.give_up_last_commit()).unwrap());
    assert!(!wait(store.give_up_last_commit()).unwrap());
    assert_eq!(killed.read(1).unwrap(), 20);
    other.acquire(run(2)).unwrap();
    drop((store, other));
    let store = dir.open();
    fill(&store, run(1), 21..=22);
    assert!(wait(store.verify(run(1))).unwrap().problems.is_empty());
    assert_eq!(wait(store.check_database()).unwrap(), Vec::<String>::new());
}

#[test]
fn a_commit_that_was_not_finished_is_no_hidden_one() {
    let killed = Killed::new();
    let last = killed.last.clone();
    let read = |bytes: &[u8]| killed.with(bytes).read(1).unwrap();
    for end in last.clone().step_by(509) {
        assert_eq!(read(&killed.bytes[..end]), 20, "cut off at {end}");
        // In the place of older frames.
        let mut bytes = killed.bytes.clone();
        let older = killed.bytes[32..].iter().cycle();
        for (byte, older) in bytes[end..].iter_mut().zip(older) {
            *byte = *older;
        }
        assert_eq!(read(&bytes), 20, "written up to {end}");
    }
    // A process that writes while others read does not see what a killed one had finished, and begins at the same
    // place.
    assert_eq!(read(&killed.bytes[..last.start]), 20);
    fill(&killed.dir.open(), run(1), 21..=21);
    let mut bytes = fs::read(&killed.wal).unwrap();
    assert!(bytes.len() < killed.bytes.len() && bytes[..last.start] == killed.bytes[..last.start]);
    bytes.extend(&killed.bytes[bytes.len()..]);
    assert_eq!(read(&bytes), 21);
}

#[test]
fn a_commit_is_not_given_up_while_another_process_reads() {
    let killed = Killed::new();
    killed.flipped(killed.last.start + 1_000);
    let store = killed.dir.open();
    let reader = rusqlite::Connection::open(killed.dir.db()).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM runs").unwrap();
    let given_up = wait(store.give_up_last_commit());
    assert!(matches!(given_up, Err(StoreError::Busy { .. })), "{given_up:?}");
    assert!(store.check_last_commit().is_err());
    reader.execute_batch("COMMIT").unwrap();
    assert!(wait(store.give_up_last_commit()).unwrap());
}

#[test]
fn neither_a_migration_nor_a_refusal_writes_over_a_hidden_commit() {
    for version in [2, 99] {
        let dir = Dir::new();
        fill(&dir.open(), run(1), 1..=3);
        let conn = rusqlite::Connection::open(dir.db()).unwrap();
        conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        conn.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
            .unwrap();
        if version == 2 {
            conn.execute_batch(TO_FORMAT_2).unwrap();
        } else {
            conn.pragma_update(None, "user_version", version).unwrap();
        }
        conn.execute_batch("UPDATE runs SET goal = 'another'").unwrap();
        drop(conn);
        let wal = dir.path().join("fabro.db-wal");
        let mut bytes = fs::read(&wal).unwrap();
        let last = bytes.len() - 100;
        bytes[last] ^= 1;
        fs::write(&wal, &bytes).unwrap();
        let _ = fs::remove_file(dir.path().join("fabro.db-shm"));
        let opened = SqliteStore::open(&dir.path());
        assert_eq!(opened.is_ok(), version == 2);
        if let Ok(store) = &opened {
            assert!(wait(store.acquire(run(1), &LeaseOwner::this_process(), TTL)).is_err());
        }
        drop(opened);
        assert_eq!(fs::read(&wal).unwrap(), bytes, "version {version}");
    }
}

proptest! {
    #[test]
    fn any_bytes_can_be_read_as_a_log(
        mut bytes in prop::collection::vec(any::<u8>(), 0..6_000),
        page in prop::sample::select(vec![0_u32, 1, 511, 512, 1_024, 65_536, u32::MAX]),
        is_one in any::<bool>(),
    ) {
        if is_one && bytes.len() >= 32 {
            bytes[..8].copy_from_slice(&[0x37, 0x7f, 6, 0x82, 0, 0x2d, 0xe2, 0x18]);
            bytes[8..12].copy_from_slice(&page.to_be_bytes());
            let sum = wal::Sum::default().plus(&bytes[..24], u32::from_le_bytes);
            bytes[24..28].copy_from_slice(&sum.0.to_be_bytes());
            bytes[28..32].copy_from_slice(&sum.1.to_be_bytes());
        }
        let found = wal::hidden_commit_in(&mut bytes.as_slice()).unwrap();
        prop_assert!(found.is_none() || !is_one, "{found:?}");
    }
}
