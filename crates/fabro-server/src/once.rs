//! `Idempotency-Key`: a request that is sent again does not start a second run.

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use axum::http::{HeaderMap, StatusCode};
use fabro_store::SqliteStore;
use fabro_types::RunId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;
use tokio::sync::Mutex;

use crate::problem::Problem;

/// How long an answer is kept.
const KEPT: Duration = Duration::from_hours(24);

/// The longest key, in bytes.
const MAX_KEY: usize = 255;

/// What became of a request with a key.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// The hash of the request.
    request: String,
    /// The run that it starts, known before it is created.
    pub(crate) run: Option<RunId>,
    /// The answer; `None` while it is not known, or where the server ended before that.
    pub(crate) answer: Option<Value>,
}

/// The answers to requests with a key, in the store's directory: a restart of the server loses none.
pub(crate) struct Once {
    dir: PathBuf,
    /// One request with a key at a time.
    turn: Mutex<()>,
}

impl Once {
    pub(crate) fn new(store: &SqliteStore) -> Self {
        Self { dir: store.dir().join("requests"), turn: Mutex::new(()) }
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
        let file = self.dir.join(format!("{}.json", digest(key.as_bytes())));
        let _turn = self.turn.lock().await;
        self.remove_old();
        let kept = fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let mut kept: Kept = match kept {
            Some(Kept { request: of, .. }) if of != request => {
                return Err(Problem::new(
                    StatusCode::UNPROCESSABLE_ENTITY,
                    "idempotency_key_reused",
                    "the Idempotency-Key was used for another request",
                    "use a new key for each request, and the same only to repeat it",
                ));
            }
            Some(Kept { answer: Some(answer), .. }) => return Ok((answer, true)),
            Some(kept) => kept,
            None => Kept { request, run: new_run(), answer: None },
        };
        self.keep(&file, &kept)?;
        match execute(kept.run).await {
            Ok(answer) => {
                kept.answer = Some(answer.clone());
                self.keep(&file, &kept)?;
                Ok((answer, false))
            }
            Err(problem) => {
                // Nothing has started, so the same key may try again.
                let _ = fs::remove_file(&file);
                Err(problem)
            }
        }
    }

    fn keep(&self, file: &std::path::Path, kept: &Kept) -> Result<(), Problem> {
        let write = || -> io::Result<()> {
            fs::create_dir_all(&self.dir)?;
            let mut new = NamedTempFile::new_in(&self.dir)?;
            new.write_all(&serde_json::to_vec(kept)?)?;
            new.as_file().sync_all()?;
            new.persist(file)?;
            Ok(())
        };
        write().map_err(|error| {
            Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "store_error",
                format!("the Idempotency-Key cannot be kept: {error}"),
                "check the directory of the store",
            )
        })
    }

    fn remove_old(&self) {
        let now = SystemTime::now();
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let modified = entry.metadata().and_then(|it| it.modified());
            let age = modified.ok().and_then(|it| now.duration_since(it).ok());
            if age.is_some_and(|age| age > KEPT) {
                let _ = fs::remove_file(entry.path());
            }
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
