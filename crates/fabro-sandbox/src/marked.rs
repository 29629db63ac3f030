use std::sync::{Arc, OnceLock};

use async_trait::async_trait;

use crate::{Environment, Exec, ExecError, Finished, Mark, Request};

/// Runs scripts as another does, each with the same [`Mark`]: what they left running in process
/// groups of their own may be used by later scripts, and is ended when this is dropped.
pub struct MarkedExec {
    exec: Arc<dyn Exec>,
    /// Made with the first script, for to look for leftovers takes a while.
    mark: OnceLock<Mark>,
}

impl MarkedExec {
    /// Has them run by `exec`.
    pub fn new(exec: Arc<dyn Exec>) -> Self {
        Self { exec, mark: OnceLock::new() }
    }
}

#[async_trait]
impl Exec for MarkedExec {
    async fn run(&self, request: Request<'_>) -> Result<Finished, ExecError> {
        let mark = [self.mark.get_or_init(Mark::new).variable()];
        let (Environment::Inherit(own) | Environment::Only(own)) = request.env;
        let own = [own, &mark].concat();
        let env = match request.env {
            Environment::Inherit(_) => Environment::Inherit(&own),
            Environment::Only(_) => Environment::Only(&own),
        };
        self.exec.run(Request { env, ..request }).await
    }
}
