//! Sends requests and reads answers, each within bounds of time and size.

use std::time::Duration;

use bytes::BytesMut;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Client, Response};
use tokio::time::timeout;
use tokio_util::codec::{AnyDelimiterCodec, AnyDelimiterCodecError, Decoder};

use super::concessions::RefusedField;
use super::endpoint::Endpoint;
use super::prepared::PreparedRequest;
use super::sse::{Frame, Parser};
use super::{Provider, failure};
use crate::{ErrorKind, ModelError};

const REQUEST_TIMEOUT: Duration = Duration::from_mins(10);
const STREAM_TIMEOUT: Duration = Duration::from_mins(5);

/// The largest answer, in bytes: no model writes as much in one turn.
const LARGEST_ANSWER: usize = 64 << 20;
/// The largest event, in bytes.
const LARGEST_EVENT: usize = 16 << 20;
/// How much of the body of an error is read, in bytes.
const LARGEST_ERROR: usize = 1 << 20;

/// How long an answer may take.
#[derive(Clone, Copy, Debug)]
struct Timeouts {
    /// Until it begins.
    begin: Duration,
    /// Between two pieces of it.
    pause: Duration,
}

impl Timeouts {
    fn of(provider: &Provider) -> Self {
        Self {
            begin: provider.request_timeout.unwrap_or(REQUEST_TIMEOUT),
            pause: provider.stream_timeout.unwrap_or(STREAM_TIMEOUT),
        }
    }

    /// For one line or one error body: pieces may arrive without ever making a whole.
    fn whole(self) -> Duration {
        self.begin.saturating_add(self.pause)
    }
}

/// A request without an answer.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) error: ModelError,
    /// What of the request is refused, where the server says so.
    pub(super) field: Option<RefusedField>,
}

impl From<ModelError> for Refusal {
    fn from(error: ModelError) -> Self {
        Self { error, field: None }
    }
}

/// Sends a request and waits until its answer begins.
pub(super) async fn send(
    client: &Client,
    provider: &Provider,
    endpoint: &Endpoint,
    sent: &PreparedRequest,
) -> Result<Body, Refusal> {
    let timeouts = Timeouts::of(provider);
    let is_fast = sent.speed.as_deref() == Some("fast");
    let mut headers = endpoint.headers(provider.kind, is_fast);
    headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
    let request = client
        .post(endpoint.url(sent.wire, &sent.model, sent.streams))
        .headers(headers)
        .body(sent.body.clone());
    let Ok(response) = timeout(timeouts.begin, request.send()).await else {
        let what = "it did not begin to answer";
        return Err(failure::own(ErrorKind::Timeout, provider, what).into());
    };
    let response = response.map_err(|error| failure::transport(&error, provider, endpoint))?;
    if response.status().is_success() {
        if is_web_page(&response) {
            return Err(failure::web_page(provider, endpoint).into());
        }
        return Ok(Body::new(response, provider.clone(), endpoint.clone()));
    }
    let headers = response.headers().clone();
    if response.status().is_redirection() {
        return Err(failure::redirected(provider, endpoint, &headers).into());
    }
    let status = response.status().as_u16();
    let Ok(text) = timeout(timeouts.whole(), error_text(response)).await else {
        return Err(failure::endless(provider).into());
    };
    let text = text.map_err(|error| failure::transport(&error, provider, endpoint))?;
    let error = failure::refused(provider, &sent.model, status, &headers, &text);
    Err(Refusal { error, field: RefusedField::of(status, &text) })
}

/// What answers is a web site, not the interface of a model.
fn is_web_page(response: &Response) -> bool {
    let media_type = response.headers().get(CONTENT_TYPE);
    media_type.is_some_and(|it| it.as_bytes().to_ascii_lowercase().starts_with(b"text/html"))
}

/// The body of an error, as far as it is looked at.
async fn error_text(mut response: Response) -> Result<String, reqwest::Error> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        let room = LARGEST_ERROR - bytes.len();
        bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if bytes.len() == LARGEST_ERROR {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The body of an answer.
pub(super) struct Body {
    response: Response,
    provider: Provider,
    endpoint: Endpoint,
    timeouts: Timeouts,
    lines: AnyDelimiterCodec,
    /// Received, but not read yet.
    buffer: BytesMut,
    received: usize,
    is_closed: bool,
    parser: Parser,
}

impl Body {
    fn new(response: Response, provider: Provider, endpoint: Endpoint) -> Self {
        Self {
            timeouts: Timeouts::of(&provider),
            response,
            provider,
            endpoint,
            lines: AnyDelimiterCodec::new_with_max_length(
                b"\n".to_vec(),
                Vec::new(),
                LARGEST_EVENT,
            ),
            buffer: BytesMut::new(),
            received: 0,
            is_closed: false,
            parser: Parser::default(),
        }
    }

    pub(super) fn provider(&self) -> &Provider {
        &self.provider
    }

    /// The next event, or the whole body where it is not a stream; `None` at its end.
    pub(super) async fn next(&mut self) -> Result<Option<Frame>, ModelError> {
        loop {
            let most = self.timeouts.whole();
            let Ok(line) = timeout(most, self.next_line()).await else {
                return Err(failure::endless(&self.provider));
            };
            let Some(line) = line? else { return Ok(self.parser.finish()) };
            if let Some(event) = self.parser.line(&line) {
                return Ok(Some(Frame::Event(event)));
            }
            if self.parser.held() > LARGEST_EVENT {
                return Err(self.too_large("an event of it", LARGEST_EVENT));
            }
        }
    }

    async fn next_line(&mut self) -> Result<Option<String>, ModelError> {
        loop {
            let line = if self.is_closed {
                self.lines.decode_eof(&mut self.buffer)
            } else {
                self.lines.decode(&mut self.buffer)
            };
            match line {
                // Do not retry the request because of an invalid UTF-8 byte.
                Ok(Some(line)) => {
                    let line = String::from_utf8_lossy(&line);
                    return Ok(Some(line.strip_suffix('\r').unwrap_or(&line).to_owned()));
                }
                Ok(None) if self.is_closed => return Ok(None),
                Ok(None) => self.receive().await?,
                Err(AnyDelimiterCodecError::MaxChunkLengthExceeded) => {
                    return Err(self.too_large("an event of it", LARGEST_EVENT));
                }
                Err(AnyDelimiterCodecError::Io(error)) => {
                    let what = format!("its answer cannot be read: {error}");
                    return Err(failure::own(ErrorKind::UnusableAnswer, &self.provider, &what));
                }
            }
        }
    }

    async fn receive(&mut self) -> Result<(), ModelError> {
        let Ok(chunk) = timeout(self.timeouts.pause, self.response.chunk()).await else {
            let what = "its answer stopped in the middle";
            return Err(failure::own(ErrorKind::Timeout, &self.provider, what));
        };
        let chunk =
            chunk.map_err(|error| failure::transport(&error, &self.provider, &self.endpoint))?;
        let Some(chunk) = chunk else {
            self.is_closed = true;
            return Ok(());
        };
        self.received += chunk.len();
        if self.received > LARGEST_ANSWER {
            return Err(self.too_large("it", LARGEST_ANSWER));
        }
        self.buffer.extend_from_slice(&chunk);
        Ok(())
    }

    fn too_large(&self, what: &str, limit: usize) -> ModelError {
        let what = format!("{what} is larger than {} MB", limit >> 20);
        failure::own(ErrorKind::TooLarge, &self.provider, &what)
    }
}
