//! Accepting connections within bounds.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep, sleep};

/// How many connections are open at a time; others wait in the queue of the system. Far below the usual
/// limit of descriptors.
const MAX_CONNECTIONS: usize = 512;

/// How long the head of a request may take to arrive, also while a connection is idle between two.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a reader may take no byte of a response.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// The same while no place is left for other connections.
const CROWDED_TIMEOUT: Duration = Duration::from_secs(3);

/// The longest head of a request, in bytes.
const MAX_HEAD: usize = 16 << 10;

/// The most headers of a request.
const MAX_HEADERS: usize = 64;

/// Serves connections until the future is dropped.
pub(crate) async fn serve(listener: TcpListener, router: Router) -> Infallible {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            // Nothing closes the semaphore.
            return std::future::pending().await;
        };
        let Ok((stream, _)) = listener.accept().await else {
            // The peer is gone already, or descriptors are short for a moment.
            sleep(Duration::from_millis(20)).await;
            continue;
        };
        let router = router.clone();
        let places = Arc::clone(&places);
        tokio::spawn(async move {
            connection(stream, router, places).await;
            drop(place);
        });
    }
}

async fn connection(stream: TcpStream, router: Router, places: Arc<Semaphore>) {
    // Events are small, and wanted at once.
    let _ = stream.set_nodelay(true);
    let io = TokioIo::new(BoundedStream::new(stream, places));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS);
    // An error is the client's: it is gone, too slow, or speaks no HTTP.
    let _ = http.serve_connection(io, TowerToHyperService::new(router)).await;
}

/// A connection whose writes fail when the reader takes nothing for too long.
struct BoundedStream<S> {
    stream: S,
    /// The places of all connections.
    places: Arc<Semaphore>,
    /// When to look whether it has waited for too long.
    limit: Pin<Box<Sleep>>,
    /// Since when the reader takes nothing.
    waiting_since: Option<Instant>,
}

impl<S> BoundedStream<S> {
    fn new(stream: S, places: Arc<Semaphore>) -> Self {
        let limit = Box::pin(sleep(CROWDED_TIMEOUT));
        Self { stream, places, limit, waiting_since: None }
    }

    fn written<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting_since = None;
            return written;
        }
        let since = *self.waiting_since.get_or_insert_with(|| {
            self.limit.as_mut().reset(Instant::now() + CROWDED_TIMEOUT);
            Instant::now()
        });
        loop {
            ready!(self.limit.as_mut().poll(context));
            let is_crowded = self.places.available_permits() == 0;
            if is_crowded || since.elapsed() >= WRITE_TIMEOUT {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.limit.as_mut().reset(Instant::now() + CROWDED_TIMEOUT);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for BoundedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BoundedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.written(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.written(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// How long a reader may take nothing while so many places are left.
    async fn check(places: usize, least: Duration, most: Duration) {
        let (near, far) = tokio::io::duplex(8);
        let mut stream = BoundedStream::new(near, Arc::new(Semaphore::new(places)));
        let started = Instant::now();
        let error = stream.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let took = started.elapsed();
        assert!(took >= least && took < most, "{took:?}");
        drop(far);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_nothing_is_dropped() {
        check(1, WRITE_TIMEOUT, WRITE_TIMEOUT + CROWDED_TIMEOUT).await;
        check(0, CROWDED_TIMEOUT, WRITE_TIMEOUT).await;
    }
}
