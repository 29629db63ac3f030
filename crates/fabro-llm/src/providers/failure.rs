//! Errors of providers and connections as [`ModelError`]s.

use std::time::Duration;

use jiff::fmt::rfc2822;
use reqwest::header::{DATE, HeaderMap, LOCATION, RETRY_AFTER};

use super::Provider;
use super::deepest::deepest;
use super::endpoint::Endpoint;
use super::error_body::{ErrorBody, seconds};
use super::events::EventError;
use crate::{ErrorKind, ModelError};

/// The connection failed, before or while the provider answered.
pub(super) fn transport(
    error: &reqwest::Error,
    provider: &Provider,
    endpoint: &Endpoint,
) -> ModelError {
    if error.is_timeout() {
        return own(ErrorKind::Timeout, provider, "it did not answer in time");
    }
    let cause = deepest(error);
    if error.is_connect() {
        let through = endpoint.through_proxy();
        let what = format!("{} cannot be reached{through}: {cause}", endpoint.display());
        return own(ErrorKind::Unreachable, provider, &what);
    }
    if error.is_request() {
        let through = endpoint.through_proxy();
        let what = format!("{} ended the connection{through}: {cause}", endpoint.display());
        return own(ErrorKind::Unreachable, provider, &what);
    }
    own(ErrorKind::BrokenStream, provider, &cause)
}

/// The events of an answer make no whole turn.
pub(super) fn unusable_turn(error: EventError, provider: &Provider) -> ModelError {
    match error {
        EventError::Malformed(error) => {
            let what = format!("an event is not valid JSON: {error}");
            // One that ends too early was cut with its stream.
            let kind =
                if error.is_eof() { ErrorKind::BrokenStream } else { ErrorKind::UnusableAnswer };
            own(kind, provider, &what)
        }
        EventError::Reported(body) => {
            let body = ErrorBody::from_value(&body);
            let wait = body.wait;
            ModelError { retry_after: wait, ..reported(provider, None, body) }
        }
        EventError::Refused(reason) => own(ErrorKind::ContentFilter, provider, &reason),
        EventError::WindowFull(reason) => own(ErrorKind::ContextOverflow, provider, &reason),
        EventError::EndedEarly => {
            own(ErrorKind::BrokenStream, provider, "it ended before it was complete")
        }
        EventError::Incomplete(reason) => own(ErrorKind::UnusableAnswer, provider, &reason),
    }
}

/// A web page came instead of an answer.
pub(super) fn web_page(provider: &Provider, endpoint: &Endpoint) -> ModelError {
    let what = format!("{} answered with a web page: check base_url", endpoint.display());
    own(ErrorKind::UnknownModel, provider, &what)
}

/// A redirect is not followed: the key goes to the address of the settings alone.
pub(super) fn redirected(
    provider: &Provider,
    endpoint: &Endpoint,
    headers: &HeaderMap,
) -> ModelError {
    let to = headers.get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or("nowhere");
    let what =
        format!("{} redirects to {to}: set base_url to where the interface is", endpoint.display());
    own(ErrorKind::UnknownModel, provider, &what)
}

/// Bytes keep arriving, but nothing is ever whole.
pub(super) fn endless(provider: &Provider) -> ModelError {
    own(ErrorKind::Timeout, provider, "what it sends does not end")
}

/// An error of this kind, with what we saw of it.
pub(super) fn own(kind: ErrorKind, provider: &Provider, what: &str) -> ModelError {
    let what: String = provider.redacted(what).chars().take(500).collect();
    ModelError::new(kind).with_message(format!("{} ({}: {what})", kind.message(), provider.name))
}

/// The provider answered with the status of an error.
pub(super) fn refused(
    provider: &Provider,
    model: &str,
    status: u16,
    headers: &HeaderMap,
    text: &str,
) -> ModelError {
    let mut body = ErrorBody::from_text(text);
    let asked = retry_after(headers);
    if asked.is_some() {
        body.lifts_by_itself();
    }
    let wait = asked.or(body.wait);
    // All that Cerebras says of a request that is too long.
    let is_cerebras = provider.name == "cerebras"
        || provider.base_url.as_ref().is_some_and(|url| url.contains("cerebras"));
    if is_cerebras && matches!(status, 400 | 413) && text.trim().is_empty() {
        return own(ErrorKind::ContextOverflow, provider, &status.to_string());
    }
    ModelError { retry_after: wait, ..reported(provider, Some((status, model)), body) }
}

/// An error that the provider reports: for a refused request with its status and the model asked for.
fn reported(provider: &Provider, refused: Option<(u16, &str)>, body: ErrorBody) -> ModelError {
    let status = refused.map(|(status, _)| status);
    let kind = body.kind(status);
    let refuses_tools = body.refuses_tools();
    let details = body.redacted(|text| provider.redacted(text)).summary(status);
    let what = match (kind, refused) {
        (ErrorKind::InvalidRequest | ErrorKind::UnknownModel, Some((_, model)))
            if refuses_tools =>
        {
            format!(
                "the model `{model}` has no tools, which agents need: use another model, or a `prompt` \
                 node (shape=tab)"
            )
        }
        // A server that does not know the path does not name the model.
        (ErrorKind::UnknownModel, Some((_, model))) => {
            format!("the model's provider does not know the model `{model}` or the address")
        }
        _ => kind.message().to_owned(),
    };
    let name = &provider.name;
    let message = if details.is_empty() {
        format!("{what} ({name})")
    } else {
        format!("{what} ({name}: {details})")
    };
    ModelError::new(kind).with_message(message)
}

/// How long to wait before the next request, in any of the forms that providers use.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(millis) = text("retry-after-ms").and_then(seconds) {
        return Some(millis / 1000);
    }
    let value = text(RETRY_AFTER.as_str())?;
    if let Some(wait) = seconds(value) {
        return Some(wait);
    }
    let date = |text: &str| rfc2822::parse(text).ok().map(|date| date.timestamp());
    let until = date(value)?;
    // By the provider's own clock, where it says what time that is.
    let now = text(DATE.as_str()).and_then(date).unwrap_or_else(super::now);
    Some(until.duration_since(now).try_into().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(headers: &[(&'static str, &'static str)], expect: Option<u64>) {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect();
        assert_eq!(retry_after(&headers), expect.map(Duration::from_millis), "{headers:?}");
    }

    #[test]
    fn every_form_of_retry_after() {
        check(&[], None);
        check(&[("retry-after", "7")], Some(7000));
        check(&[("retry-after", " 1.5 ")], Some(1500));
        check(&[("retry-after", "7"), ("retry-after-ms", "250")], Some(250));
        check(&[("retry-after", "soon")], None);
        check(&[("retry-after", "-1")], None);
        check(&[("retry-after", "1e300")], None);
        let date = ("date", "Sun, 22 Nov 2026 10:00:00 GMT");
        check(&[date, ("retry-after", "Sun, 22 Nov 2026 10:00:30 GMT")], Some(30_000));
        check(&[date, ("retry-after", "Sun, 22 Nov 2026 09:00:00 GMT")], Some(0));
    }
}
