//! The log of a run as an OpenTelemetry trace, and its export by OTLP over HTTP.
//!
//! ```
//! use fabro_events::{Entry, Event, EventBody};
//! use fabro_telemetry::{Contents, trace};
//! use fabro_types::RunId;
//!
//! let run_id = RunId::from_parts(0, 7);
//! let event = |seq, body| Event { run_id, seq, ts_ms: 0, entry: Entry::new(body) };
//! let log = [event(1, EventBody::RunStarted {})];
//! let export = trace(run_id, &[log.as_slice()], &Contents::Omitted);
//! let json = serde_json::to_value(&export).unwrap();
//! let span = &json["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
//! assert_eq!(span["name"], "invoke_workflow");
//! ```
//!
//! The trace is a projection: the same log gives the same ids, so an export can be repeated and a part of it
//! resent. The trace id is the run's id, as bytes; a span's id is a hash of what the span stands for. Runs of
//! sub-workflows are in the trace of the run that they belong to.
//!
//! | what | span |
//! | --- | --- |
//! | a run | `invoke_workflow NAME` |
//! | an agent's stage, an agent that another one started | `invoke_agent NODE` |
//! | any other stage | `stage NODE` |
//! | a request to a model: an answered one, or a failed one that another one followed | `chat MODEL` |
//! | a call of a tool | `execute_tool TOOL` |
//!
//! Retries, gates, compactions and edges are events of these spans. The names of attributes are those of the
//! semantic conventions for generative AI, in [`names`]; what these do not know is below `fabro.`.
//!
//! # Limits
//!
//! Prompts, answers, arguments and results of tools are left out unless [`Contents::With`] asks for them: they
//! may be confidential, and large. Times are whole milliseconds. The last failed request of a stage that failed has
//! no span of its own: it is the failure of the stage.

mod export;
pub mod names;
mod otlp;
mod project;

pub use export::{ExportError, Exporter};
pub use otlp::{Attribute, Export, Span, SpanEvent, SpanStatus, Value as AttributeValue};
pub use project::{Contents, trace};
