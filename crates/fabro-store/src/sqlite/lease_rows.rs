//! The rows of leases.

use std::collections::BTreeSet;

use fabro_types::RunId;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

use super::chain::Hash;
use super::fault::Fault;
use super::format::has_leases;
use super::transaction::Transaction;
use crate::{Lease, LeaseOwner, LeaseRecord, LeaseTime};

/// What the column `owner` holds, as JSON.
#[derive(Serialize, Deserialize)]
struct OwnerJson {
    #[serde(flatten)]
    owner: LeaseOwner,
    /// [`LeaseTime::monotonic_ms`] of the expiry; earlier versions neither write nor read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_monotonic_ms: Option<i64>,
    /// A hash of the rest. It makes each version of the row differ from the one before in many words: a page that was
    /// not written whole then does not look like a [damaged one](super::wal).
    #[serde(skip_deserializing)]
    hash: String,
}

/// The runs that are driven at the moment, without their sub-workflows.
pub(super) fn driven(conn: &Connection) -> Result<BTreeSet<RunId>, Fault> {
    if !has_leases(conn)? {
        return Ok(BTreeSet::new());
    }
    let mut select = conn
        .prepare_cached("SELECT epoch, owner, expires, run FROM leases WHERE owner IS NOT NULL")?;
    let mut rows = select.query([])?;
    let now = LeaseTime::now();
    let mut driven = BTreeSet::new();
    while let Some(row) = rows.next()? {
        if record(row)?.owner(now).is_some() {
            // A text that is not an id names no run.
            driven.extend(row.get::<_, String>(3)?.parse::<RunId>());
        }
    }
    Ok(driven)
}

/// Checks what a commit is made under: `lease`, or none where no process may have one.
pub(super) fn check(
    transaction: &Transaction<'_>,
    run: RunId,
    lease: Option<Lease>,
) -> Result<(), Fault> {
    let current = read(transaction, lease.map_or(run, |lease| lease.run))?;
    Ok(LeaseRecord::check(current.as_ref(), run, lease, LeaseTime::now)?)
}

pub(super) fn read(conn: &Connection, run: RunId) -> rusqlite::Result<Option<LeaseRecord>> {
    let mut select =
        conn.prepare_cached("SELECT epoch, owner, expires FROM leases WHERE run = ?1")?;
    select.query_row([run.to_string()], record).optional()
}

fn record(row: &Row<'_>) -> rusqlite::Result<LeaseRecord> {
    let owner: Option<String> = row.get(1)?;
    // An owner that cannot be read was written by no version of the program.
    let owner: Option<OwnerJson> = owner.and_then(|owner| serde_json::from_str(&owner).ok());
    let monotonic_ms = owner.as_ref().and_then(|owner| owner.expires_monotonic_ms);
    Ok(LeaseRecord {
        epoch: row.get::<_, i64>(0)?.cast_unsigned(),
        owner: owner.map(|owner| owner.owner),
        expires: LeaseTime { wall_ms: row.get(2)?, monotonic_ms },
    })
}

pub(super) fn write(
    transaction: &Transaction<'_>,
    run: RunId,
    record: &LeaseRecord,
) -> rusqlite::Result<()> {
    let expires = record.expires;
    let owner = record.owner.clone().map(|owner| {
        let times =
            [expires.wall_ms, expires.monotonic_ms.unwrap_or_default()].map(i64::to_le_bytes);
        let epoch = record.epoch.to_le_bytes();
        let hash = Hash::of(&[run.to_string().as_bytes(), &epoch, &times.concat()]).to_hex();
        let owner = OwnerJson { owner, expires_monotonic_ms: expires.monotonic_ms, hash };
        serde_json::json!(owner).to_string()
    });
    transaction
        .prepare_cached(
            "INSERT INTO leases (run, epoch, owner, expires) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (run) DO UPDATE SET epoch = ?2, owner = ?3, expires = ?4",
        )?
        .execute(params![run.to_string(), record.epoch.cast_signed(), owner, expires.wall_ms])?;
    Ok(())
}
