//! The inputs of requests, whose errors are problems.

use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use serde::de::DeserializeOwned;

use crate::guard::MAX_BODY;
use crate::problem::Problem;

/// The parameters of a query.
pub(crate) struct Params<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match Query::<T>::try_from_uri(&parts.uri) {
            Ok(Query(params)) => Ok(Self(params)),
            Err(error) => Err(Problem::invalid(
                error.body_text(),
                "GET /api/v1/openapi.json lists the parameters",
            )),
        }
    }
}

/// A body of JSON; an absent one is an empty object.
pub(crate) struct Body<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let is_json = is_json(request.headers());
        let bytes = axum::body::to_bytes(request.into_body(), MAX_BODY).await.unwrap_or_default();
        if bytes.is_empty() {
            return parse(b"{}");
        }
        if is_json { parse(&bytes) } else { Err(not_json()) }
    }
}

/// Whether a body is declared as JSON. A form of another site cannot send this type without asking first.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let media = headers.get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok());
    let essence = media.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

pub(crate) fn not_json() -> Problem {
    Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "media_type",
        "the body is not declared as JSON",
        "send Content-Type: application/json",
    )
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<Body<T>, Problem> {
    serde_json::from_slice(bytes).map(Body).map_err(|error| {
        Problem::invalid(
            format!("the body cannot be used: {error}"),
            "GET /api/v1/openapi.json describes it",
        )
    })
}
