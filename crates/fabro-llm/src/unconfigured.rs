use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};

use crate::{ErrorKind, Model, ModelError, Part, Request};

/// The model where none is configured: every request is an error that says so.
#[derive(Clone, Debug)]
pub struct Unconfigured {
    /// The node of the stage.
    pub node: Arc<str>,
}

impl Model for Unconfigured {
    fn stream(&self, _: Request) -> BoxStream<'static, Result<Part, ModelError>> {
        let message = format!("no model is configured, but `{}` needs one", self.node);
        let error = ModelError::new(ErrorKind::Auth).with_message(message);
        stream::iter([Err(error)]).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::complete;

    #[tokio::test]
    async fn every_request_is_an_error() {
        let model = Unconfigured { node: "plan".into() };
        let error = complete(&model, Request::new(Vec::new())).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Auth);
        assert_eq!(error.to_string(), "no model is configured, but `plan` needs one");
    }
}
