use std::ops::Deref;

use rusqlite::Connection;

/// The one transaction that may write. Until it is committed, nothing of it is there for others,
/// and dropping it takes back what it did.
///
/// In place of `rusqlite`'s own because that compiles `BEGIN` and `COMMIT` anew each time.
pub(super) struct Transaction<'a>(&'a Connection);

impl<'a> Transaction<'a> {
    /// Waits for other writers, and keeps them out from then on.
    pub(super) fn begin(conn: &'a Connection) -> rusqlite::Result<Self> {
        conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        Ok(Self(conn))
    }

    /// Makes it durable. After an error nothing of it has happened.
    pub(super) fn commit(self) -> rusqlite::Result<()> {
        self.prepare_cached("COMMIT")?.execute([]).map(drop)
    }
}

impl Deref for Transaction<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.0
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // Some errors end a transaction by themselves. Should the rollback fail, the next `BEGIN`
        // says so.
        if !self.is_autocommit() {
            let _ = self.execute_batch("ROLLBACK");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_committed_is_taken_back() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE TABLE t (x)").unwrap();
        let insert = |x: i64| {
            let open = Transaction::begin(&conn).unwrap();
            open.execute("INSERT INTO t VALUES (?1)", [x]).unwrap();
            open
        };
        drop(insert(1));
        insert(2).commit().unwrap();
        // An error that ends the transaction by itself.
        let open = insert(3);
        open.execute_batch("ROLLBACK").unwrap();
        open.commit().unwrap_err();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _open = insert(4);
            panic!("in the middle");
        }));
        panicked.unwrap_err();
        insert(5).commit().unwrap();
        let rows = "SELECT group_concat(x, ' ') FROM t";
        let found = conn.query_row(rows, [], |row| row.get::<_, String>(0));
        assert_eq!(found.unwrap(), "2 5");
    }
}
