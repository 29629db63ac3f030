//! Idempotency keys of requests: rows that all servers of a store share.

use std::time::Duration;

use fabro_types::RunId;
use rusqlite::{OptionalExtension as _, params};

use super::database::Database;
use crate::{LeaseOwner, LeaseTime, RequestClaim, RequestKey, StoreError};

/// `run` is the id of the run that the request creates, chosen in advance; `answer` is NULL until the request is handled.
/// The table is created with the first request, so the format version of the store does not change.
const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS requests (
        key TEXT PRIMARY KEY,
        request TEXT NOT NULL,
        made INTEGER NOT NULL,
        run TEXT,
        owner TEXT NOT NULL,
        answer TEXT
    ) WITHOUT ROWID;
";

impl Database {
    /// Claims a key; rows that are older than `retention` are removed.
    pub(super) fn claim_request(
        &self,
        key: &RequestKey,
        new_run: Option<RunId>,
        retention: Duration,
    ) -> Result<RequestClaim, StoreError> {
        let owner = LeaseOwner::this_process();
        let now = LeaseTime::now().wall_ms;
        let oldest = now.saturating_sub(i64::try_from(retention.as_millis()).unwrap_or(i64::MAX));
        self.write_with(|transaction| {
            transaction.execute_batch(TABLE)?;
            transaction.execute("DELETE FROM requests WHERE made < ?1", [oldest])?;
            let found = transaction
                .prepare_cached("SELECT request, run, owner, answer FROM requests WHERE key = ?1")?
                .query_row([&key.key], |row| {
                    let run: Option<String> = row.get(1)?;
                    let owner: String = row.get(2)?;
                    Ok((row.get::<_, String>(0)?, run, owner, row.get::<_, Option<String>>(3)?))
                })
                .optional()?;
            let run = match found {
                Some((request, ..)) if request != key.request => return Ok(RequestClaim::Differs),
                Some((_, _, _, Some(answer))) => return Ok(RequestClaim::Answered(answer)),
                Some((_, run, held, None)) => {
                    // No version of the program writes an owner that cannot be parsed.
                    let held: Option<LeaseOwner> = serde_json::from_str(&held).ok();
                    if held.is_some_and(|held| held != owner && !held.has_ended()) {
                        return Ok(RequestClaim::Busy);
                    }
                    run.and_then(|run| run.parse().ok())
                }
                None => new_run,
            };
            transaction
                .prepare_cached(
                    "INSERT INTO requests (key, request, made, run, owner) VALUES (?1, ?2, ?3, ?4, ?5)
                     ON CONFLICT (key) DO UPDATE SET owner = ?5",
                )?
                .execute(params![
                    key.key,
                    key.request,
                    now,
                    run.map(|run| run.to_string()),
                    serde_json::json!(owner).to_string(),
                ])?;
            Ok(RequestClaim::Begin(run))
        })
    }

    /// Stores the answer to a request; `None` releases the key.
    pub(super) fn answer_request(
        &self,
        key: &RequestKey,
        answer: Option<&str>,
    ) -> Result<(), StoreError> {
        self.write_with(|transaction| {
            match answer {
                Some(answer) => transaction.execute(
                    "UPDATE requests SET answer = ?2 WHERE key = ?1",
                    params![key.key, answer],
                )?,
                None => transaction.execute("DELETE FROM requests WHERE key = ?1", [&key.key])?,
            };
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SqliteStore;

    #[tokio::test]
    async fn two_servers_of_a_store_share_a_key() {
        const DAY: Duration = Duration::from_hours(24);
        let dir = tempfile::tempdir().unwrap();
        let [one, two] = [(); 2].map(|()| SqliteStore::open(dir.path()).unwrap());
        let key = RequestKey { key: "k".to_owned(), request: "start".to_owned() };
        let runs = [1, 2].map(|number| RunId::from_parts(1, number));
        let first = one.claim_request(&key, Some(runs[0]), DAY).await.unwrap();
        assert_eq!(first, RequestClaim::Begin(Some(runs[0])));
        // Another process that still handles it.
        let own = LeaseOwner::this_process();
        let parent = LeaseOwner { pid: 1, started: 0, ..own };
        let hold = |owner: LeaseOwner| {
            let owner = serde_json::json!(owner).to_string();
            let held = move |db: &Database| {
                db.write_with(|it| Ok(it.execute("UPDATE requests SET owner = ?1", [owner])?))
            };
            two.thread.run(held)
        };
        hold(LeaseOwner { host: "elsewhere".to_owned(), ..parent.clone() }).await.unwrap();
        let claim = async |store: &SqliteStore| {
            store.claim_request(&key, Some(runs[1]), DAY).await.unwrap()
        };
        assert_eq!(claim(&two).await, RequestClaim::Busy);
        // It has ended: the run that it may have created is not created again.
        hold(LeaseOwner { pid: u32::MAX, ..parent }).await.unwrap();
        #[cfg(target_os = "linux")]
        assert_eq!(claim(&two).await, RequestClaim::Begin(Some(runs[0])));
        one.answer_request(&key, Some("done".to_owned())).await.unwrap();
        assert_eq!(claim(&two).await, RequestClaim::Answered("done".to_owned()));
        let other = RequestKey { request: "other".to_owned(), ..key.clone() };
        let differs = two.claim_request(&other, None, DAY).await.unwrap();
        assert_eq!(differs, RequestClaim::Differs);
        two.answer_request(&key, None).await.unwrap();
        assert_eq!(claim(&one).await, RequestClaim::Begin(Some(runs[1])));
    }

    #[tokio::test]
    async fn old_answers_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(dir.path()).unwrap();
        let key = RequestKey { key: "k".to_owned(), request: "start".to_owned() };
        store.claim_request(&key, None, Duration::ZERO).await.unwrap();
        store.answer_request(&key, Some("done".to_owned())).await.unwrap();
        let old = |it: &Database| {
            it.write_with(|it| Ok(it.execute("UPDATE requests SET made = made - 10", [])?))
        };
        store.thread.run(old).await.unwrap();
        let claim = store.claim_request(&key, None, Duration::from_millis(5)).await.unwrap();
        assert_eq!(claim, RequestClaim::Begin(None));
    }
}
