//! The format of a store, and what stores of older formats lack.

use rusqlite::Connection;

/// The format this version writes, and the newest it reads.
pub(super) const FORMAT: i64 = 3;

/// Whether the store has leases: one that is only read may have an older format.
pub(super) fn has_leases(conn: &Connection) -> rusqlite::Result<bool> {
    Ok(format(conn)? >= 2)
}

/// Whether records have hashes: a store that is only read may have an older format.
pub(super) fn has_hashes(conn: &Connection) -> rusqlite::Result<bool> {
    Ok(format(conn)? >= 3)
}

/// The format of an open store.
pub(super) fn format(conn: &Connection) -> rusqlite::Result<i64> {
    conn.prepare_cached("PRAGMA user_version")?.query_row([], |row| row.get(0))
}
