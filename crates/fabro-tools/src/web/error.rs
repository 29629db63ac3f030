use std::error::Error;
use std::net::IpAddr;
use std::time::Duration;

use crate::web::cut::head;

/// Settings of a tool that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// An entry of the allowed private hosts is not a host.
    #[error("`{0}` is not a host: write HOST or HOST:PORT, such as `127.0.0.1:8080`")]
    Allow(String),
    /// The URL of the HTTP tool of this name cannot be called.
    #[error("the tool `{0}` has no usable url: write a whole one, with http:// or https://")]
    Url(String),
    /// The parameters of the HTTP tool of this name are not an object.
    #[error("the parameters of the tool `{0}` are not a JSON Schema: make them an object")]
    Parameters(String),
    /// This header of the HTTP tool of this name cannot be sent. Its value may be secret, so it is not
    /// shown.
    #[error("the header `{0}` of the tool `{1}` cannot be sent: check its name and value")]
    Header(String, String),
}

/// Why a host is not connected to.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(
        "`{host}` is at {address}, which is not a public address; only the settings can permit it, \
         with `web_allow` in `[run.agent]`"
    )]
    Private { host: String, address: IpAddr },
    #[error("`{host}` cannot be found ({reason}): check its name")]
    Unknown { host: String, reason: String },
}

impl Refusal {
    pub(crate) fn private(host: &str, address: IpAddr) -> Self {
        Self::Private { host: head(host, SHOWN).to_owned(), address }
    }

    pub(crate) fn unknown(host: &str, reason: String) -> Self {
        Self::Unknown { host: head(host, SHOWN).to_owned(), reason }
    }
}

/// Why a request has no result. The messages are for the agent. They contain text of servers unchanged
/// and whole, so that secrets in them can be redacted; the caller cuts them.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("`{0}` is not a URL: write a whole one, with http:// or https://")]
    NoUrl(String),
    #[error("`{0}` cannot be fetched: only http:// and https:// can")]
    Scheme(String),
    #[error("a URL with a user name or password is not fetched: remove them")]
    UserInfo,
    #[error("{0}")]
    Refused(#[from] Refusal),
    #[error("it redirects to something that is not a URL")]
    BadRedirect,
    #[error("more than {0} redirects: this may be a loop")]
    Redirects(usize),
    #[error("it redirects to {0}, another origin: name that one in the settings")]
    Elsewhere(String),
    #[error("the arguments make a URL of {0} bytes, too long for a GET: shorten them")]
    TooLong(usize),
    #[error("timeout: no complete response within {0:?}; try again later, or request less")]
    Time(Duration),
    #[error(
        "the answer is {media} ({size}), which is not text: only text, HTML, JSON and XML are read"
    )]
    NoText { media: String, size: String },
    #[error("the answer is compressed ({0}), though that was not asked for: it cannot be read")]
    Compressed(String),
    #[error("the request failed: {0}")]
    Http(String),
    #[error("no HTTP client can be made: {0}")]
    Client(String),
}

impl From<reqwest::Error> for FetchError {
    /// The innermost error: those around it only say that a request failed, and its URL.
    fn from(error: reqwest::Error) -> Self {
        let error = error.without_url();
        let mut deepest: &(dyn Error + 'static) = &error;
        loop {
            if let Some(refusal) = deepest.downcast_ref::<Refusal>() {
                return Self::Refused(refusal.clone());
            }
            match deepest.source() {
                Some(source) => deepest = source,
                None => return Self::Http(deepest.to_string()),
            }
        }
    }
}

/// How many characters of foreign text an error shows.
pub(crate) const SHOWN: usize = 200;
