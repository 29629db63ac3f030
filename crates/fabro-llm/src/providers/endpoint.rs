use std::net::IpAddr;

use hyper_util::client::proxy::matcher::Matcher;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use super::interface::Wire;
use super::{Provider, ProviderKind, SetupError};

/// Where the requests of a provider go, and the headers they have.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    /// The base URL with its version, without a slash at its end.
    base: String,
    /// The query of the base URL, with its question mark.
    query: String,
    /// The base URL without what may hold a password or a key, for messages.
    display: String,
    /// All of them are marked as sensitive.
    headers: HeaderMap,
    /// The model is in the URL of Anthropic's interface, too.
    is_vertex: bool,
    /// The server runs on this machine.
    is_loopback: bool,
    /// The address of the proxy from the environment, without credentials.
    proxy: Option<String>,
}

impl Endpoint {
    pub(super) fn new(provider: &Provider) -> Result<Self, SetupError> {
        let name = &provider.name;
        let default = match provider.kind {
            ProviderKind::Anthropic => Some("https://api.anthropic.com/v1"),
            ProviderKind::Gemini => Some("https://generativelanguage.googleapis.com/v1beta"),
            ProviderKind::OpenAiCompatible => None,
            ProviderKind::OpenAi | ProviderKind::OpenAiResponses => {
                Some("https://api.openai.com/v1")
            }
        };
        let base = provider.base_url.as_deref().or(default);
        let base = base.ok_or_else(|| {
            let message = format!("provider `{name}` has no base URL");
            SetupError::new(message, "set one, as in `http://127.0.0.1:8080/v1`")
        })?;
        let invalid = |reason: String| {
            let what = "is not an http or https URL";
            SetupError::new(
                format!("the base URL of provider `{name}` {what} ({reason})"),
                "fix it",
            )
        };
        let mut url = Url::parse(base.trim()).map_err(|error| invalid(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(invalid("another scheme".to_owned()));
        }
        if url.host_str().is_some_and(|host| host.starts_with("bedrock-runtime")) {
            let message = format!(
                "the base URL of provider `{name}` is that of interfaces that Fabro does not speak (InvokeModel, Converse)"
            );
            let fix =
                "set `https://bedrock-mantle.REGION.api.aws/anthropic`, with a Bedrock API key";
            return Err(SetupError::new(message, fix));
        }
        let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
        url.set_query(None);
        url.set_fragment(None);
        let base = url.as_str().trim_end_matches('/');
        let version = missing_version(provider.kind, url.path().trim_end_matches('/'));
        let base = format!("{base}{version}");
        // Only a URL that has no place for them refuses these.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        let display = format!("{}{version}", url.as_str().trim_end_matches('/'));
        let is_loopback = is_loopback(&url);
        let proxy = if is_loopback { None } else { proxy_of(&base) };
        let is_vertex = provider.is_vertex();
        let headers = headers(provider)?;
        Ok(Self { base, query, display, headers, is_vertex, is_loopback, proxy })
    }

    /// Where requests to this model go.
    pub(super) fn url(&self, wire: Wire, model: &str, streams: bool) -> String {
        let Self { base, query, .. } = self;
        match wire {
            Wire::Anthropic if self.is_vertex => {
                let method = if streams { "streamRawPredict" } else { "rawPredict" };
                format!("{base}/models/{model}:{method}{query}")
            }
            Wire::Anthropic => format!("{base}/messages{query}"),
            Wire::ChatCompletions => format!("{base}/chat/completions{query}"),
            Wire::Responses => format!("{base}/responses{query}"),
            Wire::Gemini if !streams => format!("{base}/models/{model}:generateContent{query}"),
            Wire::Gemini => {
                let query = query.replacen('?', "&", 1);
                format!("{base}/models/{model}:streamGenerateContent?alt=sse{query}")
            }
        }
    }

    /// Where the list of models is.
    pub(super) fn list_url(&self) -> String {
        format!("{}/models{}", self.base, self.query)
    }

    /// The headers of a request.
    pub(super) fn headers(&self, kind: ProviderKind, is_fast: bool) -> HeaderMap {
        let mut headers = self.headers.clone();
        if kind == ProviderKind::Anthropic && is_fast && !headers.contains_key(BETA) {
            headers.insert(BETA, HeaderValue::from_static("fast-mode-2026-02-01"));
        }
        headers
    }

    /// Whether the server runs on this machine, where no proxy can reach it.
    pub(super) fn is_loopback(&self) -> bool {
        self.is_loopback
    }

    /// ` through the proxy …`, for connection errors; empty without a proxy.
    pub(super) fn through_proxy(&self) -> String {
        self.proxy.as_ref().map_or_else(String::new, |proxy| format!(" through the proxy {proxy}"))
    }

    /// The address for messages.
    pub(super) fn display(&self) -> &str {
        &self.display
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// The address of the proxy for a URL according to the environment (`HTTP_PROXY`, `NO_PROXY` etc.), with
/// the same rules as the HTTP client.
fn proxy_of(url: &str) -> Option<String> {
    let proxy = Matcher::from_env().intercept(&url.parse().ok()?)?;
    let uri = proxy.uri();
    let port = uri.port().map(|port| format!(":{port}")).unwrap_or_default();
    Some(format!("{}{port}", uri.host()?))
}

const BETA: HeaderName = HeaderName::from_static("anthropic-beta");

/// What the path of a base URL lacks. The providers' own clients expect it without the version,
/// others with it.
fn missing_version(kind: ProviderKind, path: &str) -> &'static str {
    let has_version = ["/v1", "/v1beta", "/v1alpha"].iter().any(|version| path.ends_with(version));
    match kind {
        _ if has_version => "",
        // Vertex AI, with the version before the project.
        _ if path.contains("/publishers/") => "",
        ProviderKind::Anthropic => "/v1",
        ProviderKind::Gemini => "/v1beta",
        // Many serve Chat Completions below other paths.
        _ if path.is_empty() => "/v1",
        _ => "",
    }
}

/// The headers of every request; those of the settings replace ours.
fn headers(provider: &Provider) -> Result<HeaderMap, SetupError> {
    let mut headers = HeaderMap::new();
    if let Some(key) = &provider.key {
        let key = key.reveal();
        let (name, value) = match provider.kind {
            ProviderKind::Anthropic if !provider.has_bearer_key() => ("x-api-key", key.to_owned()),
            ProviderKind::Gemini => ("x-goog-api-key", key.to_owned()),
            _ => (AUTHORIZATION.as_str(), format!("Bearer {key}")),
        };
        let value = HeaderValue::try_from(value);
        let value = value.map_err(|_| {
            let message =
                format!("the key of provider `{}` has characters that no key has", provider.name);
            SetupError::new(message, "set it again")
        })?;
        headers.insert(HeaderName::from_static(name), value);
    }
    if provider.kind == ProviderKind::Anthropic {
        let name = HeaderName::from_static("anthropic-version");
        headers.insert(name, HeaderValue::from_static("2023-06-01"));
    }
    for (header, value) in &provider.headers {
        let invalid = || {
            let place = format!("header `{header}` of provider `{}`", provider.name);
            let message = format!("{place} has a name or a value that HTTP does not allow");
            SetupError::new(message, "fix it")
        };
        let name = HeaderName::try_from(header).map_err(|_| invalid())?;
        headers.insert(name, HeaderValue::try_from(value).map_err(|_| invalid())?);
    }
    headers.values_mut().for_each(|value| value.set_sensitive(true));
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: ProviderKind, base_url: Option<&str>, expect: &str) {
        let provider =
            Provider { base_url: base_url.map(str::to_owned), ..Provider::new("p", kind) };
        let result = match Endpoint::new(&provider) {
            Ok(endpoint) => endpoint.url(Wire::of(&provider, "m", None), "m", true),
            Err(error) => error.to_string(),
        };
        assert_eq!(result, expect);
    }

    #[test]
    fn base_urls_lead_to_the_right_place() {
        use ProviderKind::{Anthropic, Gemini, OpenAi, OpenAiCompatible, OpenAiResponses};
        check(Anthropic, None, "https://api.anthropic.com/v1/messages");
        check(
            Anthropic,
            Some("https://api.anthropic.com"),
            "https://api.anthropic.com/v1/messages",
        );
        check(Anthropic, Some("http://h:1/v1/"), "http://h:1/v1/messages");
        check(Anthropic, Some("http://h/anthropic/"), "http://h/anthropic/v1/messages");
        let vertex = "https://h/v1/projects/p/locations/global/publishers";
        check(
            Anthropic,
            Some(&format!("{vertex}/anthropic/")),
            &format!("{vertex}/anthropic/models/m:streamRawPredict"),
        );
        check(
            Gemini,
            Some(&format!("{vertex}/google")),
            &format!("{vertex}/google/models/m:streamGenerateContent?alt=sse"),
        );
        check(
            Anthropic,
            Some("https://bedrock-mantle.us-east-1.api.aws/anthropic"),
            "https://bedrock-mantle.us-east-1.api.aws/anthropic/v1/messages",
        );
        check(
            OpenAi,
            Some("https://r.openai.azure.com/openai/v1/"),
            "https://r.openai.azure.com/openai/v1/chat/completions",
        );
        check(OpenAi, None, "https://api.openai.com/v1/chat/completions");
        check(OpenAi, Some("http://127.0.0.1:8401"), "http://127.0.0.1:8401/v1/chat/completions");
        check(OpenAiResponses, None, "https://api.openai.com/v1/responses");
        check(OpenAiCompatible, Some("http://h/api/v4"), "http://h/api/v4/chat/completions");
        check(
            OpenAiCompatible,
            Some("http://h/deployments/x?api-version=1"),
            "http://h/deployments/x/chat/completions?api-version=1",
        );
        check(
            Gemini,
            None,
            "https://generativelanguage.googleapis.com/v1beta/models/m:streamGenerateContent?alt=sse",
        );
        check(
            Gemini,
            Some("http://h/?a=b"),
            "http://h/v1beta/models/m:streamGenerateContent?alt=sse&a=b",
        );
    }

    #[test]
    fn invalid_settings_are_refused() {
        use ProviderKind::{OpenAi, OpenAiCompatible};
        check(
            OpenAiCompatible,
            None,
            "provider `p` has no base URL: set one, as in `http://127.0.0.1:8080/v1`",
        );
        check(
            OpenAi,
            Some("localhost"),
            "the base URL of provider `p` is not an http or https URL (relative URL without a base): fix it",
        );
        check(
            OpenAi,
            Some("ftp://h"),
            "the base URL of provider `p` is not an http or https URL (another scheme): fix it",
        );
        check(
            ProviderKind::Anthropic,
            Some("https://bedrock-runtime.us-east-1.amazonaws.com"),
            "the base URL of provider `p` is that of interfaces that Fabro does not speak (InvokeModel, Converse): set `https://bedrock-mantle.REGION.api.aws/anthropic`, with a Bedrock API key",
        );
        let mut provider = Provider::new("p", OpenAi);
        provider.headers.insert("x-a".to_owned(), "a\nb".to_owned());
        assert!(Endpoint::new(&provider).is_err());
        let key = Some(super::super::Secret::new("a\nb"));
        let error = Endpoint::new(&Provider { key, ..Provider::new("p", OpenAi) }).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the key of provider `p` has characters that no key has: set it again"
        );
    }

    #[test]
    fn keys_of_clouds_are_tokens() {
        let name = |base_url: Option<&str>| {
            let key = Some(super::super::Secret::new("secret"));
            let base_url = base_url.map(str::to_owned);
            let provider =
                Provider { base_url, key, ..Provider::new("p", ProviderKind::Anthropic) };
            let headers = Endpoint::new(&provider).unwrap().headers;
            headers.keys().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(name(None), "x-api-key anthropic-version");
        for url in [
            "https://bedrock-mantle.us-east-1.api.aws/anthropic",
            "https://h/v1/projects/p/locations/global/publishers/anthropic",
        ] {
            assert_eq!(name(Some(url)), "authorization anthropic-version");
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        let base_url = Some("http://me:secret@h:1/v1".to_owned());
        let provider = Provider { base_url, ..Provider::new("p", ProviderKind::OpenAi) };
        assert_eq!(Endpoint::new(&provider).unwrap().display(), "http://h:1/v1");
    }
}
