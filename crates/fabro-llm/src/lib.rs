//! One narrow trait for language models, with a simulated and a scripted one.
//!
//! [`Model`] has one function: a [`Request`] goes in, a stream of [`Part`]s comes out, and a turn
//! is complete only when the stream ends with [`Part::End`]. [`complete`] collects such a stream. A
//! failure is a [`ModelError`], whose kind decides whether it is retried.
//!
//! [`SimulatedModel`] answers dry runs. [`ScriptedModel`] plays the turns of a [`Script`], a JSON file:
//! which one depends on the turns that were taken before, so an interrupted run continues where it
//! was.
//!
//! [`ask`] gets a whole turn from any of them, with retries and failover. [`Catalog`] has context
//! windows and prices. With the feature `providers`, `Providers` is a model that calls real ones over
//! HTTP.
//!
//! ```
//! use fabro_llm::{Message, Request, Script, TurnCounts, complete};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let script = Script::from_json(
//!     r#"{"plan": [{"text": "first"}, {"text": "later"}], "*": [{"error": "auth"}]}"#,
//! )?;
//! let request = Request::new(vec![Message::user("Make a plan").into()]);
//! let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
//! let model = script.model("plan", &TurnCounts::new());
//! assert_eq!(runtime.block_on(complete(&model, request.clone()))?.text(), "first");
//! assert_eq!(runtime.block_on(complete(&model, request.clone()))?.text(), "later");
//! let model = script.model("review", &TurnCounts::new());
//! let error = runtime.block_on(complete(&model, request)).unwrap_err();
//! assert_eq!(error.class(), fabro_types::FailureClass::Deterministic);
//! # Ok(())
//! # }
//! ```
//!
//! # Limits
//!
//! - Requests carry text, tools, their calls and results; no pictures.
//! - [`complete`] and [`ask`] hold the whole answer in memory.
//! - `Providers` gives up an answer of more than 64 MB and an event of more than 16 MB.

mod ask;
mod catalog;
mod error;
mod message;
mod model;
#[cfg(feature = "providers")]
mod providers;
mod script;
mod scripted;
mod simulated;
mod unconfigured;

pub use ask::{Fallback, Progress, RequestPolicy, RestingModels, RetryPolicy, ask};
pub use catalog::Catalog;
pub use error::{ErrorKind, ModelError};
pub use fabro_types::{
    ChatTools, ModelInfo, ModelInterface, ReasoningEffort, SpecialPrices, ThinkingMode, TokenPrices,
};
pub use message::{Content, Message, Reasoning, Role, ToolCall, ToolSpec};
pub use model::{
    AskingStage, Model, ModelSource, Part, Reply, Request, StopReason, TurnCounts, collect,
    complete,
};
#[cfg(all(fuzzing, feature = "providers"))]
pub use providers::fuzzing;
#[cfg(feature = "providers")]
pub use providers::{Provider, ProviderKind, Providers, Secret, SetupError, install_tls};
pub use script::{Script, ScriptError};
pub use scripted::ScriptedModel;
pub use simulated::SimulatedModel;
pub use unconfigured::Unconfigured;
