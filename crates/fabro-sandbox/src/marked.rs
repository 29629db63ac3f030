use std::sync::{Arc, OnceLock};

use async_trait::async_trait;

use crate::{Environment, Exec, ExecError, Finished, Mark, Request};

/// Runs scripts by another [`Exec`], each with the same [`Mark`]: processes that they leave running in
/// process groups of their own may be used by later scripts, and are ended when this is dropped.
pub struct MarkedExec {
    exec: Arc<dyn Exec>,
    /// Created with the first script, because the search for leftovers takes a while.
    mark: OnceLock<Mark>,
}

impl MarkedExec {
    /// Scripts are run by `exec`.
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
