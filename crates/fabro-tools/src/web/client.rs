use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder};

use crate::web::error::FetchError;
use crate::web::resolve::{Checked, Resolve};

/// The timeout of a request, and how much of the response is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the call to the last byte, redirects included; 30 seconds by default.
    pub time: Duration,
    /// Bytes of the body that are read; what follows is left out. 1 MiB by default.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { time: Duration::from_secs(30), bytes: 1 << 20 }
    }
}

/// How many redirects are followed.
pub(crate) const REDIRECTS: usize = 5;

/// Built when it is first wanted: reading the system's certificates takes a while.
#[derive(Debug, Default)]
pub(crate) struct Lazy(OnceLock<Result<Client, String>>);

impl Lazy {
    pub(crate) const fn new() -> Self {
        Self(OnceLock::new())
    }

    pub(crate) fn get(
        &self,
        build: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Result<&Client, FetchError> {
        let client = self.0.get_or_init(|| {
            build(plain()).build().map_err(|error| error.without_url().to_string())
        });
        client.as_ref().map_err(|error| FetchError::Client(error.clone()))
    }
}

/// A client for URLs that the user did not choose.
pub(crate) fn guarded(
    builder: ClientBuilder,
    resolver: &Arc<dyn Resolve>,
    only_public: bool,
) -> ClientBuilder {
    let resolver = Checked { resolver: Arc::clone(resolver), only_public };
    // A proxy would resolve the name itself.
    builder.no_proxy().dns_resolver(Arc::new(resolver))
}

fn plain() -> ClientBuilder {
    // An error means that a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        // The URL of each redirect is checked first.
        .redirect(Policy::none())
        .referer(false)
        // An idle connection belongs to the async runtime that opened it, which may have ended.
        .pool_max_idle_per_host(0)
        // Even if other crates enable these features: the limit counts compressed bytes, so a
        // response must not grow when it is decompressed.
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .user_agent(concat!("fabro/", env!("CARGO_PKG_VERSION")))
}
