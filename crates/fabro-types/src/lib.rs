//! Ids, statuses, outcomes and source spans shared by every crate of the Fabro workflow engine.
//!
//! Nothing here reads a clock, draws a random number or touches a file. A type lives here only
//! when two crates share it.
//!
//! ```
//! use fabro_types::{Outcome, Status};
//!
//! let outcome = Outcome::succeeded().with_update("tests_passed", true);
//! assert_eq!(outcome.status, Status::Succeeded);
//! assert_eq!(Status::parse("partial_success"), Some(Status::PartiallySucceeded));
//! ```
//!
//! Limits: a failure's signature has at most 240 characters; a run's id sorts by the millisecond it
//! was made in, not finer.

mod blob_ref;
mod branch;
mod clause;
pub mod control_files;
mod diagnostic;
mod fidelity;
mod id;
mod json;
mod label;
mod model_info;
mod model_price;
mod model_rules;
mod nearest;
mod node_kind;
#[cfg(feature = "normalization")]
mod normalization;
mod outcome;
mod path;
mod permissions;
#[cfg(feature = "pest")]
mod pest_error;
mod provider_kind;
mod reserved;
pub mod running_scripts;
mod skip;
mod status;
mod syntax;
mod text;
mod tools;
mod usage;
mod weight;

pub use blob_ref::{BlobRef, ParseBlobRefError};
/// How deep sub-workflows nest: validation and the engine refuse more.
pub const MAX_SUB_WORKFLOW_DEPTH: usize = 16;

/// How hard a model may be asked to think.
pub const REASONING_EFFORTS: [&str; 7] =
    ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

pub use branch::{BranchPath, BranchResult, FanOutName, is_node_id, stage_node};
pub use clause::ClauseResult;
pub use control_files::ControlFile;
pub use diagnostic::{Diagnostic, LineIndex, Position, Severity, Span};
pub use fidelity::Fidelity;
pub use id::{ParseRunIdError, RunId};
pub use jiff::civil::Date;
pub use json::parse_json;
pub use label::{accelerator, label_matches, strip_accelerator};
pub use model_info::ModelInfo;
pub use model_price::{SpecialPrices, TokenPrices};
pub use model_rules::{ChatTools, ModelInterface, ReasoningEffort, ThinkingMode};
pub use nearest::nearest;
pub use node_kind::NodeKind;
#[cfg(feature = "normalization")]
pub use normalization::{nfc, other_normalization};
pub use outcome::{
    ContextPatch, Failure, FailureClass, OnFailure, OnUnavailable, Outcome, StageTrees,
    failure_signature,
};
pub use path::value_at;
pub use permissions::Permissions;
#[cfg(feature = "pest")]
pub use pest_error::{Unexpected, found, unexpected};
pub use provider_kind::ProviderKind;
pub use reserved::key_refusal;
pub use status::{RunStatus, Status};
pub use syntax::SyntaxError;
pub use text::{bounded, clean, escaped_json, excerpt, one_line, one_of, tokens, took};
pub use tools::{OWN_TOOLS, tool_names, unknown_tools};
pub use usage::{Costs, Usage};
pub use weight::Weight;
