//! What the handlers of requests share.

use std::sync::Arc;

use fabro_store::SqliteStore;

use crate::actions::{Actions, ServerConfig};
use crate::auth::Tokens;
use crate::bounds::Bounds;
use crate::folds::Folds;
use crate::live::Live;
use crate::metrics::Metrics;
use crate::once::Once;

/// The state of a server. None of it is needed after a restart.
pub(crate) struct App {
    pub(crate) actions: Actions,
    pub(crate) tokens: Tokens,
    /// The cookie of a login. Browsers send cookies to every port of a host, so it names the port.
    pub(crate) cookie_name: String,
    pub(crate) bounds: Bounds,
    pub(crate) live: Arc<Live>,
    pub(crate) folds: Arc<Folds>,
    pub(crate) once: Once,
    pub(crate) metrics: Metrics,
}

impl App {
    pub(crate) fn new(
        store: Arc<SqliteStore>,
        tokens: Tokens,
        port: u16,
        config: ServerConfig,
    ) -> Arc<Self> {
        let actions = Actions::new(Arc::clone(&store), config);
        Arc::new(Self {
            bounds: Bounds::new(),
            live: Live::new(Arc::clone(&store)),
            folds: Arc::clone(&actions.folds),
            once: Once::new(store),
            metrics: Metrics::new(),
            cookie_name: format!("fabro-{port}"),
            actions,
            tokens,
        })
    }
}
