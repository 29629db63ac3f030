//! Accepting connections within bounds.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Sleep, sleep};

use crate::connections::{Connection, Connections, Place};

/// How many connections are open at a time. Far below the usual limit of descriptors.
const MAX_CONNECTIONS: usize = 512;

/// How long the head of a request may take to arrive, also while a connection is idle between two.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a reader may take no byte of a response; less while others wait for its place.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest head of a request, in bytes.
const MAX_HEAD: usize = 16 << 10;

/// The most headers of a request.
const MAX_HEADERS: usize = 64;

/// Serves connections until the future is dropped.
pub(crate) async fn serve(listener: TcpListener, router: Router) -> Infallible {
    let connections = Connections::new(MAX_CONNECTIONS);
    for number in 0.. {
        let stream = loop {
            match listener.accept().await {
                Ok((stream, _)) => break stream,
                // The peer is gone already, or descriptors are short for a moment.
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        };
        let place = connections.place(number).await;
        tokio::spawn(connection(stream, router.clone(), place));
    }
    std::future::pending().await
}

async fn connection(stream: TcpStream, router: Router, place: Place) {
    // Events are small, and wanted at once.
    let _ = stream.set_nodelay(true);
    let io = TokioIo::new(BoundedStream::new(stream, Arc::clone(&place.connection)));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS);
    let service = TowerToHyperService::new(router);
    let service = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(Arc::clone(&place.connection));
        service.call(request)
    });
    // An error is the client's: it is gone, too slow, or speaks no HTTP.
    tokio::select! {
        _ = http.serve_connection(io, service) => {}
        () = place.connection.closed() => {}
    }
}

/// A connection whose writes fail when the reader takes nothing for too long.
struct BoundedStream<S> {
    stream: S,
    connection: Arc<Connection>,
    limit: Pin<Box<Sleep>>,
    /// The reader takes nothing, and `limit` runs.
    is_stalled: bool,
}

impl<S> BoundedStream<S> {
    fn new(stream: S, connection: Arc<Connection>) -> Self {
        let limit = Box::pin(sleep(WRITE_TIMEOUT));
        Self { stream, connection, limit, is_stalled: false }
    }

    fn written<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        let is_stalled = written.is_pending();
        if is_stalled != self.is_stalled {
            self.is_stalled = is_stalled;
            self.connection.set_stalled(is_stalled);
            self.limit.as_mut().reset(Instant::now() + WRITE_TIMEOUT);
        }
        if is_stalled {
            ready!(self.limit.as_mut().poll(context));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        written
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
    use futures_util::FutureExt as _;
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_nothing_is_dropped() {
        let (near, far) = tokio::io::duplex(8);
        let connections = Connections::new(1);
        let place = connections.place(0).await;
        let mut stream = BoundedStream::new(near, Arc::clone(&place.connection));
        let started = Instant::now();
        let error = stream.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(started.elapsed(), WRITE_TIMEOUT);
        // Another one had taken its place before that.
        assert!(connections.place(1).now_or_never().is_none());
        let closed = place.connection.closed();
        assert!(tokio::time::timeout(Duration::from_millis(1), closed).await.is_ok());
        drop(far);
    }
}
