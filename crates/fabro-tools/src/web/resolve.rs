use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::{fmt, io};

use async_trait::async_trait;
use reqwest::dns::{Addrs, Name, Resolving};

use crate::web::address::is_public;
use crate::web::error::Refusal;

/// Finds the addresses of a host.
///
/// A map from names to addresses is one, for tests.
///
/// Implement it under `#[async_trait]`, of the crate `async-trait` 0.1.
#[async_trait]
pub trait Resolve: Send + Sync {
    /// All addresses of a host, in the order in which they are tried.
    ///
    /// # Errors
    ///
    /// The name is not known, or no resolver could be asked.
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// Asks the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

#[async_trait]
impl Resolve for SystemResolver {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect())
    }
}

#[async_trait]
impl Resolve for BTreeMap<String, Vec<IpAddr>> {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let unknown = || io::Error::new(io::ErrorKind::NotFound, "no such name");
        self.get(host).cloned().ok_or_else(unknown)
    }
}

/// A resolver of an HTTP client. The client connects to the addresses it gave and to no others, so
/// what was checked is what is reached.
pub(crate) struct Checked {
    pub(crate) resolver: Arc<dyn Resolve>,
    pub(crate) only_public: bool,
}

impl reqwest::dns::Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let resolver = Arc::clone(&self.resolver);
        let only_public = self.only_public;
        Box::pin(async move {
            let host = name.as_str();
            let found = resolver.resolve(host).await;
            let found = found.map_err(|error| Refusal::unknown(host, error.to_string()))?;
            if found.is_empty() {
                return Err(Refusal::unknown(host, "it has no address".to_owned()).into());
            }
            // One private address is enough: which one is taken is not for us to say.
            if only_public && let Some(private) = found.iter().find(|it| !is_public(**it)) {
                return Err(Refusal::private(host, *private).into());
            }
            let addresses: Addrs =
                Box::new(found.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}

impl fmt::Debug for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checked").field("only_public", &self.only_public).finish_non_exhaustive()
    }
}
