use fabro_types::Usage;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};

use crate::{Model, ModelError, Part, Request, StopReason};

/// Answers every request with a line that names the node, at once and at no cost.
///
/// ```
/// use fabro_llm::{Origin, Request, SimulatedModel, complete};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// let request = Request::new(Origin::new("plan"), Vec::new());
/// let reply = runtime.block_on(complete(&SimulatedModel, request))?;
/// assert_eq!(reply.text(), "[simulated] response for stage plan");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct SimulatedModel;

impl Model for SimulatedModel {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Part, ModelError>> {
        let text = format!("[simulated] response for stage {}", request.origin.node);
        let model = request.model.or_else(|| Some("simulated".to_owned()));
        let usage = Usage { model, turns: 1, ..Usage::default() };
        let end = Part::End { usage, stop: StopReason::Complete };
        stream::iter([Ok(Part::Text(text)), Ok(end)]).boxed()
    }
}
