use std::time::Duration;

use fabro_types::RunId;
use rusqlite::params;

use super::database::Database;
use super::format::has_leases;
use super::lease_rows::{read, write};
use crate::{Lease, LeaseOwner, LeaseRecord, LeaseRequest, LeaseTime, StoreError};

impl Database {
    pub(super) fn acquire(
        &self,
        run: RunId,
        owner: &LeaseOwner,
        ttl: Duration,
    ) -> Result<Lease, StoreError> {
        if self.check_hidden().is_err() {
            // What is lost of this run is said first, where that is known.
            self.read(run, self.last_seq(run)?, 1)?;
        }
        self.write_unsynced(|transaction| {
            let current = read(transaction, run)?;
            match LeaseRecord::request(current.clone(), owner, ttl, LeaseTime::now()) {
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
            let now = LeaseTime::now();
            let current = read(transaction, lease.run)?;
            LeaseRecord::check(current.as_ref(), lease.run, Some(lease), || now)?;
            if let Some(held) = current {
                write(transaction, lease.run, &LeaseRecord { expires: now.after(ttl), ..held })?;
            }
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
            Ok(record.and_then(|record| record.owner(LeaseTime::now()).cloned()))
        })
    }
}
