use std::error::Error;
use std::time::Duration;

use genai::webc::StreamTimeout;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};

use super::Provider;
use super::address::Address;
use super::body::{Told, seconds};
use crate::{ErrorKind, ModelError};

/// How much of the body of an error is looked at, in bytes.
const LONGEST: usize = 1 << 20;

/// What went wrong, in our terms.
pub(super) fn failure(error: &genai::Error, provider: &Provider, address: &Address) -> ModelError {
    use genai::Error as E;
    match error {
        E::HttpError { status, body, headers, .. } => {
            refused(provider, status.as_u16(), body, Some(headers))
        }
        E::WebModelCall { webc_error, .. } | E::WebAdapterCall { webc_error, .. } => {
            by_call(webc_error, provider, address)
        }
        // In a stream the real error is inside, as one of any type.
        E::WebStream { error, .. } => by_cause(&**error, provider, address),
        E::ChatResponse { body, .. } => told(provider, Told::from_value(body)),
        E::StreamParse { serde_error, .. } => {
            broken(provider, &format!("an event is not what it should be: {serde_error}"))
        }
        E::JsonValueExt(_) | E::SerdeJson(_) | E::InvalidJsonResponseElement { .. } => {
            broken(provider, "an event is not what it should be")
        }
        // Everything else is found before anything is sent. Their own texts may hold whole requests.
        _ => {
            let message = format!("a request for provider `{}` cannot be made", provider.name);
            super::invalid(message)
        }
    }
}

fn by_call(error: &genai::webc::Error, provider: &Provider, address: &Address) -> ModelError {
    use genai::webc::Error as E;
    match error {
        E::ResponseFailedStatus { status, body, headers } => {
            refused(provider, status.as_u16(), body, Some(headers))
        }
        E::Reqwest(error) => by_transport(error, provider, address),
        E::ResponseFailedNotJson { .. }
        | E::ResponseFailedInvalidJson { .. }
        | E::JsonValueExt(_) => broken(provider, "the answer is not what it should be"),
    }
}

fn by_cause(
    error: &(dyn Error + Send + Sync + 'static),
    provider: &Provider,
    address: &Address,
) -> ModelError {
    if let Some(error) = error.downcast_ref::<genai::Error>() {
        return failure(error, provider, address);
    }
    if let Some(timeout) = error.downcast_ref::<StreamTimeout>() {
        let what = match timeout {
            StreamTimeout::Headers => "it did not begin to answer",
            StreamTimeout::Read => "its answer stopped in the middle",
        };
        return ours(ErrorKind::Timeout, provider, what);
    }
    if let Some(error) = error.downcast_ref::<reqwest::Error>() {
        return by_transport(error, provider, address);
    }
    broken(provider, "the answer is no text")
}

fn by_transport(error: &reqwest::Error, provider: &Provider, address: &Address) -> ModelError {
    if error.is_timeout() {
        return ours(ErrorKind::Timeout, provider, "it did not answer in time");
    }
    let cause = deepest(error);
    if error.is_connect() {
        let what = format!("{} cannot be reached: {cause}", address.shown());
        return ours(ErrorKind::Unreachable, provider, &what);
    }
    if error.is_request() {
        let what = format!("{} ended the connection: {cause}", address.shown());
        return ours(ErrorKind::Unreachable, provider, &what);
    }
    broken(provider, &cause)
}

/// The innermost error says what happened, those around it where.
pub(super) fn deepest(error: &dyn Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

fn broken(provider: &Provider, what: &str) -> ModelError {
    ours(ErrorKind::BrokenStream, provider, what)
}

/// An error of this kind, with what we saw of it.
pub(super) fn ours(kind: ErrorKind, provider: &Provider, what: &str) -> ModelError {
    let what: String = provider.masked(what).chars().take(500).collect();
    ModelError::new(kind).with_message(format!("{} ({}: {what})", kind.words(), provider.name))
}

/// The provider answered with an error.
fn refused(
    provider: &Provider,
    status: u16,
    body: &str,
    headers: Option<&HeaderMap>,
) -> ModelError {
    let told = Told::from_text(&body[..body.floor_char_boundary(LONGEST)]);
    let wait = headers.and_then(wait).or(told.wait);
    ModelError { retry_after: wait, ..of(provider, Some(status), told) }
}

/// The provider put an error into its answer.
pub(super) fn told(provider: &Provider, told: Told) -> ModelError {
    let wait = told.wait;
    ModelError { retry_after: wait, ..of(provider, None, told) }
}

fn of(provider: &Provider, status: Option<u16>, told: Told) -> ModelError {
    let kind = told.kind(status);
    let shown = told.masked(|text| provider.masked(text)).shown(status);
    let name = &provider.name;
    let message = if shown.is_empty() {
        format!("{} ({name})", kind.words())
    } else {
        format!("{} ({name}: {shown})", kind.words())
    };
    ModelError::new(kind).with_message(message)
}

/// How long the provider asks to be left alone.
fn wait(headers: &HeaderMap) -> Option<Duration> {
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
    // The provider's own clock is the one it means.
    let now = text(DATE.as_str()).and_then(date).unwrap_or_else(Timestamp::now);
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
        assert_eq!(wait(&headers), expect.map(Duration::from_millis), "{headers:?}");
    }

    #[test]
    fn every_form_of_a_wait() {
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
