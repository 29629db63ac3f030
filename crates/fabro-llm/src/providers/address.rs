use genai::Headers;
use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};

use super::{Provider, ProviderKind, SetupError};

/// Where a provider's requests go, and what is sent along.
#[derive(Clone, Debug)]
pub(super) struct Address {
    /// The base, with its version and without a slash at its end.
    base: String,
    /// The query of the base URL, with its question mark.
    query: String,
    /// The base for people: without what may hold a password or a key.
    shown: String,
}

impl Address {
    pub(super) fn new(provider: &Provider) -> Result<Self, SetupError> {
        let name = || provider.name.clone();
        let usual = match provider.kind {
            ProviderKind::Anthropic => Some("https://api.anthropic.com/v1"),
            ProviderKind::OpenAi | ProviderKind::OpenAiResponses => {
                Some("https://api.openai.com/v1")
            }
            ProviderKind::Gemini => Some("https://generativelanguage.googleapis.com/v1beta"),
            ProviderKind::OpenAiCompatible => None,
        };
        let base = provider.base_url.as_deref().or(usual);
        let base = base.ok_or_else(|| SetupError::NoBaseUrl { provider: name() })?;
        let bad = |reason: String| SetupError::BaseUrl { provider: name(), reason };
        let mut url = Url::parse(base.trim()).map_err(|error| bad(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(bad("another scheme".to_owned()));
        }
        let key = provider.key.as_ref().map(super::Secret::reveal).unwrap_or_default();
        if HeaderValue::try_from(key).is_err() {
            return Err(SetupError::Key { provider: name() });
        }
        for (header, value) in &provider.headers {
            let fine = HeaderName::try_from(header).is_ok() && HeaderValue::try_from(value).is_ok();
            if !fine {
                return Err(SetupError::Header { provider: name(), header: header.clone() });
            }
        }
        let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
        url.set_query(None);
        url.set_fragment(None);
        let base = url.as_str().trim_end_matches('/');
        let version = version(provider.kind, url.path().trim_end_matches('/'));
        let base = format!("{base}{version}");
        // Only a URL that has no place for them refuses these.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        let shown = format!("{}{version}", url.as_str().trim_end_matches('/'));
        Ok(Self { base, query, shown })
    }

    /// Where requests to this model go.
    pub(super) fn url(&self, kind: ProviderKind, model: &str) -> String {
        let Self { base, query, .. } = self;
        match kind {
            ProviderKind::Anthropic => format!("{base}/messages{query}"),
            ProviderKind::OpenAi | ProviderKind::OpenAiCompatible => {
                format!("{base}/chat/completions{query}")
            }
            ProviderKind::OpenAiResponses => format!("{base}/responses{query}"),
            ProviderKind::Gemini => {
                let query = query.strip_prefix('?').map(|rest| format!("&{rest}"));
                let query = query.unwrap_or_default();
                format!("{base}/models/{model}:streamGenerateContent?alt=sse{query}")
            }
        }
    }

    pub(super) fn shown(&self) -> &str {
        &self.shown
    }
}

/// What has to follow the path of a base URL. The providers' own clients take it without the
/// version, others with it.
fn version(kind: ProviderKind, path: &str) -> &'static str {
    let versioned = ["/v1", "/v1beta", "/v1alpha"].iter().any(|version| path.ends_with(version));
    match kind {
        _ if versioned => "",
        ProviderKind::Anthropic => "/v1",
        ProviderKind::Gemini => "/v1beta",
        // Many serve Chat Completions below other paths.
        _ if path.is_empty() => "/v1",
        _ => "",
    }
}

/// The headers of every request, their names in lower case.
pub(super) fn headers(provider: &Provider, fast: bool) -> Headers {
    let mut headers = Vec::new();
    let mut add = |name: &str, value: &str| headers.push((name.to_owned(), value.to_owned()));
    if let Some(key) = &provider.key {
        match provider.kind {
            ProviderKind::Anthropic => add("x-api-key", key.reveal()),
            ProviderKind::Gemini => add("x-goog-api-key", key.reveal()),
            _ => add("authorization", &format!("Bearer {}", key.reveal())),
        }
    }
    if provider.kind == ProviderKind::Anthropic {
        add("anthropic-version", "2023-06-01");
        if fast {
            add("anthropic-beta", "fast-mode-2026-02-01");
        }
    }
    for (name, value) in &provider.headers {
        add(&name.to_ascii_lowercase(), value);
    }
    // The last of a name counts.
    Headers::from(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: ProviderKind, base_url: Option<&str>, expect: &str) {
        let provider =
            Provider { base_url: base_url.map(str::to_owned), ..Provider::new("p", kind) };
        let told = match Address::new(&provider) {
            Ok(address) => address.url(kind, "m"),
            Err(error) => error.to_string(),
        };
        assert_eq!(told, expect);
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
    fn what_cannot_be_used_is_refused() {
        use ProviderKind::{OpenAi, OpenAiCompatible};
        check(
            OpenAiCompatible,
            None,
            "provider `p` has no base URL: say where it is, as in `http://127.0.0.1:8080/v1`",
        );
        check(
            OpenAi,
            Some("localhost"),
            "the base URL of provider `p` is no URL of http or https (relative URL without a base): mend it",
        );
        check(
            OpenAi,
            Some("ftp://h"),
            "the base URL of provider `p` is no URL of http or https (another scheme): mend it",
        );
        let mut provider = Provider::new("p", OpenAi);
        provider.headers.insert("x-a".to_owned(), "a\nb".to_owned());
        assert!(Address::new(&provider).is_err());
        let key = Some(super::super::Secret::new("a\nb"));
        let error = Address::new(&Provider { key, ..Provider::new("p", OpenAi) }).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the key of provider `p` has characters that no key has: set it again"
        );
    }

    #[test]
    fn passwords_are_not_shown() {
        let base_url = Some("http://me:secret@h:1/v1".to_owned());
        let provider = Provider { base_url, ..Provider::new("p", ProviderKind::OpenAi) };
        assert_eq!(Address::new(&provider).unwrap().shown(), "http://h:1/v1");
    }
}
