use fabro_types::RunId;
use rusqlite::types::FromSql as _;
use rusqlite::{Connection, params};

use super::chain::Hash;
use super::database::{Database, run_key};
use super::fault::Fault;
use super::format::has_hashes;
use super::heads::Head;
use super::log;
use super::row_hashes::message_sum;
use crate::{InboxId, Message, RunAt, StoreError, gate};

impl Database {
    pub(super) fn post(
        &self,
        run: RunId,
        message: &Message,
        at: Option<RunAt>,
    ) -> Result<InboxId, StoreError> {
        let text = serde_json::to_string(message).map_err(|error| StoreError::Database {
            path: self.path.clone(),
            detail: error.to_string(),
        })?;
        let hash = message_sum(text.as_bytes());
        let id = self.write_with(|transaction| {
            let Some(key) = run_key(transaction, run)? else {
                return Err(StoreError::NotFound { text: run.to_string() }.into());
            };
            if let Some(at) = at {
                at.check(log::end(transaction, at.run)?.map_or(0, |end| end.seq))?;
            }
            let posted = transaction
                .prepare_cached(
                    "INSERT INTO inbox (run, gate, message, sum) VALUES (?1, ?2, ?3, ?4)
                     ON CONFLICT DO NOTHING",
                )?
                .execute(params![key, gate::answered(message), text, hash])?;
            match message {
                Message::Answer { node, visit, .. } if posted == 0 => {
                    Err(StoreError::AlreadyAnswered { node: node.clone(), visit: *visit }.into())
                }
                _ => Ok(InboxId(transaction.last_insert_rowid())),
            }
        })?;
        self.heads.write_inbox(run, &Head::new(id.0.cast_unsigned(), hash))?;
        Ok(id)
    }

    pub(super) fn pending(&self, run: RunId) -> Result<Vec<(InboxId, Message)>, StoreError> {
        // Before the database, which is never behind it.
        let newest = self.heads.read_inbox(run)?;
        self.read_with(|conn| {
            if let Some(head) = newest {
                self.check_posted(conn, run, &head)?;
            }
            let has_hashes = has_hashes(conn)?;
            let sum_column = if has_hashes { "sum" } else { "NULL" };
            let mut select = conn.prepare_cached(&format!(
                "SELECT id, message, {sum_column} FROM inbox
                WHERE run = (SELECT key FROM runs WHERE id = ?1) AND pending ORDER BY id"
            ))?;
            let mut rows = select.query([run.to_string()])?;
            let mut pending = Vec::new();
            while let Some(row) = rows.next()? {
                let id = row.get(0)?;
                let text = row.get_ref(1)?.as_bytes().map_err(rusqlite::Error::from)?;
                let stored = Hash::column_result(row.get_ref(2)?).ok();
                if has_hashes && stored != Some(message_sum(text)) {
                    let path = self.path.clone();
                    let detail = format!("message {id} of its inbox was changed");
                    return Err(StoreError::Corrupt { path, detail }.into());
                }
                let message =
                    serde_json::from_slice(text).map_err(|error| StoreError::Corrupt {
                        path: self.path.clone(),
                        detail: format!("message {id} of its inbox: {error}"),
                    })?;
                pending.push((InboxId(id), message));
            }
            Ok(pending)
        })
    }

    /// Checks that the newest message is there, pending or not.
    fn check_posted(&self, conn: &Connection, run: RunId, head: &Head) -> Result<(), Fault> {
        const SQL: &str = "SELECT 1 FROM inbox
            WHERE id = ?1 AND run = (SELECT key FROM runs WHERE id = ?2)";
        let mut select = conn.prepare_cached(SQL)?;
        if select.exists(params![head.seq.cast_signed(), run.to_string()])? {
            return Ok(());
        }
        let detail = format!("a message to run {run} that was posted is missing");
        Err(StoreError::Corrupt { path: self.path.clone(), detail }.into())
    }
}
