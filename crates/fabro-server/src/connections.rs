//! Which connections are open, and which of them is given up when another one needs its place.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::Extensions;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

/// How long a connection may send nothing while others wait for a place.
const IDLE_TIMEOUT: Duration = Duration::from_millis(20);

/// How long a reader may take nothing while others wait for a place.
const STALLED_TIMEOUT: Duration = Duration::from_secs(1);

/// The pause before it is looked again whether a connection can be given up.
const PAUSE: Duration = Duration::from_millis(5);

/// How many connections are given up at once, at most.
const AT_ONCE: usize = 32;

/// The open connections.
pub(crate) struct Connections {
    places: Arc<Semaphore>,
    open: Mutex<HashMap<u64, Arc<Connection>>>,
}

/// A connection.
pub(crate) struct Connection {
    /// How many of its requests are handled; a response counts until it has been handed over to be sent.
    requests: AtomicUsize,
    state: Mutex<State>,
    closing: Notify,
}

struct State {
    /// Since when no request of it has been handled.
    idle_since: Instant,
    /// Since when the reader takes nothing.
    stalled_since: Option<Instant>,
    is_closing: bool,
}

/// The place of a connection, until it is dropped.
pub(crate) struct Place {
    pub(crate) connection: Arc<Connection>,
    number: u64,
    connections: Arc<Connections>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.connections.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.remove(&self.number);
    }
}

impl Connections {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { places: Arc::new(Semaphore::new(most)), open: Mutex::default() })
    }

    /// A place for one more connection. Without a free one, connections are given up of which no request is handled:
    /// those that have sent nothing for longest, else those whose readers have taken nothing for longest.
    pub(crate) async fn place(self: &Arc<Self>, number: u64) -> Place {
        let permit = loop {
            if let Ok(permit) = Arc::clone(&self.places).try_acquire_owned() {
                break permit;
            }
            self.give_up();
            // Nothing closes the semaphore.
            if let Ok(Ok(permit)) = timeout(PAUSE, Arc::clone(&self.places).acquire_owned()).await {
                break permit;
            }
        };
        let connection = Arc::new(Connection::new());
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.insert(number, Arc::clone(&connection));
        Place { connection, number, connections: Arc::clone(self), _permit: permit }
    }

    /// Gives some connections up at once: each search looks at all of them.
    fn give_up(&self) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found: Vec<_> = open.values().filter_map(|it| Some((it.rank()?, it))).collect();
        found.sort_by_key(|(rank, _)| *rank);
        for (_, connection) in found.into_iter().take(AT_ONCE) {
            connection.close();
        }
    }
}

impl Connection {
    fn new() -> Self {
        let state = State { idle_since: Instant::now(), stalled_since: None, is_closing: false };
        Self { requests: AtomicUsize::new(0), state: Mutex::new(state), closing: Notify::new() }
    }

    /// Ends when the connection is given up.
    pub(crate) async fn closed(&self) {
        self.closing.notified().await;
    }

    /// Whether the reader takes nothing at present.
    pub(crate) fn set_stalled(&self, is_stalled: bool) {
        let mut state = self.state();
        if is_stalled != state.stalled_since.is_some() {
            state.stalled_since = is_stalled.then(Instant::now);
        }
    }

    /// Counts the request that these extensions are of, until what is returned is dropped.
    pub(crate) fn of(extensions: &Extensions) -> Option<InFlight> {
        let connection = Arc::clone(extensions.get::<Arc<Self>>()?);
        connection.requests.fetch_add(1, Ordering::Relaxed);
        Some(InFlight(connection))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The order in which connections are given up; `None` for one that is used.
    fn rank(&self) -> Option<(bool, Instant)> {
        let state = self.state();
        if state.is_closing {
            return None;
        }
        match state.stalled_since {
            Some(since) => (since.elapsed() >= STALLED_TIMEOUT).then_some((true, since)),
            None if self.requests.load(Ordering::Relaxed) > 0 => None,
            None => {
                let since = state.idle_since;
                (since.elapsed() >= IDLE_TIMEOUT).then_some((false, since))
            }
        }
    }

    fn close(&self) {
        self.state().is_closing = true;
        self.closing.notify_one();
    }
}

/// A request that is handled.
pub(crate) struct InFlight(Arc<Connection>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.state().idle_since = Instant::now();
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

impl InFlight {
    /// The same response, which holds the request until all of it is handed over.
    pub(crate) fn hold(self, response: Response) -> Response {
        response.map(|body| Body::new(Holding { body, _request: self }))
    }
}

/// A body that is handed over.
struct Holding {
    body: Body,
    _request: InFlight,
}

impl HttpBody for Holding {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    /// Which of three connections a fourth one displaces; `None` while it waits.
    async fn displaced(connections: &Arc<Connections>, places: &[Place]) -> Option<usize> {
        let _ = timeout(Duration::from_millis(50), connections.place(9)).await;
        places.iter().position(|place| place.connection.state().is_closing)
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_is_not_used_makes_room() {
        let connections = Connections::new(3);
        let mut places = Vec::new();
        for number in 0..3 {
            places.push(connections.place(number).await);
            advance(Duration::from_secs(1)).await;
        }
        let request = |at: usize| {
            let mut extensions = Extensions::new();
            extensions.insert(Arc::clone(&places[at].connection));
            Connection::of(&extensions).unwrap()
        };
        // All are used: the fourth waits, of any age.
        let held: Vec<InFlight> = (0..3).map(request).collect();
        assert_eq!(displaced(&connections, &places).await, None);
        // One whose reader takes nothing counts as unused after a second, and is the last to go.
        places[0].connection.set_stalled(true);
        assert_eq!(displaced(&connections, &places).await, None);
        advance(STALLED_TIMEOUT).await;
        let mut held = held.into_iter();
        let first = held.next();
        drop(held.next());
        advance(IDLE_TIMEOUT).await;
        let ranks: Vec<bool> =
            places.iter().filter_map(|it| Some(it.connection.rank()?.0)).collect();
        assert_eq!(ranks, [true, false]);
        // A reader that takes something is used again.
        places[0].connection.set_stalled(false);
        assert!(places[0].connection.rank().is_none());
        assert_eq!(displaced(&connections, &places).await, Some(1));
        drop((first, held));
        places.remove(1);
        assert!(timeout(PAUSE, connections.place(3)).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_is_in_flight_until_it_is_handed_over() {
        let connection = Arc::new(Connection::new());
        let mut extensions = Extensions::new();
        extensions.insert(Arc::clone(&connection));
        let request = Connection::of(&extensions).unwrap();
        let response = request.hold(Response::new(Body::from("text")));
        assert_eq!(response.body().size_hint().exact(), Some(4));
        advance(Duration::from_mins(1)).await;
        assert!(connection.rank().is_none());
        drop(response);
        assert!(connection.rank().is_none(), "it may send the next request at once");
        advance(IDLE_TIMEOUT).await;
        assert!(connection.rank().is_some());
    }
}
