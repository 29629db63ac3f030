//! One narrow trait for language models, with a simulated, a scripted and a recorded one.
//!
//! [`Model`] has one function: a [`Request`] goes in, a stream of [`Part`]s comes out, and a turn
//! is whole only when the stream said [`Part::End`]. [`complete`] collects such a stream. What went
//! wrong is a [`ModelError`], whose kind decides how the failure is treated.
//!
//! [`SimulatedModel`] answers dry runs. [`ScriptedModel`] plays the answers of a JSON file: the
//! place in its lists comes from the request alone, so a run that was interrupted goes on where it
//! was. [`RecordedModel`] gives the answers of a [`Recording`] again.
//!
//! [`ask`] asks any of them for a whole turn, again and elsewhere where that may help. [`Catalog`]
//! knows windows and prices. Behind the feature `providers`, `Providers` is a model that asks real
//! ones over HTTP.
//!
//! ```
//! use fabro_llm::{Message, Origin, Request, ScriptedModel, complete};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = ScriptedModel::from_json(
//!     r#"{"plan": [{"text": "first"}, {"text": "later"}], "*": [{"error": "auth"}]}"#,
//! )?;
//! let ask = |node, taken: u32| {
//!     let mut request = Request::new(Origin::new(node), vec![Message::user("Make a plan").into()]);
//!     request.origin.taken.insert("plan".into(), taken);
//!     request
//! };
//! let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
//! assert_eq!(runtime.block_on(complete(&model, ask("plan", 0)))?.text(), "first");
//! assert_eq!(runtime.block_on(complete(&model, ask("plan", 7)))?.text(), "later");
//! let error = runtime.block_on(complete(&model, ask("review", 0))).unwrap_err();
//! assert_eq!(error.class(), fabro_types::FailureClass::Deterministic);
//! # Ok(())
//! # }
//! ```
//!
//! # Limits
//!
//! - Requests carry text, tools, their calls and results; no pictures.
//! - [`complete`] and [`ask`] hold the whole answer in memory.
//! - `Providers` reads the body of an error, and a single event of a stream, whole, however large they
//!   are; only a stream of more than 64 MB is given up between two events. Reading one event takes a
//!   time that grows with the square of its size, until the timeouts of its provider end it.

mod ask;
mod catalog;
mod error;
mod message;
mod model;
#[cfg(feature = "providers")]
mod providers;
mod recorded;
mod script;
mod scripted;
mod simulated;
mod unconfigured;

pub use ask::{Asking, Fallback, Progress, RetryPolicy, ask};
pub use catalog::{Catalog, ModelInfo, ReasoningStyle, cost};
pub use error::{ErrorKind, ModelError};
pub use message::{Content, Message, Reasoning, Role, ToolCall, ToolSpec};
pub use model::{Model, Origin, Part, Reply, Request, StopReason, collect, complete};
#[cfg(feature = "providers")]
pub use providers::{Provider, ProviderKind, Providers, Secret, SetupError, install_tls};
pub use recorded::{RecordedModel, Recording};
pub use script::ScriptError;
pub use scripted::ScriptedModel;
pub use simulated::SimulatedModel;
pub use unconfigured::Unconfigured;
