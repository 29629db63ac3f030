use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fabro_events::Event;
use fabro_types::{BlobRef, RunId, RunStatus};
use rusqlite::types::{FromSql as _, ValueRef};
use rusqlite::{Connection, OptionalExtension, params};

use super::blobs::{insert_blob, insert_file, insert_use, is_small};
use super::chain::Hash;
use super::database::Database;
use super::database::run_key;
use super::fault::Fault;
use super::format::has_hashes;
use super::heads::Head;
use super::record::{self, Damage};
use super::transaction::Transaction;
use super::{lease_rows, refs, row_hashes};
use crate::gate::{self, Effect};
use crate::{Batch, InboxId, Lease, StoreError, summary};

/// A batch as it is written, so that it can be handed to the store's thread.
pub(super) struct EncodedBatch {
    run: RunId,
    expected_seq: u64,
    records: Vec<Record>,
    blobs: Vec<(BlobRef, Arc<[u8]>)>,
    consumed: Vec<InboxId>,
}

struct Record {
    seq: u32,
    ts_ms: i64,
    text: String,
    summary: Option<summary::Change>,
    gate: Option<Effect>,
}

impl EncodedBatch {
    pub(super) fn new(
        run: RunId,
        expected_seq: u64,
        batch: &Batch<'_>,
    ) -> Result<Self, StoreError> {
        batch.check_order(run, expected_seq)?;
        Ok(Self {
            run,
            expected_seq,
            records: batch.events.iter().map(Record::new).collect::<Result<_, _>>()?,
            blobs: batch.blobs.to_vec(),
            consumed: batch.consumed.to_vec(),
        })
    }
}

impl EncodedBatch {
    pub(super) fn run(&self) -> RunId {
        self.run
    }

    fn ends_a_run(&self) -> bool {
        self.changes().any(|change| change.ended_at_ms.is_some())
    }

    fn changes(&self) -> impl Iterator<Item = &summary::Change> {
        self.records.iter().filter_map(|record| record.summary.as_ref())
    }
}

impl Record {
    fn new(event: &Event) -> Result<Self, StoreError> {
        let seq = u32::try_from(event.seq).map_err(|_| StoreError::BadEvent {
            run: event.run_id,
            seq: event.seq,
            detail: "a log has no room for more than 4,294,967,295 events".to_owned(),
        })?;
        Ok(Self {
            seq,
            ts_ms: event.ts_ms,
            text: record::encode(event)?,
            summary: summary::change(event),
            gate: gate::effect(event),
        })
    }
}

impl Database {
    /// Appends a batch. Returns the head of the log where it is still to be written, by
    /// [`Database::write_head`]: no caller waits for that while the run continues, since a driver can be killed
    /// before it as well. One that begins, pauses or ends the run is written, and so is the next after a
    /// failure, which this reports.
    pub(super) fn append(
        &self,
        batch: &EncodedBatch,
        lease: Option<Lease>,
    ) -> Result<Option<Head>, StoreError> {
        let run = batch.run;
        let mut named = BTreeSet::new();
        for record in &batch.records {
            refs::collect(record.text.as_bytes(), &mut named);
        }
        for (blob, bytes) in &batch.blobs {
            refs::collect(bytes, &mut named);
            self.put_large(blob, bytes)?;
        }
        let files = self.with_files(&named);
        let mut is_new = false;
        let head = self.write_with(|transaction| {
            lease_rows::check(transaction, run, lease)?;
            let known = make_room(transaction, run, batch.expected_seq)?;
            let before = known.as_ref().and_then(|end| end.hash);
            is_new = known.is_none();
            let key = match (known.map(|end| end.key), batch.records.first()) {
                (Some(key), _) => key,
                (None, Some(first)) => insert_run(transaction, run, first.ts_ms)?,
                (None, None) => {
                    return consume(transaction, run, 0, &batch.consumed).map(|()| None);
                }
            };
            consume(transaction, run, key, &batch.consumed)?;
            let mut head = None;
            let mut hash = before.unwrap_or_else(|| Hash::of_run(run));
            for record in &batch.records {
                let seq = u64::from(record.seq);
                hash = hash.of_record(seq, record.ts_ms, record.text.as_bytes());
                insert_record(transaction, key, record, hash)?;
                head = Some(Head::new(seq, hash));
            }
            if is_new || batch.records.iter().any(|record| record.summary.is_some()) {
                row_hashes::seal(transaction, key)?;
            }
            for (blob, bytes) in batch.blobs.iter().filter(|(_, bytes)| is_small(bytes)) {
                insert_blob(transaction, blob, bytes)?;
            }
            for blob in &files {
                insert_file(transaction, blob)?;
            }
            for blob in &named {
                insert_use(transaction, key, blob)?;
            }
            Ok(head)
        })?;
        let Some(head) = head else { return Ok(None) };
        let is_ordinary = !is_new && batch.changes().next().is_none();
        if is_ordinary && !self.head_failed.load(Ordering::Relaxed) {
            return Ok(Some(head));
        }
        self.heads.write(run, &head)?;
        self.head_failed.store(false, Ordering::Relaxed);
        let is_root = lease.is_some_and(|lease| lease.run == run);
        if is_root && batch.ends_a_run() {
            self.fold();
            self.check_end(run, batch.records.last().map_or(0, |last| last.seq))?;
        }
        Ok(None)
    }

    /// Writes the head that an append has left. A failure is reported by the next append.
    pub(super) fn write_head(&self, run: RunId, head: &Head) {
        if self.heads.write(run, head).is_err() {
            self.head_failed.store(true, Ordering::Relaxed);
        }
    }

    /// Checks all records of a run and of its sub-workflows as another process would read them. `SQLite` keeps what it has read, so it
    /// does not notice that the files it has open were truncated or overwritten.
    fn check_end(&self, run: RunId, seq: u32) -> Result<(), StoreError> {
        let other = Self::open_read_only(&self.dir)?;
        for member in self.family(run)? {
            let last = other.read_with(|conn| check_chain(conn, member))?;
            let head = self.heads.read(member)?.map_or(1, |head| head.seq);
            let expected = if member == run { u64::from(seq) } else { head };
            if last < expected {
                return Err(StoreError::Lost {
                    run: member,
                    from: last + 1,
                    to: expected,
                    path: self.path.clone(),
                });
            }
        }
        Ok(())
    }

    pub(super) fn read(
        &self,
        run: RunId,
        after_seq: u64,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        // Before the database, which is never behind it.
        let head = self.heads.read(run)?;
        self.read_below(run, head.as_ref(), after_seq, limit)
    }

    /// The same, where the log went as far as `head` says.
    pub(super) fn read_below(
        &self,
        run: RunId,
        head: Option<&Head>,
        after_seq: u64,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let Ok(after) = u32::try_from(after_seq) else { return Ok(Vec::new()) };
        let events = self.read_with(|conn| {
            let Some(run_row) = run_row(conn, run)? else {
                let lost = head.map(|head| self.lost(run, 0, head));
                return lost.map_or(Ok(Vec::new()), |lost| Err(lost.into()));
            };
            self.read_log(conn, run, &run_row, head, after, limit)
        });
        match events {
            Err(_) if head.is_some() && self.was_removed(run)? => Ok(Vec::new()),
            events => events,
        }
    }

    /// Whether a run that had a head when a read began is gone: another process removes its head, and then its records.
    fn was_removed(&self, run: RunId) -> Result<bool, StoreError> {
        let has_records = self.read_with(|conn| Ok(run_row(conn, run)?))?.is_some();
        Ok(!has_records && self.heads.read(run)?.is_none())
    }

    fn read_log(
        &self,
        conn: &Connection,
        run: RunId,
        run_row: &RunRow,
        head: Option<&Head>,
        after: u32,
        limit: usize,
    ) -> Result<Vec<Event>, Fault> {
        let key = run_row.key;
        let mut chain = Chain::start(conn, run, run_row, head, after)?;
        let mut select = conn.prepare_cached(select_events(run_row.unhashed.is_some()))?;
        let rows_limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut rows = select.query([row_id(key, after), row_id(key, u32::MAX), rows_limit])?;
        let mut events = Vec::new();
        let mut is_half_written = false;
        while let Some(row) = rows.next()? {
            let seq = seq(row.get(0)?);
            let ts_ms = row.get(1)?;
            let text = row.get_ref(2)?.as_bytes().map_err(rusqlite::Error::from)?;
            let as_written = chain.check(seq, ts_ms, text, row.get_ref(3)?);
            match (record::decode(text), as_written) {
                (Ok(entry), Ok(())) => events.push(Event { run_id: run, seq, ts_ms, entry }),
                (Err(Damage::CutOff(_)), _) if last(conn, key)? == seq => {
                    is_half_written = true;
                    break;
                }
                (Err(damage), Ok(())) => {
                    let detail = damage.detail();
                    return Err(StoreError::BadEvent { run, seq, detail }.into());
                }
                (_, Err(detail)) => return Err(StoreError::Damaged { run, seq, detail }.into()),
            }
        }
        if let Some(head) = head
            && events.len() < limit
            && !is_half_written
        {
            let last = last(conn, key)?;
            if last < head.seq {
                return Err(self.lost(run, last, head).into());
            }
        }
        if events.len() < limit
            && let Err(hidden) = self.check_hidden()
            && !has_ended(conn, key)?
        {
            return Err(hidden.into());
        }
        Ok(events)
    }

    fn lost(&self, run: RunId, last: u64, head: &Head) -> StoreError {
        StoreError::Lost { run, from: last + 1, to: head.seq, path: self.path.clone() }
    }
}

/// Checks the hashes of a run's records and nothing else of them. Returns the number of the last one.
fn check_chain(conn: &Connection, run: RunId) -> Result<u64, Fault> {
    let Some(run_row) = run_row(conn, run)? else { return Ok(0) };
    let mut chain = Chain::start(conn, run, &run_row, None, 0)?;
    let mut select = conn.prepare(select_events(run_row.unhashed.is_some()))?;
    let mut rows = select.query([row_id(run_row.key, 0), row_id(run_row.key, u32::MAX), -1])?;
    while let Some(row) = rows.next()? {
        let text = row.get_ref(2)?.as_bytes().map_err(rusqlite::Error::from)?;
        let (seq, ts_ms) = (seq(row.get(0)?), row.get(1)?);
        chain.check(seq, ts_ms, text, row.get_ref(3)?).map_err(|detail| StoreError::Damaged {
            run,
            seq,
            detail,
        })?;
    }
    Ok(chain.last_seq)
}

/// Stores of older formats have no hashes.
fn select_events(has_hashes: bool) -> &'static str {
    if has_hashes {
        "SELECT id, ts, entry, hash FROM events WHERE id > ?1 AND id <= ?2 ORDER BY id LIMIT ?3"
    } else {
        "SELECT id, ts, entry, NULL FROM events WHERE id > ?1 AND id <= ?2 ORDER BY id LIMIT ?3"
    }
}

/// Follows the hashes of a run while its records are read.
struct Chain<'a> {
    /// The last record without a hash; all are in a store of an older format.
    unhashed: u64,
    head: Option<&'a Head>,
    last_seq: u64,
    last_hash: Hash,
}

impl<'a> Chain<'a> {
    /// The chain up to record `after`, whose own hash is believed.
    fn start(
        conn: &Connection,
        run: RunId,
        run_row: &RunRow,
        head: Option<&'a Head>,
        after: u32,
    ) -> Result<Self, Fault> {
        let unhashed = run_row.unhashed.unwrap_or(u64::MAX);
        let last_seq = u64::from(after);
        let mut last_hash = Hash::of_run(run);
        if last_seq > unhashed {
            let mut select = conn.prepare_cached("SELECT hash FROM events WHERE id = ?1")?;
            let found: Option<Option<Hash>> =
                select.query_row([row_id(run_row.key, after)], |row| row.get(0)).optional()?;
            // Past the end of the log there is nothing to check.
            last_hash = found.flatten().unwrap_or(last_hash);
        }
        Ok(Self { unhashed, head, last_seq, last_hash })
    }

    /// Whether a record is the next one and as it was written; if not, what is wrong.
    fn check(
        &mut self,
        seq: u64,
        ts_ms: i64,
        text: &[u8],
        stored: ValueRef<'_>,
    ) -> Result<(), String> {
        let expected_seq = self.last_seq + 1;
        self.last_seq = seq;
        if seq != expected_seq {
            return Err(format!("the records from {expected_seq} on are missing"));
        }
        if seq <= self.unhashed {
            return Ok(());
        }
        let hash = self.last_hash.of_record(seq, ts_ms, text);
        self.last_hash = hash;
        if Hash::column_result(stored).ok() != Some(hash) {
            return Err("its text does not match its hash".to_owned());
        }
        match self.head {
            Some(head) if head.seq == seq && !head.is(hash) => {
                Err("it is not the record that was committed".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// The row of a run's event.
fn row_id(key: i64, seq: u32) -> i64 {
    key << 32 | i64::from(seq)
}

/// The sequence number in a row's id.
fn seq(row_id: i64) -> u64 {
    row_id.cast_unsigned() & u64::from(u32::MAX)
}

/// The last sequence number there is a record of, whether or not it can be read.
fn last(conn: &Connection, key: i64) -> rusqlite::Result<u64> {
    let mut select =
        conn.prepare_cached("SELECT max(id) FROM events WHERE id > ?1 AND id <= ?2")?;
    let range = [row_id(key, 0), row_id(key, u32::MAX)];
    Ok(select.query_row(range, |row| row.get::<_, Option<i64>>(0))?.map_or(0, seq))
}

/// Whether the last that is known of a run is its end.
pub(super) fn has_ended(conn: &Connection, key: i64) -> rusqlite::Result<bool> {
    let mut select = conn.prepare_cached("SELECT ended IS NOT NULL FROM runs WHERE key = ?1")?;
    select.query_row([key], |row| row.get(0))
}

/// What reading a run's log needs of its row.
struct RunRow {
    key: i64,
    /// The last record without a hash; absent in a store of an older format.
    unhashed: Option<u64>,
}

fn run_row(conn: &Connection, run: RunId) -> rusqlite::Result<Option<RunRow>> {
    if !has_hashes(conn)? {
        let key = run_key(conn, run)?;
        return Ok(key.map(|key| RunRow { key, unhashed: None }));
    }
    let mut select = conn.prepare_cached("SELECT key, unhashed FROM runs WHERE id = ?1")?;
    let found = select.query_row([run.to_string()], |row| {
        let unhashed: i64 = row.get(1)?;
        Ok(RunRow { key: row.get(0)?, unhashed: Some(unhashed.cast_unsigned()) })
    });
    found.optional()
}

/// How many records of a run have no hash.
pub(super) fn unhashed(conn: &Connection, run: RunId) -> rusqlite::Result<u64> {
    Ok(run_row(conn, run)?.map_or(0, |row| row.unhashed.unwrap_or(u64::MAX)))
}

/// Where a run's log ends.
pub(super) struct LogEnd {
    pub(super) key: i64,
    /// The last sequence number there is a record of, whether or not it can be read.
    pub(super) seq: u64,
    /// That record's hash, if it has one.
    pub(super) hash: Option<Hash>,
}

/// Where the log of a run ends, if there is one.
pub(super) fn end(conn: &Connection, run: RunId) -> rusqlite::Result<Option<LogEnd>> {
    const SQL: &str = "SELECT runs.key, events.id, events.hash
        FROM runs LEFT JOIN events ON events.id =
            (SELECT id FROM events WHERE id > runs.key << 32 AND id <= runs.key << 32 | 0xffffffff
                ORDER BY id DESC LIMIT 1)
        WHERE runs.id = ?1";
    let mut select = conn.prepare_cached(SQL)?;
    let found = select.query_row([run.to_string()], |row| {
        let seq = row.get::<_, Option<i64>>(1)?.map_or(0, seq);
        Ok(LogEnd { key: row.get(0)?, seq, hash: row.get(2)? })
    });
    found.optional()
}

/// The last sequence number there is a record of, and whether that record is cut off.
pub(super) fn last_record(conn: &Connection, key: i64) -> rusqlite::Result<(u64, bool)> {
    const SQL: &str = "SELECT id, entry FROM events WHERE id > ?1 AND id <= ?2
        ORDER BY id DESC LIMIT 1";
    let mut select = conn.prepare_cached(SQL)?;
    let range = [row_id(key, 0), row_id(key, u32::MAX)];
    let found = select.query_row(range, |row| {
        let decoded = record::decode(row.get_ref(1)?.as_bytes()?);
        Ok((seq(row.get(0)?), matches!(decoded, Err(Damage::CutOff(_)))))
    });
    Ok(found.optional()?.unwrap_or((0, false)))
}

/// Checks that the log ends at `expected`, and removes a last record that is cut off. Returns the end
/// after that.
fn make_room(
    transaction: &Transaction<'_>,
    run: RunId,
    expected: u64,
) -> Result<Option<LogEnd>, Fault> {
    let known = end(transaction, run)?;
    let found = known.as_ref().map_or(0, |end| end.seq);
    if found == expected {
        return Ok(known);
    }
    if let Some(LogEnd { key, .. }) = known
        && found.checked_sub(1) == Some(expected)
        && last_record(transaction, key)?.1
    {
        let row = row_id(key, found as u32);
        transaction.execute("DELETE FROM events WHERE id = ?1", [row])?;
        return Ok(end(transaction, run)?);
    }
    Err(StoreError::Conflict { run, expected, found }.into())
}

fn insert_run(transaction: &Transaction<'_>, run: RunId, ts_ms: i64) -> rusqlite::Result<i64> {
    let status = RunStatus::Running.as_str();
    transaction
        .prepare_cached(
            "INSERT INTO runs (id, workflow, goal, status, started) VALUES (?1, '', '', ?2, ?3)",
        )?
        .insert(params![run.to_string(), status, ts_ms])
}

fn insert_record(
    transaction: &Transaction<'_>,
    key: i64,
    record: &Record,
    hash: Hash,
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("INSERT INTO events (id, ts, entry, hash) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![row_id(key, record.seq), record.ts_ms, record.text, hash])?;
    if let Some(change) = &record.summary {
        update_run(transaction, key, change)?;
    }
    match &record.gate {
        Some(Effect::Asks(gate)) => {
            transaction
                .prepare_cached(
                    "UPDATE inbox SET gate = NULL WHERE run = ?1 AND gate = ?2 AND NOT pending",
                )?
                .execute(params![key, gate])?;
        }
        Some(Effect::Rewinds) => {
            transaction.execute(
                "UPDATE inbox SET gate = NULL, pending = 0 WHERE run = ?1 AND gate IS NOT NULL",
                [key],
            )?;
        }
        None => {}
    }
    Ok(())
}

pub(super) fn update_run(
    transaction: &Transaction<'_>,
    key: i64,
    change: &summary::Change,
) -> rusqlite::Result<()> {
    if let Some(run) = &change.created {
        let parent = run.parent.as_ref().map(|parent| parent.run_id.to_string());
        transaction
            .prepare_cached("UPDATE runs SET workflow = ?2, goal = ?3, parent = ?4 WHERE key = ?1")?
            .execute(params![key, run.workflow, run.goal, parent])?;
    }
    transaction
        .prepare_cached(
            "UPDATE runs SET status = ?2, started = coalesce(?3, started), ended = ?4
             WHERE key = ?1",
        )?
        .execute(params![key, change.status.as_str(), change.started_at_ms, change.ended_at_ms])?;
    Ok(())
}

fn consume(
    transaction: &Transaction<'_>,
    run: RunId,
    key: i64,
    consumed: &[InboxId],
) -> Result<(), Fault> {
    for id in consumed {
        let changed = transaction
            // The events record the result; the message may hold what they do not.
            .prepare_cached(
                "UPDATE inbox SET pending = 0, message = ''
                 WHERE id = ?1 AND run = ?2 AND pending",
            )?
            .execute([id.0, key])?;
        if changed == 0 {
            return Err(StoreError::NotPending { run, id: *id }.into());
        }
    }
    Ok(())
}
