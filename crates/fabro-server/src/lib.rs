//! The runs of a store over HTTP: an API, events as they are committed, tokens with roles.
//!
//! [`Server::bind`] listens, and [`Server::run`] serves until its future is dropped. Drivers of runs are
//! processes of their own: the server starts the `fabro` program for them and holds nothing that a
//! restart loses. `docs/server.md` describes the API and what is refused.
//!
//! ```
//! use fabro_server::{Role, Server, ServerConfig};
//! use fabro_store::SqliteStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dir = tempfile::tempdir()?;
//! let store = SqliteStore::open(&dir.path().join("store"))?;
//! let config = ServerConfig {
//!     program: "fabro".into(),
//!     project: dir.path().into(),
//!     user_file: None,
//!     home: None,
//!     allowed_hosts: Vec::new(),
//! };
//! let address = "127.0.0.1:0".parse()?;
//! let server = Server::bind(address, store.into(), &[Role::Read], config).await?;
//! let [(Role::Read, address)] = &server.addresses()[..] else { panic!("one role, one address") };
//! assert!(address.starts_with("http://127.0.0.1:") && address.contains("/#token="));
//! # Ok(())
//! # }
//! ```
//!
//! # Limits
//!
//! - 512 connections and 256 streams of events at a time. Another connection takes the place of one that is not used.
//! - A head of 16 KiB within 10 s, a body of 1 MiB within 30 s; a reader that takes nothing for 30 s is
//!   dropped.
//! - HTTP without TLS: for other machines, put a proxy with TLS in front.

mod actions;
mod api;
mod app;
mod auth;
mod bounds;
mod connections;
mod folds;
mod guard;
mod inbox;
mod listen;
mod live;
mod mcp;
mod mcp_context;
mod mcp_http;
mod metrics;
mod monitoring;
mod once;
#[cfg(test)]
mod openapi;
mod pages;
mod problem;
mod turns;
mod webhooks;

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::{Router, middleware};
use fabro_config::Webhook;
use fabro_store::SqliteStore;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

pub use actions::ServerConfig;
pub use auth::{KEY_FILE, KeyError, Role, Tokens};
pub use mcp::{McpError, serve_mcp};
pub use mcp_context::serve_context;
pub use problem::Problem;
pub use webhooks::{FailingWebhook, WebhookError, failing_webhooks};

use app::App;
use webhooks::{Delivery, Warn, forget_others};

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address is taken, or cannot be used.
    #[error("{address} cannot be listened to: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The tokens cannot be made.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    app: Arc<App>,
    deliveries: Vec<Delivery>,
    warn: Warn,
}

impl Server {
    /// Listens on an address. Tokens of these roles are taken, and no others.
    ///
    /// # Errors
    ///
    /// The address cannot be used, or the key of the tokens cannot be read.
    pub async fn bind(
        address: SocketAddr,
        store: Arc<SqliteStore>,
        roles: &[Role],
        config: ServerConfig,
    ) -> Result<Self, ServeError> {
        let unusable = |source| ServeError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(unusable)?;
        let bound = listener.local_addr().map_err(unusable)?;
        let tokens = Tokens::open(store.dir(), roles)?;
        let app = App::new(store, tokens, bound.port(), config);
        Ok(Self { listener, address: bound, app, deliveries: Vec::new(), warn: Arc::new(|_| ()) })
    }

    /// Sends events of all runs to these endpoints while it serves. `variable` looks a variable of the
    /// environment up, and `warn` gets reports about endpoints that take no events.
    ///
    /// # Errors
    ///
    /// A secret is missing, or a setting cannot be used.
    pub fn with_webhooks(
        self,
        hooks: impl IntoIterator<Item = Webhook>,
        variable: impl Fn(&str) -> Option<String>,
        warn: impl Fn(String) + Send + Sync + 'static,
    ) -> Result<Self, WebhookError> {
        let deliveries = hooks.into_iter().map(|hook| Delivery::new(hook, &variable));
        Ok(Self { deliveries: deliveries.collect::<Result<_, _>>()?, warn: Arc::new(warn), ..self })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address to open for each role, with its token in the fragment, which browsers do not send.
    pub fn addresses(&self) -> Vec<(Role, String)> {
        let ip = match self.address.ip() {
            ip if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            ip => ip,
        };
        let address = SocketAddr::new(ip, self.address.port());
        let tokens = self.app.tokens.iter();
        tokens.map(|(role, token)| (role, format!("http://{address}/#token={token}"))).collect()
    }

    /// Serves until the future is dropped.
    pub async fn run(self) -> Infallible {
        let mut tasks = JoinSet::new();
        if let Err(error) = forget_others(self.app.actions.store.dir(), &self.deliveries) {
            (self.warn)(format!("reports about webhooks cannot be removed: {error}"));
        }
        for delivery in self.deliveries {
            let store = Arc::clone(&self.app.actions.store);
            tasks.spawn(delivery.run(store, self.app.live.subscribe(), Arc::clone(&self.warn)));
        }
        tasks.spawn(pages::read_latest(Arc::clone(&self.app)));
        let guard = middleware::from_fn_with_state(Arc::clone(&self.app), guard::guard);
        let router: Router = Router::new()
            .nest("/api/v1", api::routes())
            .merge(mcp_http::routes())
            .merge(monitoring::routes())
            .merge(pages::routes())
            .layer(guard)
            .with_state(self.app);
        listen::serve(self.listener, router).await
    }
}
