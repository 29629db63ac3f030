//! Routing directives and JSON objects out of model text, in one linear pass.
//!
//! A model answers in prose and, somewhere in it, a JSON object that tells the workflow where to
//! go next. [`extract`] finds it; [`json_objects`] finds any object.
//!
//! ```
//! use fabro_routing::{OutcomeWord, extract};
//! use fabro_types::Status;
//!
//! let answer = r#"The tests fail in {two} places.
//! {"outcome": "failed", "preferred_next_label": "fix", "suggested_next_ids": 7}"#;
//! let found = extract(answer).unwrap();
//! assert_eq!(found.directives.outcome, Some(OutcomeWord::Status(Status::Failed)));
//! assert_eq!(found.directives.preferred_next_label.as_deref(), Some("fix"));
//! assert_eq!(found.warnings[0].field, "suggested_next_ids");
//! assert!(answer[found.span].starts_with("{\"outcome\""));
//! ```
//!
//! The last outermost object that parses and has a recognised field counts. An object inside
//! another is never taken on its own, not even when the outer one does not parse or breaks off.
//!
//! Limits: an object nested deeper than 127 levels does not parse. Only the last 4 GiB of a text
//! are looked at.

mod directives;
mod objects;

pub use directives::{Directives, Extracted, FIELDS, OutcomeWord, Warning, extract};
pub use objects::json_objects;

#[cfg(test)]
mod tests;
