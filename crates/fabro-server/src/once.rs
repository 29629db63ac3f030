//! `Idempotency-Key`: a request that is sent again does not start a second run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, StatusCode};
use fabro_store::{RequestClaim, RequestKey, Runs as _, SqliteStore};
use fabro_types::RunId;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::problem::Problem;
use crate::turns::Turns;

/// How long an answer is kept.
const RETENTION: Duration = Duration::from_hours(24);

/// How long a request waits while another server handles the same one, and the poll interval.
const BUSY_TIMEOUT: Duration = Duration::from_mins(1);
const BUSY_POLL: Duration = Duration::from_millis(50);

/// The longest key, in bytes.
const MAX_KEY: usize = 255;

/// The idempotency cache: answers to requests with a key, as rows of the store. All servers of the store share it, and
/// it survives restarts.
pub(crate) struct Once {
    store: Arc<SqliteStore>,
    /// One request with the same key at a time.
    turns: Turns<String>,
}

impl Once {
    pub(crate) fn new(store: Arc<SqliteStore>) -> Self {
        Self { store, turns: Turns::default() }
    }

    /// Executes a request once for its key. `execute` gets the run to create, which a request that was
    /// interrupted before names too. The second value of the result is true for a kept answer.
    #[expect(clippy::expect_used, reason = "it cannot fail: every key is a string")]
    pub(crate) async fn execute(
        &self,
        headers: &HeaderMap,
        request: &impl Serialize,
        new_run: impl FnOnce() -> Option<RunId>,
        execute: impl AsyncFnOnce(Option<RunId>) -> Result<Value, Problem>,
    ) -> Result<(Value, bool), Problem> {
        let Some(key) = key(headers)? else {
            return Ok((execute(new_run()).await?, false));
        };
        let request = digest(&serde_json::to_vec(request).expect("a request has only string keys"));
        let key = RequestKey { key: digest(key.as_bytes()), request };
        let turn = self.turns.of(key.key.clone());
        let _turn = turn.lock().await;
        let run = match self.claim(&key, new_run()).await? {
            RequestClaim::Begin(run) => run,
            RequestClaim::Answered(answer) => {
                let damaged = |error: serde_json::Error| {
                    let detail = format!("the cached answer cannot be read: {error}");
                    Problem::internal("store_error", detail, "use a new Idempotency-Key")
                };
                return Ok((serde_json::from_str(&answer).map_err(damaged)?, true));
            }
            RequestClaim::Busy => {
                return Err(Problem::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "store_busy",
                    "another server of this store handles the request with this Idempotency-Key",
                    "retry in a moment",
                ));
            }
            RequestClaim::Differs => {
                return Err(Problem::new(
                    StatusCode::UNPROCESSABLE_ENTITY,
                    "idempotency_key_reused",
                    "the Idempotency-Key was used for another request",
                    "use a new key for each request, and the same only to repeat it",
                ));
            }
        };
        match execute(run).await {
            Ok(answer) => {
                self.store.answer_request(&key, Some(answer.to_string())).await?;
                Ok((answer, false))
            }
            Err(problem) => {
                if !self.is_created(run).await {
                    // Nothing has started, so the same key may try again.
                    self.store.answer_request(&key, None).await?;
                }
                Err(problem)
            }
        }
    }

    /// Claims a key; waits while another server handles the request.
    async fn claim(&self, key: &RequestKey, run: Option<RunId>) -> Result<RequestClaim, Problem> {
        let begin = Instant::now();
        loop {
            let claim = self.store.claim_request(key, run, RETENTION).await?;
            if claim != RequestClaim::Busy || begin.elapsed() > BUSY_TIMEOUT {
                return Ok(claim);
            }
            tokio::time::sleep(BUSY_POLL).await;
        }
    }

    /// Whether a request that failed may have created its run: its driver can be running all the same, and the same
    /// key must not start another.
    async fn is_created(&self, run: Option<RunId>) -> bool {
        match run {
            Some(run) => self.store.last_seq(run).await.map_or(true, |last| last > 0),
            None => false,
        }
    }
}

/// The key of a request, if it has one.
pub(crate) fn key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    let key = key.to_str().unwrap_or_default().trim();
    if key.is_empty() || key.len() > MAX_KEY {
        return Err(Problem::invalid(
            "the Idempotency-Key is empty, too long, or has characters beyond ASCII",
            format!("send 1 to {MAX_KEY} printable characters, a UUID for example"),
        ));
    }
    Ok(Some(key))
}

fn digest(bytes: &[u8]) -> String {
    let digits = Sha256::digest(bytes).into_iter().map(|byte| format!("{byte:02x}"));
    digits.collect()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use fabro_events::{Entry, Event, EventBody};
    use fabro_store::{Batch, RunLog as _};

    use super::*;

    /// Sends a request twice, which fails both times, the first time after it has created its run or before.
    /// Returns the runs of both.
    async fn fails_twice(is_created: bool) -> [RunId; 2] {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(SqliteStore::open(dir.path()).unwrap());
        let once = Once::new(Arc::clone(&store));
        let mut headers = HeaderMap::new();
        headers.insert("idempotency-key", HeaderValue::from_static("k"));
        let mut runs = Vec::new();
        for number in [1, 2] {
            let start = async |run: Option<RunId>| {
                let run = run.unwrap();
                runs.push(run);
                if is_created && number == 1 {
                    let entry = Entry::new(EventBody::RunStarted {});
                    let event = Event { run_id: run, seq: 1, ts_ms: 0, entry };
                    store.append(run, 0, &Batch::of(&[event])).await.unwrap();
                }
                Err(Problem::invalid("the driver has recorded nothing", "wait"))
            };
            let new_run = || Some(RunId::from_parts(1, number));
            assert!(once.execute(&headers, &"start", new_run, start).await.is_err());
        }
        runs.try_into().unwrap()
    }

    #[tokio::test]
    async fn a_request_that_failed_after_its_run_was_created_creates_no_other() {
        let [first, second] = fails_twice(true).await;
        assert_eq!(first, second);
        let [first, second] = fails_twice(false).await;
        assert_ne!(first, second);
    }
}
