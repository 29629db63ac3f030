use std::time::Duration;

use fabro_types::RunId;
use rusqlite::params;

use super::database::Database;
use super::format::has_leases;
use super::lease_rows::{check, read, write};
use crate::lease::{after, now_ms};
use crate::{Lease, LeaseOwner, LeaseRecord, LeaseRequest, StoreError};

impl Database {
    pub(super) fn acquire(
        &self,
        run: RunId,
        owner: &LeaseOwner,
        ttl: Duration,
    ) -> Result<Lease, StoreError> {
        self.write_unsynced(|transaction| {
            let current = read(transaction, run)?;
            match LeaseRecord::request(current.clone(), owner, ttl, now_ms()) {
                LeaseRequest::Granted(granted) => {
                    write(transaction, run, &granted)?;
                    Ok(Ok(Lease { run, epoch: granted.epoch }))
                }
                LeaseRequest::Refused(held) => {
                    if current.as_ref() != Some(&held) {
                        write(transaction, run, &held)?;
                    }
                    Ok(Err(StoreError::Driven { run, pid: held.owner.map(|owner| owner.pid) }))
                }
            }
        })?
    }

    pub(super) fn renew(&self, lease: Lease, ttl: Duration) -> Result<(), StoreError> {
        self.write_unsynced(|transaction| {
            check(transaction, lease.run, Some(lease))?;
            let expires_ms = after(now_ms(), ttl);
            transaction
                .prepare_cached("UPDATE leases SET expires = ?2 WHERE run = ?1")?
                .execute(params![lease.run.to_string(), expires_ms])?;
            Ok(())
        })
    }

    pub(super) fn release(&self, lease: Lease) -> Result<(), StoreError> {
        self.write_unsynced(|transaction| {
            transaction
                .prepare_cached("UPDATE leases SET owner = NULL WHERE run = ?1 AND epoch = ?2")?
                .execute(params![lease.run.to_string(), lease.epoch.cast_signed()])?;
            Ok(())
        })
    }

    pub(super) fn driver(&self, run: RunId) -> Result<Option<LeaseOwner>, StoreError> {
        self.read_with(|conn| {
            let record = if has_leases(conn)? { read(conn, run)? } else { None };
            Ok(record.and_then(|record| record.owner(now_ms()).cloned()))
        })
    }
}
