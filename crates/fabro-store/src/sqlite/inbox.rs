use fabro_types::RunId;
use rusqlite::params;

use super::database::{Database, run_key};
use crate::{InboxId, Message, StoreError, gate};

impl Database {
    pub(super) fn post(&self, run: RunId, message: &Message) -> Result<InboxId, StoreError> {
        let text = serde_json::to_string(message).map_err(|error| StoreError::Database {
            path: self.path.clone(),
            detail: error.to_string(),
        })?;
        self.write_with(|transaction| {
            let Some(key) = run_key(transaction, run)? else {
                return Err(StoreError::NotFound { text: run.to_string() }.into());
            };
            let posted = transaction
                .prepare_cached(
                    "INSERT INTO inbox (run, gate, message) VALUES (?1, ?2, ?3)
                     ON CONFLICT DO NOTHING",
                )?
                .execute(params![key, gate::answered(message), text])?;
            match message {
                Message::Answer { node, visit, .. } if posted == 0 => {
                    Err(StoreError::AlreadyAnswered { node: node.clone(), visit: *visit }.into())
                }
                _ => Ok(InboxId(transaction.last_insert_rowid())),
            }
        })
    }

    pub(super) fn pending(&self, run: RunId) -> Result<Vec<(InboxId, Message)>, StoreError> {
        const SQL: &str = "SELECT id, message FROM inbox
            WHERE run = (SELECT key FROM runs WHERE id = ?1) AND pending ORDER BY id";
        self.read_with(|conn| {
            let mut select = conn.prepare_cached(SQL)?;
            let mut rows = select.query([run.to_string()])?;
            let mut pending = Vec::new();
            while let Some(row) = rows.next()? {
                let id = row.get(0)?;
                let text = row.get_ref(1)?.as_bytes().map_err(rusqlite::Error::from)?;
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
}
