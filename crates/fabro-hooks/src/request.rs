//! A hook that is a server.

use std::sync::OnceLock;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, Url};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::answer::Reply;
use crate::{OUTPUT_LIMIT, SetupError};

/// Where events are sent.
#[derive(Debug)]
pub(crate) struct Endpoint {
    url: Url,
    headers: HeaderMap,
    /// Made when it is first wanted: reading the system's certificates takes a while.
    client: OnceLock<Result<Client, String>>,
}

impl Endpoint {
    /// The server of the hook that messages call so.
    pub(crate) fn new(
        called: &str,
        url: &str,
        headers: &[(String, String)],
    ) -> Result<Self, SetupError> {
        let url = Url::parse(url).map_err(|_| SetupError::Url(called.to_owned()))?;
        let mut sent = HeaderMap::new();
        sent.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in headers {
            let refused = || SetupError::Header(name.clone(), called.to_owned());
            let key = HeaderName::try_from(name).map_err(|_| refused())?;
            let mut value = HeaderValue::from_str(value).map_err(|_| refused())?;
            value.set_sensitive(true);
            sent.insert(key, value);
        }
        Ok(Self { url, headers: sent, client: OnceLock::new() })
    }

    /// Sends an event.
    ///
    /// # Errors
    ///
    /// The server cannot be reached, refuses the event, or answers too late or too much.
    pub(crate) async fn send(
        &self,
        data: String,
        limit: Duration,
        cancel: &CancellationToken,
    ) -> Result<Reply, String> {
        tokio::select! {
            biased;
            () = cancel.cancelled() => Ok(Reply::Canceled),
            reply = timeout(limit, self.post(data)) => reply.unwrap_or_else(|_| {
                Err(format!("{} did not answer within {} s", self.host(), limit.as_secs_f64()))
            }),
        }
    }

    async fn post(&self, data: String) -> Result<Reply, String> {
        let client = self.client.get_or_init(|| client(&self.url)).as_ref();
        let client = client.map_err(Clone::clone)?;
        let request = client.post(self.url.clone()).headers(self.headers.clone()).body(data);
        let response = request.send().await.map_err(|error| self.failed(error))?;
        let status = response.status();
        if status.is_redirection() {
            return Err(format!(
                "{} answered {status}: redirects are not followed, so give the final URL",
                self.host()
            ));
        }
        if !status.is_success() {
            return Err(format!("{} answered {status}", self.host()));
        }
        self.body(response).await.map(Reply::Body)
    }

    async fn body(&self, mut response: Response) -> Result<String, String> {
        let mut bytes = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|error| self.failed(error))? {
            bytes.extend_from_slice(&part);
            if bytes.len() > OUTPUT_LIMIT {
                return Err(format!("{} answered more than 1 MiB", self.host()));
            }
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The rest of the URL may be as secret as a header.
    fn host(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    fn failed(&self, error: reqwest::Error) -> String {
        let error = error.without_url();
        let mut cause: &dyn std::error::Error = &error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        format!("{} cannot be reached: {cause}", self.host())
    }
}

fn client(url: &Url) -> Result<Client, String> {
    // An error means that a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder()
        .redirect(Policy::none())
        .referer(false)
        // An idle connection belongs to the async runtime that opened it, which may have ended.
        .pool_max_idle_per_host(0)
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .user_agent(concat!("fabro/", env!("CARGO_PKG_VERSION")));
    // A server of this machine is not behind a proxy.
    let builder = if url.scheme() == "http" { builder.no_proxy() } else { builder };
    builder.build().map_err(|error| error.without_url().to_string())
}
