use std::collections::{BTreeMap, HashMap};

use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::auth::{AuthClient, AuthorizationManager};
use rmcp::transport::streamable_http_client::{
    StreamableHttpClientTransportConfig, StreamableHttpError,
};

use crate::mcp::error::brief;

/// The protocol sets them itself.
const RESERVED: [&str; 6] =
    ["accept", "mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name", "last-event-id"];

/// How a server over HTTP is reached.
pub(crate) fn config(
    url: &str,
    headers: &BTreeMap<String, String>,
) -> Result<StreamableHttpClientTransportConfig, String> {
    check_url(url)?;
    let headers = headers.iter().map(|(name, value)| header(name, value));
    let headers = headers.collect::<Result<HashMap<_, _>, _>>()?;
    install_crypto();
    Ok(StreamableHttpClientTransportConfig::with_uri(url).custom_headers(headers))
}

/// A connection that sends nothing before the first request, with the tokens of a login.
pub(crate) fn with_login(
    config: StreamableHttpClientTransportConfig,
    manager: AuthorizationManager,
) -> Result<StreamableHttpClientTransport<AuthClient<reqwest::Client>>, String> {
    // As the client of a connection without a login, but without redirects, which could take a token
    // elsewhere.
    let client = reqwest::Client::builder()
        .pool_max_idle_per_host(0)
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|error| brief(&error.to_string()))?;
    Ok(StreamableHttpClientTransport::with_client(AuthClient::new(client, manager), config))
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
