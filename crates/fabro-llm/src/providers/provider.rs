use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use fabro_types::ProviderKind;

/// Who serves models, and how it is reached.
#[derive(Clone)]
pub struct Provider {
    /// What requests call it.
    pub name: String,
    /// What it speaks.
    pub kind: ProviderKind,
    /// Where it is; the usual place of its kind when absent. The version (`/v1`) may be missing
    /// where it is clear.
    pub base_url: Option<String>,
    /// Its key. Only the usual places need one.
    pub key: Option<Secret>,
    /// Sent with every request; they go before its own.
    pub headers: BTreeMap<String, String>,
    /// How long an answer may take to begin; ten minutes when absent.
    pub request_timeout: Option<Duration>,
    /// How long an answer may pause once it has begun; five minutes when absent.
    pub stream_timeout: Option<Duration>,
}

impl Provider {
    /// A provider at the usual place of its kind, with no key.
    pub fn new(name: impl Into<String>, kind: ProviderKind) -> Self {
        Self {
            name: name.into(),
            kind,
            base_url: None,
            key: None,
            headers: BTreeMap::new(),
            request_timeout: None,
            stream_timeout: None,
        }
    }

    /// Takes out of a text what nobody is to read: the key and the values of headers.
    pub(super) fn masked(&self, text: &str) -> String {
        // Shorter values are no secrets (`none`), and would be found in any text.
        let key = self.key.as_ref().map(Secret::reveal).filter(|key| key.len() >= 6);
        let headers = self.headers.values().map(String::as_str).filter(|value| value.len() >= 8);
        let secrets = key.into_iter().chain(headers);
        secrets.fold(text.to_owned(), |text, secret| {
            // `Bearer abc` is a header's value; `abc` alone is to be hidden too.
            let last = secret.rsplit(' ').next().unwrap_or(secret);
            let last = if last.len() >= 8 { last } else { secret };
            text.replace(secret, "[hidden]").replace(last, "[hidden]")
        })
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("base_url", &self.base_url)
            .field("key", &self.key)
            .field("headers", &self.headers.keys())
            .field("request_timeout", &self.request_timeout)
            .field("stream_timeout", &self.stream_timeout)
            .finish()
    }
}

/// It speaks Chat Completions.
pub(super) fn chats(kind: ProviderKind) -> bool {
    matches!(kind, ProviderKind::OpenAi | ProviderKind::OpenAiCompatible)
}

/// A key. It cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// A key, without the white space around it.
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
