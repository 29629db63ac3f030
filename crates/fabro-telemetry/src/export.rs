//! Sending a trace to a collector.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use serde::Deserialize;

use crate::Export;

/// How many spans a request has.
const BATCH: usize = 512;

/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How much is read of an answer, in bytes.
const ANSWER: usize = 64 << 10;

/// Where traces are sent: a collector that takes OTLP over HTTP, as JSON.
#[derive(Debug)]
pub struct Exporter {
    url: Url,
    headers: HeaderMap,
    client: Client,
}

/// Why a trace could not be sent. The part of the URL after the host, and headers, are not named: they may be
/// secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// Not an address.
    #[error("`{0}` is not the URL of a collector; write it as `http://127.0.0.1:4318`")]
    Url(String),
    /// Not a header.
    #[error("`{0}` cannot be sent as a header")]
    Header(String),
    /// There is no client.
    #[error("requests cannot be sent: {0}")]
    Client(String),
    /// No answer.
    #[error("the collector at {host} cannot be reached: {reason}")]
    Unreachable {
        /// Scheme, host and port.
        host: String,
        /// Why.
        reason: String,
    },
    /// The collector does not take it.
    #[error("the collector at {host} answered {status}{}", after(.message))]
    Refused {
        /// Scheme, host and port.
        host: String,
        /// The status of its answer.
        status: u16,
        /// The start of its answer.
        message: String,
    },
    /// The collector took a part.
    #[error("the collector at {host} refused {spans} spans{}", after(.message))]
    Partial {
        /// Scheme, host and port.
        host: String,
        /// How many.
        spans: u64,
        /// What it says.
        message: String,
    },
}

fn after(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

impl Exporter {
    /// The collector at this address; without a path, `/v1/traces` is added. Headers are sent with each
    /// request.
    ///
    /// # Errors
    ///
    /// The address or a header is not valid.
    pub fn new<'h>(
        url: &str,
        headers: impl IntoIterator<Item = (&'h str, &'h str)>,
    ) -> Result<Self, ExportError> {
        let wrong = || ExportError::Url(url.to_owned());
        let mut url = Url::parse(url).map_err(|_| wrong())?;
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(wrong());
        }
        if url.path() == "/" {
            url.set_path("/v1/traces");
        }
        let mut sent = HeaderMap::new();
        sent.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in headers {
            let refused = || ExportError::Header(name.to_owned());
            let key = HeaderName::try_from(name).map_err(|_| refused())?;
            let mut value = HeaderValue::from_str(value).map_err(|_| refused())?;
            value.set_sensitive(true);
            sent.insert(key, value);
        }
        // An error means that a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = Client::builder()
            .redirect(Policy::none())
            .referer(false)
            .timeout(TIMEOUT)
            .user_agent(concat!("fabro/", env!("CARGO_PKG_VERSION")));
        // A collector of this machine is not behind a proxy.
        let builder = if url.scheme() == "http" { builder.no_proxy() } else { builder };
        let client = builder.build().map_err(|error| ExportError::Client(error.to_string()))?;
        Ok(Self { url, headers: sent, client })
    }

    /// Sends a trace, in requests of 512 spans, and returns how many spans it has. A trace can be sent
    /// again: its ids stay.
    ///
    /// # Errors
    ///
    /// The collector cannot be reached within 10 seconds, or does not take all of it.
    pub async fn send(&self, trace: Export) -> Result<usize, ExportError> {
        let mut count = 0;
        for batch in trace.batches(BATCH) {
            count += batch.spans().count();
            self.send_batch(&batch).await?;
        }
        Ok(count)
    }

    async fn send_batch(&self, batch: &Export) -> Result<(), ExportError> {
        let body =
            serde_json::to_vec(batch).map_err(|error| ExportError::Client(error.to_string()))?;
        let request = self.client.post(self.url.clone()).headers(self.headers.clone()).body(body);
        let mut response = request.send().await.map_err(|error| self.unreachable(error))?;
        let status = response.status();
        let mut answer = Vec::new();
        while answer.len() < ANSWER
            && let Some(part) = response.chunk().await.map_err(|error| self.unreachable(error))?
        {
            answer.extend_from_slice(&part);
        }
        if !status.is_success() {
            let text = String::from_utf8_lossy(&answer);
            let message = text.chars().take(200).collect();
            return Err(ExportError::Refused {
                host: self.host(),
                status: status.as_u16(),
                message,
            });
        }
        // Without a body, or with another one than the protocol has, all of it was taken.
        let answer: Answer = serde_json::from_slice(&answer).unwrap_or_default();
        let partial = answer.partial_success;
        match partial.rejected_spans.count() {
            0 => Ok(()),
            spans => {
                let message = partial.error_message;
                Err(ExportError::Partial { host: self.host(), spans, message })
            }
        }
    }

    fn host(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    fn unreachable(&self, error: reqwest::Error) -> ExportError {
        let error = error.without_url();
        let mut cause: &dyn std::error::Error = &error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        ExportError::Unreachable { host: self.host(), reason: cause.to_string() }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Answer {
    partial_success: PartialSuccess,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PartialSuccess {
    rejected_spans: Count,
    error_message: String,
}

/// A whole number: OTLP writes it as a text, some collectors as a number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Count {
    Number(u64),
    Text(String),
}

impl Default for Count {
    fn default() -> Self {
        Self::Number(0)
    }
}

impl Count {
    fn count(&self) -> u64 {
        match self {
            Self::Number(count) => *count,
            Self::Text(text) => text.parse().unwrap_or_default(),
        }
    }
}
