//! What requests may take at a time: how many are answered, and how much of the responses is held for readers
//! that take them slowly.

use std::sync::Arc;

use axum::body::{Body, HttpBody as _, to_bytes};
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::connections::Connection;
use crate::problem::Problem;

/// How many requests of a kind are handled at a time, and how many others wait for that.
struct Limit {
    handled: Semaphore,
    /// With those that are handled.
    places: Semaphore,
}

impl Limit {
    fn new(handled: usize, waiting: usize) -> Self {
        Self { handled: Semaphore::new(handled), places: Semaphore::new(handled + waiting) }
    }
}

/// What a request takes. Each kind has a limit of its own, so that none waits for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Lists, answers, messages: short.
    Short,
    /// What reads all of a run, or starts a process that does.
    Report,
    /// What starts a driver, or waits for what it ends.
    Change,
    /// A call of a tool, which may be any of these.
    Tool,
}

impl Kind {
    fn of(method: &Method, path: &str) -> Self {
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        let api = path.strip_prefix("/api/v1/");
        let below_runs = api.unwrap_or(path.trim_start_matches('/')).strip_prefix("runs");
        match below_runs {
            _ if path == "/mcp" => Self::Tool,
            Some(rest) if is_read && rest.len() > 1 => Self::Report,
            Some(rest) if !is_read && !rest.ends_with("/answer") && !rest.ends_with("/steer") => {
                Self::Change
            }
            _ => Self::Short,
        }
    }
}

/// The longest response that is not counted, in bytes: all connections together hold little of those.
const SMALL: usize = 64 << 10;

/// What larger responses hold together until they are read, in kibibytes.
const HELD_KIB: usize = 128 << 10;

pub(crate) struct Bounds {
    short: Limit,
    reports: Limit,
    changes: Limit,
    tools: Limit,
    held_kib: Arc<Semaphore>,
}

/// The bytes of a response; they count until the last of them is sent or given up.
struct Held {
    bytes: Bytes,
    _place: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Bounds {
    pub(crate) fn new() -> Self {
        Self {
            short: Limit::new(8, 128),
            // They take the processor, and memory for what they read.
            reports: Limit::new(4, 64),
            // They wait for other processes.
            changes: Limit::new(16, 64),
            tools: Limit::new(8, 64),
            held_kib: Arc::new(Semaphore::new(HELD_KIB)),
        }
    }

    /// Handles a request that has arrived as a whole. Until its response is handed over, its connection is not given
    /// up for another one.
    pub(crate) async fn handle(&self, request: Request, next: Next) -> Response {
        let in_flight = Connection::of(request.extensions());
        let limit = match Kind::of(request.method(), request.uri().path()) {
            Kind::Short => &self.short,
            Kind::Report => &self.reports,
            Kind::Change => &self.changes,
            Kind::Tool => &self.tools,
        };
        let Ok(_place) = limit.places.try_acquire() else {
            return busy("too many requests of this kind wait").into_response();
        };
        let handled = limit.handled.acquire().await;
        let response = next.run(request).await;
        drop(handled);
        let response = self.hold(response).await;
        match in_flight {
            Some(in_flight) => in_flight.hold(response),
            None => response,
        }
    }

    /// A response whose length is known counts; a stream holds a page.
    async fn hold(&self, response: Response) -> Response {
        let length = response.body().size_hint().exact().and_then(|it| usize::try_from(it).ok());
        let Some(length) = length.filter(|length| *length > SMALL) else { return response };
        // One that is larger than everything is sent alone.
        let kib = u32::try_from(length.div_ceil(1 << 10).min(HELD_KIB)).unwrap_or(u32::MAX);
        let Ok(place) = Arc::clone(&self.held_kib).try_acquire_many_owned(kib) else {
            return busy("too many large responses wait for their readers").into_response();
        };
        let (parts, body) = response.into_parts();
        match to_bytes(body, length).await {
            Ok(bytes) => {
                let held = Bytes::from_owner(Held { bytes, _place: place });
                Response::from_parts(parts, Body::from(held))
            }
            Err(error) => {
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                let detail = error.to_string();
                Problem::new(status, "response_failed", detail, "report this as a bug")
                    .into_response()
            }
        }
    }
}

fn busy(detail: &str) -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "server_busy",
        detail,
        "retry in a moment, or ask for less at a time",
    )
}

#[cfg(test)]
mod tests {
    use axum::http::header;

    use super::*;

    #[test]
    fn a_short_request_waits_for_no_report_and_no_driver() {
        let check = |method: Method, path: &str, expect: Kind| {
            assert_eq!(Kind::of(&method, path), expect, "{method} {path}");
        };
        for path in ["/", "/gates", "/api/v1/runs", "/api/v1/gates", "/assets/page.js", "/start/x"]
        {
            check(Method::GET, path, Kind::Short);
        }
        for path in ["/runs/x", "/runs/x/cost", "/api/v1/runs/x", "/api/v1/runs/x/diff"] {
            check(Method::GET, path, Kind::Report);
        }
        for path in ["/api/v1/runs", "/api/v1/runs/x/resume", "/api/v1/runs/x/cancel"] {
            check(Method::POST, path, Kind::Change);
        }
        for path in ["/api/v1/runs/x/answer", "/api/v1/runs/x/steer", "/api/v1/session"] {
            check(Method::POST, path, Kind::Short);
        }
        check(Method::POST, "/mcp", Kind::Tool);
    }

    #[tokio::test]
    async fn responses_count_until_their_last_byte_is_dropped() {
        let bounds = Bounds::new();
        let of = |length: usize| Response::new(Body::from(vec![b'x'; length]));
        let large = HELD_KIB << 9;
        let first = bounds.hold(of(large)).await;
        let second = bounds.hold(of(large)).await;
        assert_eq!((first.status(), second.status()), (StatusCode::OK, StatusCode::OK));
        let third = bounds.hold(of(SMALL + 1)).await;
        assert_eq!(third.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(third.headers()[header::RETRY_AFTER], "5");
        assert_eq!(bounds.hold(of(SMALL)).await.status(), StatusCode::OK);
        // The connection may still hold a part of a body that it has taken.
        let rest = to_bytes(first.into_body(), usize::MAX).await.unwrap().split_off(large - 1);
        assert_eq!(bounds.hold(of(SMALL + 1)).await.status(), StatusCode::SERVICE_UNAVAILABLE);
        drop(rest);
        assert_eq!(bounds.hold(of(large)).await.status(), StatusCode::OK);
        drop(second);
        let whole = bounds.hold(of(SMALL + 1)).await;
        assert_eq!(to_bytes(whole.into_body(), usize::MAX).await.unwrap(), vec![b'x'; SMALL + 1]);
    }
}
