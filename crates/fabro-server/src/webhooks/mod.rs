//! Webhooks: the events of all runs of a store, sent to endpoints as they are recorded. Each endpoint has a cursor in files,
//! and a task of its own: one that does not answer holds up no other, and no run.

mod cursor;
mod message;
mod send;

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fabro_config::Webhook;
use fabro_events::Event;
use fabro_run::now_ms;
use fabro_store::{RunLog as _, Runs as _, SqliteStore, StoreError};
use fabro_types::RunId;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio::time::sleep;

use cursor::{Cursor, FAILING};
use message::{Key, cloud_event, name};
use send::{Endpoint, NotTaken};

/// The directory of a store with the cursors of endpoints.
const DIR: &str = "webhooks";

/// How many events are read from the store at a time.
const PAGE: usize = 256;

/// Changes of the store that follow each other within this time are looked at once.
const PERIOD: Duration = Duration::from_millis(200);

/// The delays before an event is sent again begin with this one, and double.
const FIRST_DELAY: Duration = Duration::from_secs(1);

/// The longest delay, also where the endpoint asks for a longer one.
const LONGEST_DELAY: Duration = Duration::from_mins(1);

/// Why webhooks cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebhookError {
    /// Not an address.
    #[error("`{0}` is not the URL of a webhook")]
    Url(String),
    /// The secret is not there.
    #[error("the environment variable `{0}` with the secret of a webhook is not set")]
    NoSecret(String),
    /// The secret is none.
    #[error("`{0}` holds no secret of a webhook: it has to be 24 to 64 random bytes in base64")]
    Secret(String),
    /// There is no client.
    #[error("requests cannot be sent: {0}")]
    Client(String),
}

/// An endpoint that takes no events at the moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailingWebhook {
    /// The scheme, host and port of its URL.
    pub host: String,
    /// What happened at the last try.
    pub reason: String,
    /// The event that it has not taken; those after it wait.
    pub event: String,
    /// How often it was sent.
    pub tries: u32,
    /// When it was sent first, in milliseconds since 1970.
    pub since_ms: u64,
}

/// The endpoints of a store that took no event when they were asked last.
///
/// # Errors
///
/// What a server wrote about them cannot be read.
pub fn failing_webhooks(store_dir: &Path) -> io::Result<Vec<FailingWebhook>> {
    let dirs = match fs::read_dir(store_dir.join(DIR)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        dirs => dirs?,
    };
    let mut failing = Vec::new();
    for dir in dirs {
        match fs::read(dir?.path().join(FAILING)) {
            Ok(text) => failing.push(serde_json::from_slice::<FailingWebhook>(&text)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    failing.sort_by(|a, b| a.host.cmp(&b.host));
    Ok(failing)
}

/// Removes the reports about endpoints that are no longer in the settings.
pub(crate) fn forget_others(store_dir: &Path, known: &[Delivery]) -> io::Result<()> {
    let ids: HashSet<String> = known.iter().map(Delivery::id).collect();
    let dirs = match fs::read_dir(store_dir.join(DIR)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        dirs => dirs?,
    };
    for dir in dirs {
        let dir = dir?;
        if ids.contains(&*dir.file_name().to_string_lossy()) {
            continue;
        }
        match fs::remove_file(dir.path().join(FAILING)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Where a server reports what goes wrong beside requests.
pub(crate) type Warn = Arc<dyn Fn(String) + Send + Sync>;

/// The deliveries to one endpoint.
pub(crate) struct Delivery {
    hook: Webhook,
    endpoint: Endpoint,
}

impl Delivery {
    /// Reads the secret of a webhook. `variable` looks a variable of the environment up.
    pub(crate) fn new(
        hook: Webhook,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, WebhookError> {
        let secret = variable(&hook.secret_env)
            .ok_or_else(|| WebhookError::NoSecret(hook.secret_env.clone()))?;
        let key = Key::read(&hook.secret_env, &secret)?;
        let endpoint = Endpoint::new(&hook.url, key)?;
        Ok(Self { hook, endpoint })
    }

    /// Delivers until the future is dropped. `changes` says when to look at the store.
    pub(crate) async fn run(
        self,
        store: Arc<SqliteStore>,
        mut changes: watch::Receiver<u64>,
        warn: Warn,
    ) {
        let mut reported = String::new();
        let mut report = |text: String| {
            // Repeated while it lasts.
            if reported != text {
                warn(text.clone());
                reported = text;
            }
        };
        let cursor = loop {
            match self.open(&store).await {
                Ok(Some(cursor)) => break cursor,
                Ok(None) => report(format!("another server sends events to {}", self.host())),
                Err(error) => report(format!("no events are sent to {}: {error}", self.host())),
            }
            sleep(LONGEST_DELAY).await;
        };
        let mut sender = Sender::new(self, store, cursor, Arc::clone(&warn));
        loop {
            changes.mark_unchanged();
            if let Err(error) = sender.scan().await {
                report(format!("events to {} wait: {error}", sender.of.host()));
                sleep(FIRST_DELAY).await;
                continue;
            }
            sleep(PERIOD).await;
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    fn host(&self) -> String {
        self.endpoint.host()
    }

    async fn open(&self, store: &SqliteStore) -> Result<Option<Cursor>, SendError> {
        let dir = store.dir().join(DIR).join(self.id());
        let mut runs = HashMap::new();
        if Cursor::is_new(&dir) {
            for run in store.list().await? {
                runs.insert(run.id, store.last_seq(run.id).await?);
            }
        }
        Ok(Cursor::open(&dir, &self.hook.url, runs)?)
    }

    /// The name of its directory.
    fn id(&self) -> String {
        let digest = Sha256::digest(&self.hook.url);
        digest.iter().take(8).fold(String::new(), |mut id, byte| {
            let _ = write!(id, "{byte:02x}");
            id
        })
    }
}

/// Why events wait, besides an endpoint that does not take them.
#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the cursor of the webhook: {0}")]
    Cursor(#[from] io::Error),
}

struct Sender {
    of: Delivery,
    store: Arc<SqliteStore>,
    cursor: Cursor,
    warn: Warn,
    /// The runs of which everything is delivered, with the end of each: one that continues has another.
    settled: HashMap<RunId, i64>,
    /// The runs whose log cannot be read.
    unreadable: HashSet<RunId>,
    /// There may be a report of failures.
    is_failing: bool,
}

impl Sender {
    fn new(of: Delivery, store: Arc<SqliteStore>, cursor: Cursor, warn: Warn) -> Self {
        Self {
            of,
            store,
            cursor,
            warn,
            settled: HashMap::new(),
            unreadable: HashSet::new(),
            is_failing: true,
        }
    }

    /// Delivers what is new, of each run in the order of its log.
    async fn scan(&mut self) -> Result<(), SendError> {
        for run in self.store.list().await?.into_iter().rev() {
            if run.ended_at_ms.is_some() && self.settled.get(&run.id).copied() == run.ended_at_ms {
                continue;
            }
            match self.deliver_run(run.id).await {
                Ok(()) => {
                    self.unreadable.remove(&run.id);
                    if let Some(ended_at_ms) = run.ended_at_ms {
                        self.settled.insert(run.id, ended_at_ms);
                    }
                }
                // Other runs need not wait for one that is damaged.
                Err(SendError::Store(error)) if !matches!(error, StoreError::Busy { .. }) => {
                    if self.unreadable.insert(run.id) {
                        (self.warn)(format!("events are not sent to {}: {error}", self.of.host()));
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn deliver_run(&mut self, run: RunId) -> Result<(), SendError> {
        loop {
            let after = self.cursor.seq(run)?;
            let page = self.store.read(run, after, PAGE).await?;
            for event in &page {
                let published = event.to_json();
                let is_wanted = self.of.hook.wants(name(&published));
                if is_wanted {
                    self.deliver(event, published).await?;
                }
                self.cursor.passed(run, event.seq);
                if is_wanted {
                    self.cursor.save(run, 1)?;
                }
            }
            self.cursor.save(run, PAGE as u64)?;
            if page.len() < PAGE {
                return Ok(());
            }
        }
    }

    /// Sends an event until the endpoint has taken it.
    async fn deliver(&mut self, event: &Event, published: serde_json::Value) -> io::Result<()> {
        let id = event.id();
        let body = cloud_event(event, published).to_string();
        let since_ms = now_ms().unsigned_abs();
        let mut tries: u32 = 0;
        let mut last_reason = String::new();
        loop {
            let NotTaken { reason, retry_after } =
                match self.of.endpoint.send(&id, body.clone()).await {
                    Ok(()) => break,
                    Err(not_taken) => not_taken,
                };
            let doubled = FIRST_DELAY.saturating_mul(1 << tries.min(6));
            let delay = retry_after.unwrap_or(doubled).clamp(FIRST_DELAY, LONGEST_DELAY);
            tries += 1;
            if reason != last_reason {
                (self.warn)(format!("webhook: {reason}; the events from {id} on wait"));
                last_reason.clone_from(&reason);
            }
            let report =
                FailingWebhook { host: self.of.host(), reason, event: id.clone(), tries, since_ms };
            self.cursor.failing(Some(&serde_json::to_vec(&report)?))?;
            self.is_failing = true;
            sleep(delay).await;
        }
        if tries > 0 {
            (self.warn)(format!("webhook: {} takes events again", self.of.host()));
        }
        if std::mem::take(&mut self.is_failing) {
            self.cursor.failing(None)?;
        }
        Ok(())
    }
}

/// The names that settings may use are those of the events.
#[test]
fn settings_know_the_names_of_events() {
    let source = include_str!("../../../fabro-events/src/body.rs");
    let names = source.lines().filter_map(|line| {
        let name = line.trim().strip_prefix("#[serde(rename = \"")?.strip_suffix("\")]")?;
        name.contains('.').then_some(name)
    });
    assert_eq!(names.collect::<Vec<_>>(), fabro_config::EVENT_NAMES);
}
