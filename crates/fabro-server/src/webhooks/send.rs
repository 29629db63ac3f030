//! One request to an endpoint.

use std::time::{Duration, SystemTime};

use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};

use super::WebhookError;
use super::message::Key;

/// How long an endpoint may take to answer.
const TIMEOUT: Duration = Duration::from_secs(15);

/// A server that takes events.
pub(super) struct Endpoint {
    url: Url,
    key: Key,
    client: Client,
}

/// Why an event was not taken. The part of the URL after the host is not named: it may be secret.
#[derive(Debug)]
pub(super) struct NotTaken {
    pub(super) reason: String,
    /// When the endpoint wants to be asked again.
    pub(super) retry_after: Option<Duration>,
}

impl Endpoint {
    pub(super) fn new(url: &str, key: Key) -> Result<Self, WebhookError> {
        let url = Url::parse(url).map_err(|_| WebhookError::Url(url.to_owned()))?;
        // An error means that a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = Client::builder()
            .redirect(Policy::none())
            .referer(false)
            .timeout(TIMEOUT)
            .user_agent(concat!("fabro/", env!("CARGO_PKG_VERSION")));
        // A server of this machine is not behind a proxy.
        let builder = if url.scheme() == "http" { builder.no_proxy() } else { builder };
        let client = builder.build().map_err(|error| WebhookError::Client(error.to_string()))?;
        Ok(Self { url, key, client })
    }

    /// The host, for messages.
    pub(super) fn host(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// Sends an event. Returns when the endpoint has taken it.
    pub(super) async fn send(&self, id: &str, body: String) -> Result<(), NotTaken> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let seconds = now.as_secs();
        let request = self
            .client
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/cloudevents+json")
            .header("webhook-id", id)
            .header("webhook-timestamp", seconds)
            .header("webhook-signature", self.key.signature(id, seconds, &body))
            .body(body);
        let response = request.send().await.map_err(|error| self.unreachable(error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let wait =
            response.headers().get(RETRY_AFTER).and_then(|it| it.to_str().ok()?.parse().ok());
        Err(NotTaken {
            reason: format!("{} answered {status}", self.host()),
            retry_after: wait.map(Duration::from_secs),
        })
    }

    fn unreachable(&self, error: reqwest::Error) -> NotTaken {
        let error = error.without_url();
        let mut cause: &dyn std::error::Error = &error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        let reason = format!("{} cannot be reached: {cause}", self.host());
        NotTaken { reason, retry_after: None }
    }
}
