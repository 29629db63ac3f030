use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use fabro_types::{ModelInterface, ProviderKind};

/// A server of models, and how it is reached.
#[derive(Clone)]
pub struct Provider {
    /// The name that requests use.
    pub name: String,
    /// The API that it speaks.
    pub kind: ProviderKind,
    /// The default address of its kind when absent. The version (`/v1`) may be left out where it is
    /// clear.
    pub base_url: Option<String>,
    /// Its API key. Only the default addresses need one.
    pub key: Option<Secret>,
    /// The model that is asked for where no model is named, and neither its kind nor the catalog has a usual one.
    pub listed_model: Option<String>,
    /// The interface for its models, where its kind is `openai` or `openai-compatible`.
    pub interface: Option<ModelInterface>,
    /// Whether it takes the JSON Schema of an answer; when absent, that is tried.
    pub output_schema: Option<bool>,
    /// Whether it is to keep its prompt cache for an hour instead of five minutes, where its kind is
    /// `anthropic`: what is written into it costs more then.
    pub long_cache: bool,
    /// Sent with every request; they replace our own.
    pub headers: BTreeMap<String, String>,
    /// How long an answer may take to begin; ten minutes when absent.
    pub request_timeout: Option<Duration>,
    /// How long an answer may pause once it has begun; five minutes when absent.
    pub stream_timeout: Option<Duration>,
}

impl Provider {
    /// A provider at the default address of its kind, without a key.
    pub fn new(name: impl Into<String>, kind: ProviderKind) -> Self {
        Self {
            name: name.into(),
            kind,
            base_url: None,
            key: None,
            listed_model: None,
            interface: None,
            output_schema: None,
            long_cache: false,
            headers: BTreeMap::new(),
            request_timeout: None,
            stream_timeout: None,
        }
    }

    /// Who serves its models: the kind, or the name of a server that is compatible with `OpenAI`'s.
    pub(super) fn vendor(&self) -> &str {
        match self.kind {
            ProviderKind::Anthropic => "anthropic",
            ProviderKind::OpenAi | ProviderKind::OpenAiResponses => "openai",
            ProviderKind::Gemini => "gemini",
            ProviderKind::OpenAiCompatible => &self.name,
        }
    }

    /// Claude on Vertex AI: the model is in the URL, and the version of the interface in the body.
    pub(super) fn is_vertex(&self) -> bool {
        let url = self.base_url.as_deref().unwrap_or_default();
        self.kind == ProviderKind::Anthropic
            && url.trim_end_matches('/').ends_with("/publishers/anthropic")
    }

    /// Whether the key of Anthropic's interface is a token, as in the clouds of others.
    pub(super) fn has_bearer_key(&self) -> bool {
        let is_bedrock = self.base_url.as_ref().is_some_and(|url| url.contains("bedrock"));
        self.kind != ProviderKind::Anthropic || is_bedrock || self.is_vertex()
    }

    /// How many times the list prices it costs, where that is not once: a region of Vertex AI is dearer than
    /// all of them together.
    pub(super) fn price_factor(&self) -> Option<f64> {
        let url = self.base_url.as_deref().unwrap_or_default();
        (self.is_vertex() && !url.contains("/locations/global/")).then_some(1.1)
    }

    /// The text without the key and the values of headers.
    pub(super) fn redacted(&self, text: &str) -> String {
        // Shorter values are no secrets (`none`), and would be found in any text.
        let key = self.key.as_ref().map(Secret::reveal).filter(|key| key.len() >= 6);
        let headers = self.headers.values().map(String::as_str).filter(|value| value.len() >= 8);
        let secrets = key.into_iter().chain(headers);
        let mut text = text.to_owned();
        for secret in secrets {
            // `Bearer abc` is a header's value; `abc` alone is a secret too.
            let last = secret.rsplit(' ').next().filter(|last| last.len() >= 8);
            text = text.replace(secret, "[hidden]").replace(last.unwrap_or(secret), "[hidden]");
        }
        text
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("base_url", &self.base_url)
            .field("key", &self.key)
            .field("listed_model", &self.listed_model)
            .field("interface", &self.interface)
            .field("output_schema", &self.output_schema)
            .field("long_cache", &self.long_cache)
            .field("headers", &self.headers.keys())
            .field("request_timeout", &self.request_timeout)
            .field("stream_timeout", &self.stream_timeout)
            .finish()
    }
}

/// An API key. It cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// A key, without whitespace around it.
    pub fn new(key: impl AsRef<str>) -> Self {
        Self(key.as_ref().trim().to_owned())
    }

    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
