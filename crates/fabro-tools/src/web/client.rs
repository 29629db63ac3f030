use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::dns::{Addrs, Name, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder};

use super::address::is_public;

const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Finds the addresses of a host.
#[async_trait]
pub trait Resolve: Send + Sync {
    /// All addresses of a name.
    ///
    /// # Errors
    ///
    /// The name is not known, or nobody could be asked.
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// Asks the system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

#[async_trait]
impl Resolve for SystemResolver {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect())
    }
}

/// What both clients of this crate have in common: no redirect is followed.
pub(super) fn builder() -> ClientBuilder {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error means that another thread was faster, with whatever provider it prefers.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    Client::builder()
        .redirect(Policy::none())
        .referer(false)
        .connect_timeout(CONNECT_LIMIT)
        .user_agent(concat!("fabro/", env!("CARGO_PKG_VERSION")))
}

/// A client that connects to the addresses that the resolver gives, and to no others. With `guard`
/// only to public ones: what is looked at is what is connected to, so a name that changes its mind
/// between two questions gains nothing.
///
/// It does not heed proxies, which would ask for the addresses themselves.
pub(super) fn resolving(resolver: Arc<dyn Resolve>, guard: bool) -> Result<Client, String> {
    let built = builder()
        .no_proxy()
        // Nothing is connected to that was not looked at for this very request.
        .pool_max_idle_per_host(0)
        .dns_resolver(Arc::new(Guard { resolver, guard }))
        .build();
    built.map_err(|error| format!("no web client can be made: {}", chain(&error)))
}

struct Guard {
    resolver: Arc<dyn Resolve>,
    guard: bool,
}

impl reqwest::dns::Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let (resolver, guard) = (Arc::clone(&self.resolver), self.guard);
        Box::pin(async move {
            let found = resolver.resolve(name.as_str()).await?;
            let mut addresses: Vec<_> = found.iter().map(|&ip| SocketAddr::new(ip, 0)).collect();
            if guard {
                addresses.retain(|address| is_public(address.ip()));
            }
            match found.first() {
                Some(&address) if addresses.is_empty() => Err(Box::new(Private { address }) as _),
                _ => Ok(Box::new(addresses.into_iter()) as Addrs),
            }
        })
    }
}

/// A host that is on this machine or its network.
#[derive(Debug)]
pub(super) struct Private {
    pub(super) address: IpAddr,
}

impl fmt::Display for Private {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is no public address", self.address)
    }
}

impl Error for Private {}

/// The refusal in an error of the client, if that is what it is.
pub(super) fn refusal(error: &reqwest::Error) -> Option<&Private> {
    sources(error).find_map(|error| error.downcast_ref())
}

/// What an error says, with what caused it, and without the address, which may hold a secret.
pub(super) fn chain(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "it took too long".to_owned();
    }
    let last = sources(error).last().map(ToString::to_string);
    last.unwrap_or_else(|| {
        if error.is_connect() { "cannot connect" } else { "it failed" }.to_owned()
    })
}

/// What caused an error, outermost first.
fn sources(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |&error| error.source())
}
