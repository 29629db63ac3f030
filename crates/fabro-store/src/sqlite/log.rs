use std::collections::BTreeSet;
use std::sync::Arc;

use fabro_events::Event;
use fabro_types::{BlobRef, RunId, RunStatus};
use rusqlite::{Connection, OptionalExtension, params};

use super::blobs::{insert_blob, insert_use, is_small};
use super::database::Database;
use super::database::run_key;
use super::fault::Fault;
use super::record::{self, Damage};
use super::transaction::Transaction;
use super::{lease, refs};
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
    pub(super) fn append(
        &self,
        batch: &EncodedBatch,
        lease: Option<Lease>,
    ) -> Result<(), StoreError> {
        let run = batch.run;
        let mut named = BTreeSet::new();
        for record in &batch.records {
            refs::collect(record.text.as_bytes(), &mut named);
        }
        for (blob, bytes) in &batch.blobs {
            refs::collect(bytes, &mut named);
            self.put_large(blob, bytes)?;
        }
        self.write_with(|transaction| {
            lease::check(transaction, run, lease)?;
            let known = end(transaction, run)?;
            make_room(transaction, run, known, batch.expected_seq)?;
            let key = match (known.map(|(key, _)| key), batch.records.first()) {
                (Some(key), _) => key,
                (None, Some(first)) => insert_run(transaction, run, first.ts_ms)?,
                (None, None) => return consume(transaction, run, 0, &batch.consumed),
            };
            consume(transaction, run, key, &batch.consumed)?;
            for record in &batch.records {
                insert_record(transaction, key, record)?;
            }
            for (blob, bytes) in batch.blobs.iter().filter(|(_, bytes)| is_small(bytes)) {
                insert_blob(transaction, blob, bytes)?;
            }
            for blob in &named {
                insert_use(transaction, key, blob)?;
            }
            Ok(())
        })
    }

    pub(super) fn read(
        &self,
        run: RunId,
        after_seq: u64,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        const SQL: &str =
            "SELECT id, ts, entry FROM events WHERE id > ?1 AND id <= ?2 ORDER BY id LIMIT ?3";
        let Ok(after) = u32::try_from(after_seq) else { return Ok(Vec::new()) };
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.read_with(|conn| {
            let Some(key) = run_key(conn, run)? else { return Ok(Vec::new()) };
            let mut select = conn.prepare_cached(SQL)?;
            let mut rows = select.query([row_id(key, after), row_id(key, u32::MAX), limit])?;
            let mut events = Vec::new();
            while let Some(row) = rows.next()? {
                let seq = seq(row.get(0)?);
                match record::decode(row.get_ref(2)?.as_bytes().map_err(rusqlite::Error::from)?) {
                    Ok(entry) => {
                        events.push(Event { run_id: run, seq, ts_ms: row.get(1)?, entry });
                    }
                    Err(Damage::CutOff(_)) if last(conn, key)? == seq => break,
                    Err(damage) => {
                        let detail = damage.detail();
                        return Err(StoreError::BadEvent { run, seq, detail }.into());
                    }
                }
            }
            Ok(events)
        })
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

/// The key of a run, if there is one, with what [`last`] says.
fn end(conn: &Connection, run: RunId) -> rusqlite::Result<Option<(i64, u64)>> {
    const SQL: &str = "SELECT key,
            (SELECT id FROM events WHERE id > key << 32 AND id <= key << 32 | 0xffffffff
                ORDER BY id DESC LIMIT 1)
        FROM runs WHERE id = ?1";
    let mut select = conn.prepare_cached(SQL)?;
    let found = select.query_row([run.to_string()], |row| {
        Ok((row.get(0)?, row.get::<_, Option<i64>>(1)?.map_or(0, seq)))
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

/// Checks that the log ends at `expected`, and removes a last record that is cut off.
fn make_room(
    transaction: &Transaction<'_>,
    run: RunId,
    known: Option<(i64, u64)>,
    expected: u64,
) -> Result<(), Fault> {
    let found = known.map_or(0, |(_, last)| last);
    if found == expected {
        return Ok(());
    }
    if let Some((key, _)) = known
        && found.checked_sub(1) == Some(expected)
        && last_record(transaction, key)?.1
    {
        let row = row_id(key, found as u32);
        transaction.execute("DELETE FROM events WHERE id = ?1", [row])?;
        return Ok(());
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

fn insert_record(transaction: &Transaction<'_>, key: i64, record: &Record) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("INSERT INTO events (id, ts, entry) VALUES (?1, ?2, ?3)")?
        .execute(params![row_id(key, record.seq), record.ts_ms, record.text])?;
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

fn update_run(
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
