use std::sync::Arc;

use fabro_types::Usage;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};

use crate::{Model, ModelError, Part, Request, StopReason};

/// Answers every request with a line that names the node, at once and at no cost.
///
/// ```
/// use fabro_llm::{Request, SimulatedModel, complete};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// let model = SimulatedModel { node: "plan".into() };
/// let reply = runtime.block_on(complete(&model, Request::new(Vec::new())))?;
/// assert_eq!(reply.text(), "[simulated] response for stage plan");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SimulatedModel {
    /// The node of the stage.
    pub node: Arc<str>,
}

impl Model for SimulatedModel {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Part, ModelError>> {
        let text = format!("[simulated] response for stage {}", self.node);
        let model = request.model.or_else(|| Some("simulated".to_owned()));
        let usage = Usage { model, turns: 1, ..Usage::default() };
        let end = Part::End { usage, stop: StopReason::Complete };
        stream::iter([Ok(Part::Text(text)), Ok(end)]).boxed()
    }
}
