//! Events as they are committed: one reader of the store for any number of readers of a run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use fabro_events::Event;
use fabro_store::{Follow as _, RunLog as _, Runs as _, SqliteStore, StoreError};
use fabro_types::RunId;
use futures_util::stream::{self, Stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, watch};

/// How often the store is asked whether it has changed, while a client waits for that. A poll takes
/// microseconds.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How many new events of a run are kept for readers that are not ready for them. A reader that falls
/// further behind reads the store again.
const KEPT: usize = 256;

/// How many events are read from the store at a time.
const PAGE: usize = 256;

/// How many streams of events are open at a time.
const MAX_READERS: usize = 256;

/// A comment is sent after this time without an event, which shows the client that the server lives.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// An event as it is sent; without text only the number of it.
#[derive(Clone)]
struct Sent {
    seq: u64,
    text: Bytes,
}

/// The streams of a server.
pub(crate) struct Live {
    store: Arc<SqliteStore>,
    changes: watch::Sender<u64>,
    /// The new events of the runs that have readers.
    tails: Mutex<HashMap<RunId, Weak<Tail>>>,
    readers: Arc<Semaphore>,
}

/// The new events of one run, until its last reader has gone.
struct Tail {
    events: broadcast::Sender<Sent>,
}

impl Live {
    pub(crate) fn new(store: Arc<SqliteStore>) -> Arc<Self> {
        let live = Arc::new(Self {
            store,
            changes: watch::Sender::new(0),
            tails: Mutex::default(),
            readers: Arc::new(Semaphore::new(MAX_READERS)),
        });
        tokio::spawn(poll(Arc::downgrade(&live)));
        live
    }

    /// Changes with the store.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// A place for one more stream; `None` when there are too many.
    pub(crate) fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.readers).try_acquire_owned().ok()
    }

    /// The events of a run after one of them, those that are recorded first and then those that follow,
    /// as the text of server-sent events. Ends when the store cannot be read.
    pub(crate) fn events(
        self: &Arc<Self>,
        run: RunId,
        after: u64,
        place: OwnedSemaphorePermit,
    ) -> impl Stream<Item = Result<Bytes, StoreError>> + Send + use<> {
        let tail = self.tail(run);
        let new = tail.events.subscribe();
        let reader = Reader {
            live: Arc::clone(self),
            run,
            last: after,
            is_behind: true,
            new,
            _tail: tail,
            _place: place,
        };
        stream::try_unfold(reader, async |mut reader| {
            let text = reader.next().await?;
            Ok(Some((text, reader)))
        })
    }

    /// A comment for each change of the store, of any run.
    pub(crate) fn changes(
        self: &Arc<Self>,
        place: OwnedSemaphorePermit,
    ) -> impl Stream<Item = Result<Bytes, StoreError>> + Send + use<> {
        let mut changes = self.changes.subscribe();
        changes.mark_changed();
        stream::try_unfold((changes, place), async |(mut changes, place)| {
            let text = match tokio::time::timeout(HEARTBEAT, changes.changed()).await {
                Ok(Ok(())) => {
                    changes.mark_unchanged();
                    // Several changes in a row are one for the reader.
                    tokio::time::sleep(POLL_INTERVAL).await;
                    Bytes::from_static(b"event: changed\ndata: {}\n\n")
                }
                Ok(Err(_)) => return Ok(None),
                Err(_) => Bytes::from_static(b": alive\n\n"),
            };
            Ok(Some((text, (changes, place))))
        })
    }

    fn tail(self: &Arc<Self>, run: RunId) -> Arc<Tail> {
        let mut tails = self.tails.lock().unwrap_or_else(PoisonError::into_inner);
        tails.retain(|_, tail| tail.strong_count() > 0);
        if let Some(tail) = tails.get(&run).and_then(Weak::upgrade) {
            return tail;
        }
        let tail = Arc::new(Tail { events: broadcast::Sender::new(KEPT) });
        tails.insert(run, Arc::downgrade(&tail));
        let changes = self.changes.subscribe();
        tokio::spawn(feed(Arc::clone(&self.store), run, Arc::downgrade(&tail), changes));
        tail
    }
}

/// Asks the store whether it has changed, as long as the server lives.
async fn poll(live: Weak<Live>) {
    let mut last = None;
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let Some(live) = live.upgrade() else { return };
        if live.changes.receiver_count() == 0 {
            continue;
        }
        // A store that is locked for a moment is asked again.
        let Ok(mark) = live.store.mark().await else { continue };
        if last.replace(mark) != Some(mark) {
            live.changes.send_modify(|count| *count = count.wrapping_add(1));
        }
    }
}

/// Reads the new events of a run once for all of its readers.
async fn feed(
    store: Arc<SqliteStore>,
    run: RunId,
    tail: Weak<Tail>,
    mut changes: watch::Receiver<u64>,
) {
    // Readers read for themselves what is before the first event that they get here.
    let mut last = loop {
        match store.last_seq(run).await {
            Ok(last) => break last,
            // A store that is locked for a moment is asked again, for as long as there are readers.
            Err(_) if tail.strong_count() > 0 => tokio::time::sleep(POLL_INTERVAL).await,
            Err(_) => return,
        }
    };
    // One may have been committed after a reader has read and before this: an event without text makes
    // readers look.
    if let Some(tail) = tail.upgrade() {
        let _ = tail.events.send(Sent { seq: last, text: Bytes::new() });
    }
    while changes.changed().await.is_ok() {
        loop {
            let Some(tail) = tail.upgrade() else { return };
            let Ok(page) = store.read(run, last, PAGE).await else { break };
            for event in &page {
                last = event.seq;
                // Fails only without readers.
                let _ = tail.events.send(Sent { seq: event.seq, text: sse(event) });
            }
            if page.len() < PAGE {
                break;
            }
        }
    }
}

/// An event as server-sent events have it; its id is the sequence number.
fn sse(event: &Event) -> Bytes {
    Bytes::from(format!("id: {}\ndata: {}\n\n", event.seq, event.to_json_line()))
}

/// One stream of the events of a run. It holds no more than a page of them.
struct Reader {
    live: Arc<Live>,
    run: RunId,
    /// The last event that was sent.
    last: u64,
    /// The store may have events that were not sent and do not come from the tail.
    is_behind: bool,
    new: broadcast::Receiver<Sent>,
    _tail: Arc<Tail>,
    _place: OwnedSemaphorePermit,
}

impl Reader {
    async fn next(&mut self) -> Result<Bytes, StoreError> {
        loop {
            if self.is_behind {
                let page = self.live.store.read(self.run, self.last, PAGE).await?;
                self.is_behind = page.len() == PAGE;
                if let Some(last) = page.last() {
                    self.last = last.seq;
                    let texts: Vec<Bytes> = page.iter().map(sse).collect();
                    return Ok(texts.concat().into());
                }
            }
            match tokio::time::timeout(HEARTBEAT, self.new.recv()).await {
                Err(_) => return Ok(Bytes::from_static(b": alive\n\n")),
                Ok(Ok(sent)) if sent.seq <= self.last => {}
                Ok(Ok(sent)) if sent.seq == self.last + 1 && !sent.text.is_empty() => {
                    self.last = sent.seq;
                    return Ok(sent.text);
                }
                // Events are missing: the reader was too slow for those that are kept, or the first
                // ones came before the tail was read.
                Ok(Ok(_) | Err(_)) => self.is_behind = true,
            }
        }
    }
}
