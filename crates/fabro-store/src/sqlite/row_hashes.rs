//! The sums in the rows of runs and messages, which show a change made by another program.

use rusqlite::params;
use rusqlite::types::{FromSql as _, ValueRef};

use super::chain::Hash;
use super::transaction::Transaction;

/// What the sum of a run's row is made from, and the sum.
pub(super) const ROW_TEXT: &str =
    "json_array(id, parent, workflow, goal, status, started, ended, unhashed), sum";

/// Whether a row has the sum of its text. Rows of stores of older formats have neither.
pub(super) fn is_sealed(text: ValueRef<'_>, sum: ValueRef<'_>) -> bool {
    let Ok(text) = text.as_bytes() else { return true };
    Hash::column_result(sum).ok() == Some(Hash::of(&[text]))
}

/// Renews the sum of a run's row.
pub(super) fn seal(transaction: &Transaction<'_>, key: i64) -> rusqlite::Result<()> {
    let select = format!("SELECT {ROW_TEXT} FROM runs WHERE key = ?1");
    let sum = transaction
        .prepare_cached(&select)?
        .query_row([key], |row| Ok(Hash::of(&[row.get_ref(0)?.as_bytes()?])))?;
    transaction
        .prepare_cached("UPDATE runs SET sum = ?2 WHERE key = ?1")?
        .execute(params![key, sum])?;
    Ok(())
}

/// Marks the records of an older format as such, and adds the sums of the other rows.
pub(super) fn hash_old_rows(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    transaction.execute_batch(
        "UPDATE runs SET unhashed = coalesce(
            (SELECT id & 0xffffffff FROM events
                WHERE id > runs.key << 32 AND id <= runs.key << 32 | 0xffffffff
                ORDER BY id DESC LIMIT 1), 0)",
    )?;
    let mut select = transaction.prepare("SELECT key FROM runs")?;
    let keys = select.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<i64>>>()?;
    for key in keys {
        seal(transaction, key)?;
    }
    hash_old_messages(transaction)
}

/// The sum of a message.
pub(super) fn message_sum(message: &[u8]) -> Hash {
    Hash::of(&[message])
}

/// Adds the sums of messages that an older format has.
fn hash_old_messages(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let mut select = transaction.prepare("SELECT id, message FROM inbox WHERE pending")?;
    let messages = select.query_map([], |row| {
        Ok((row.get::<_, i64>(0)?, message_sum(row.get_ref(1)?.as_bytes()?)))
    })?;
    for (id, sum) in messages.collect::<rusqlite::Result<Vec<_>>>()? {
        transaction.execute("UPDATE inbox SET sum = ?2 WHERE id = ?1", params![id, sum])?;
    }
    Ok(())
}
