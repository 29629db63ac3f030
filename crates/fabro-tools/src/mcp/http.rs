use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::redirect::{Action, Attempt, Policy};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::auth::{AuthClient, AuthError, AuthorizationManager};
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClientTransportConfig, StreamableHttpError,
};

use tokio::runtime::{Builder, Runtime};
use tokio_util::task::AbortOnDropHandle;

use crate::mcp::answered::Answered;
use crate::mcp::error::brief;

/// The protocol sets them itself.
const RESERVED: [&str; 6] =
    ["accept", "mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name", "last-event-id"];

/// How many redirects one request follows.
const MOST_REDIRECTS: usize = 10;

/// How a server over HTTP is reached.
pub(crate) fn config(
    url: &str,
    headers: &BTreeMap<String, String>,
) -> Result<StreamableHttpClientTransportConfig, String> {
    check_url(url)?;
    let headers = headers.iter().map(|(name, value)| header(name, value));
    let headers = headers.collect::<Result<HashMap<_, _>, _>>()?;
    install_crypto();
    let mut config = StreamableHttpClientTransportConfig::with_uri(url).custom_headers(headers);
    config.retry_config = Arc::new(reconnects());
    Ok(config)
}

/// The threads of connections over HTTP. What a server sends without end may keep one of them busy, and no timeout of
/// a call waits for it: those are of the thread that calls.
static THREADS: LazyLock<std::io::Result<Runtime>> = LazyLock::new(|| {
    Builder::new_multi_thread().worker_threads(2).thread_name("mcp").enable_all().build()
});

/// Runs the service of a connection on threads of its own; dropping the handle ends it.
pub(crate) fn run<T: Send + 'static>(
    service: impl Future<Output = T> + Send + 'static,
) -> Result<AbortOnDropHandle<T>, String> {
    Ok(AbortOnDropHandle::new(threads()?.spawn(service)))
}

fn threads() -> Result<&'static Runtime, String> {
    THREADS.as_ref().map_err(|error| format!("its connection cannot be started: {error}"))
}

/// How a stream that broke off is asked for again: a server that is gone has to be noticed before the
/// timeout of the call.
fn reconnects() -> ExponentialBackoff {
    let mut policy = ExponentialBackoff::default();
    policy.base_duration = Duration::from_millis(200);
    policy.max_times = Some(4);
    policy
}

/// A connection that sends nothing before the first request, with the tokens of a login.
pub(crate) fn with_login(
    config: StreamableHttpClientTransportConfig,
    manager: AuthorizationManager,
) -> Result<StreamableHttpClientTransport<Answered<AuthClient<reqwest::Client>>>, String> {
    // A transport begins to work where it is made.
    let _entered = threads()?.enter();
    let client = Answered(AuthClient::new(client(&config.uri)?, manager));
    Ok(StreamableHttpClientTransport::with_client(client, config))
}

/// The same without a login.
pub(crate) fn without_login(
    config: StreamableHttpClientTransportConfig,
) -> Result<StreamableHttpClientTransport<Answered<reqwest::Client>>, String> {
    let _entered = threads()?.enter();
    Ok(StreamableHttpClientTransport::with_client(Answered(client(&config.uri)?), config))
}

/// Does not reuse idle connections: an unread response body would delay the next request on them.
/// Servers on this machine use no proxy.
fn client(url: &str) -> Result<reqwest::Client, String> {
    let builder =
        reqwest::Client::builder().pool_max_idle_per_host(0).redirect(Policy::custom(redirect));
    let builder = if is_loopback(url) { builder.no_proxy() } else { builder };
    builder.build().map_err(|error| brief(&error.to_string()))
}

fn is_loopback(url: &str) -> bool {
    let Ok(url) = Url::parse(url) else { return false };
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

pub(crate) fn check_url(url: &str) -> Result<(), String> {
    let valid = Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
    if valid {
        return Ok(());
    }
    Err("its URL is not valid: give one that begins with http:// or https://".to_owned())
}

pub(crate) fn install_crypto() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error means a race that another thread won, with its own provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let problem = || format!("its header `{name}` cannot be sent: check its name and value");
    let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| problem())?;
    if RESERVED.contains(&key.as_str()) {
        return Err(problem());
    }
    let mut value = HeaderValue::from_str(value).map_err(|_| problem())?;
    value.set_sensitive(true);
    Ok((key, value))
}

/// What a login lacks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LoginNeed {
    /// There is none, or it is no longer valid.
    Login,
    /// It has not this scope, as far as the server names one.
    Scope(Option<String>),
    /// It has expired, and the authorization server does not renew it at present.
    Renewal,
}

/// What a request lacked that was refused because of who asks.
pub(crate) fn login_need(error: &(dyn std::error::Error + 'static)) -> Option<LoginNeed> {
    let mut error = Some(error);
    while let Some(current) = error {
        match current.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
            Some(StreamableHttpError::AuthRequired(_)) => return Some(LoginNeed::Login),
            Some(StreamableHttpError::InsufficientScope(refusal)) => {
                return Some(LoginNeed::Scope(refusal.required_scope.clone()));
            }
            // Without `WWW-Authenticate`.
            Some(StreamableHttpError::UnexpectedServerResponse(text))
                if text.starts_with("HTTP 401") =>
            {
                return Some(LoginNeed::Login);
            }
            _ => {}
        }
        match current.downcast_ref() {
            Some(AuthError::AuthorizationRequired) => return Some(LoginNeed::Login),
            Some(AuthError::TokenRefreshFailed(_)) => return Some(LoginNeed::Renewal),
            _ => {}
        }
        error = current.source();
    }
    None
}

/// Whether the request had reached the server when the connection ended: it may have taken effect.
pub(crate) fn was_sent(error: &(dyn std::error::Error + 'static)) -> bool {
    match error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::Client(error)) => !error.is_connect() && !error.is_builder(),
        _ => false,
    }
}

/// Follows a redirect that keeps the request as it is, and takes no token to another server: `/mcp` to `/mcp/`.
fn redirect(attempt: Attempt<'_>) -> Action {
    let keeps = matches!(attempt.status().as_u16(), 307 | 308);
    let first = attempt.previous().first();
    let is_same = first.is_some_and(|first| first.origin() == attempt.url().origin());
    let is_short = attempt.previous().len() <= MOST_REDIRECTS;
    if keeps && is_same && is_short { attempt.follow() } else { attempt.stop() }
}

/// An error with its causes, briefly. Without URLs, because they may contain keys.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static), url: Option<&str>) -> String {
    let error = match error.downcast_ref() {
        Some(StreamableHttpError::<reqwest::Error>::Client(error)) => error,
        _ => error,
    };
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        cause = error.source();
    }
    if let Some(url) = url {
        let parsed = Url::parse(url).map(String::from).unwrap_or_default();
        for form in [parsed.as_str(), url].into_iter().filter(|form| !form.is_empty()) {
            text = text.replace(form, "its URL");
        }
    }
    brief(&text)
}
