//! `Idempotency-Key`: a request that is sent again does not start a second run.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::http::{HeaderMap, StatusCode};
use fabro_store::{Runs as _, SqliteStore};
use fabro_types::RunId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::problem::Problem;
use crate::turns::Turns;

/// How long an answer is kept.
const KEPT: Duration = Duration::from_hours(24);

/// How the names of files begin that are not written to their end.
const UNFINISHED: &str = ".tmp";

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
    store: Arc<SqliteStore>,
    /// One request with the same key at a time.
    turns: Turns<PathBuf>,
}

impl Once {
    pub(crate) fn new(store: Arc<SqliteStore>) -> Self {
        Self { dir: store.dir().join("requests"), store, turns: Turns::default() }
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
        let turn = self.turns.of(file.clone());
        let _turn = turn.lock().await;
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
                if !self.is_created(kept.run).await {
                    // Nothing has started, so the same key may try again.
                    let _ = fs::remove_file(&file);
                }
                Err(problem)
            }
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

    fn keep(&self, file: &Path, kept: &Kept) -> Result<(), Problem> {
        let write = || -> io::Result<()> {
            fs::create_dir_all(&self.dir)?;
            let mut new = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(&self.dir)?;
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
            // The store may be a directory that was there before, with files of others.
            if !is_ours(&entry.file_name()) {
                continue;
            }
            let modified = entry.metadata().and_then(|it| it.modified());
            let age = modified.ok().and_then(|it| now.duration_since(it).ok());
            if age.is_some_and(|age| age > KEPT) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// Whether a file has a name as answers have, or as one has that was not written to its end.
fn is_ours(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let is_hash =
        |stem: &str| stem.len() == 64 && stem.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.strip_suffix(".json").is_some_and(is_hash) || name.starts_with(UNFINISHED)
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

    #[test]
    fn only_answers_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let once = Once::new(Arc::new(SqliteStore::open(dir.path()).unwrap()));
        fs::create_dir(&once.dir).unwrap();
        let answer = format!("{}.json", digest(b"k"));
        let names = ["list.json", "2024.txt", ".tmpAb12Cd", &answer];
        for name in names {
            let file = fs::File::create(once.dir.join(name)).unwrap();
            file.set_modified(SystemTime::now() - 2 * KEPT).unwrap();
        }
        once.remove_old();
        let left = names.map(|name| once.dir.join(name).exists());
        assert_eq!(left, [true, true, false, false]);
    }

    #[tokio::test]
    async fn a_request_that_failed_after_its_run_was_created_creates_no_other() {
        let [first, second] = fails_twice(true).await;
        assert_eq!(first, second);
        let [first, second] = fails_twice(false).await;
        assert_ne!(first, second);
    }
}
