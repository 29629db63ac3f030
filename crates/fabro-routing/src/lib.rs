//! Routing directives and validated JSON out of model text, in one linear pass.
//!
//! A model answers in prose and, somewhere in it, a JSON object that tells the workflow where to
//! go next. [`extract`] finds it and takes what it can read; [`json_objects`] finds any object.
//! [`check()`] is strict: it holds the answer to the routing fields' types or to a JSON [`Schema`]
//! and says what is wrong, and [`feedback`] puts that into a message to the model.
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
//! Control characters inside strings are accepted. A later object with a recognised field that still
//! does not parse is reported with its line and column ([`Unreadable`]).
//!
//! # Limits
//!
//! An integer that does not fit 64 bits becomes a string with all of its digits; a schema validates
//! the number. An object nested deeper than 127 levels does not parse. Only the last 4 GiB of a
//! text are looked at. A schema fetches nothing: a `$ref` to a file or an address is refused.
//! `format` is not checked unless the schema's draft demands it. What a validation may cost is counted
//! first, for a schema whose `anyOf` or `oneOf` leads back to itself several times takes time
//! exponential in the nesting of an answer: beyond about two million steps the answer is refused.

mod cost;
mod directives;
mod explain;
mod objects;
mod parse;
mod schema;
mod validated;

pub use cost::{Affordable, Bounds, TOO_COSTLY, TOO_LARGE, is_too_large};
pub use directives::{
    Directives, DirectivesObject, Extracted, FIELDS, OutcomeWord, Unreadable, Warning,
    directives_object, extract,
};
pub use explain::Problem;
pub use fabro_types::SyntaxError;
pub use objects::json_objects;
pub use schema::Schema;
pub use validated::{Checked, Expected, check, check_redacted, feedback};

#[cfg(test)]
mod tests;
