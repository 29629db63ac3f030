//! What requests may take at a time: how many are answered, and how much of the responses is held for readers
//! that take them slowly.

use std::sync::Arc;

use axum::body::{Body, HttpBody as _, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::problem::Problem;

/// How many requests are answered at a time; others wait. An answer may need the whole log of a run in memory
/// while it is made.
const HANDLED: usize = 8;

/// The longest response that is not counted, in bytes: all connections together hold little of those.
const SMALL: usize = 64 << 10;

/// What larger responses hold together until they are read, in kibibytes.
const HELD_KIB: usize = 128 << 10;

pub(crate) struct Bounds {
    handled: Semaphore,
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
        Self { handled: Semaphore::new(HANDLED), held_kib: Arc::new(Semaphore::new(HELD_KIB)) }
    }

    /// Answers a request that has arrived as a whole.
    pub(crate) async fn handle(&self, request: Request, next: Next) -> Response {
        let place = self.handled.acquire().await;
        let response = next.run(request).await;
        drop(place);
        self.hold(response).await
    }

    /// A response whose length is known counts; a stream holds a page.
    async fn hold(&self, response: Response) -> Response {
        let length = response.body().size_hint().exact().and_then(|it| usize::try_from(it).ok());
        let Some(length) = length.filter(|length| *length > SMALL) else { return response };
        // One that is larger than everything is sent alone.
        let kib = u32::try_from(length.div_ceil(1 << 10).min(HELD_KIB)).unwrap_or(u32::MAX);
        let Ok(place) = Arc::clone(&self.held_kib).try_acquire_many_owned(kib) else {
            let mut refused = busy().into_response();
            refused.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
            return refused;
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

fn busy() -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "server_busy",
        "too many large responses wait for their readers",
        "retry in a moment, or ask for less at a time",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

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
