//! The condition language of workflow edges: parse once, evaluate, explain clause by clause.
//!
//! A condition is parsed once, with its regular expressions; evaluation then gets the values of its
//! keys from a [`Lookup`] and allocates nothing for strings, booleans and numbers.
//!
//! ```
//! use fabro_condition::Condition;
//! use serde_json::json;
//!
//! let condition = Condition::parse("outcome=succeeded && context.score >= 80").unwrap();
//! let context = json!({"outcome": "succeeded", "score": 85});
//! assert!(condition.holds(&context));
//! assert_eq!(condition.explain(&context).clauses[1].value, "85");
//! ```
//!
//! The language is described in [`language`] (`reference.md`).
//!
//! # Limits
//!
//! A condition has at most 1 MiB, parentheses nest at most 128 deep, a key has at most 512 bytes, a compiled
//! regular expression takes at most 2 MiB. Regular expressions have neither
//! look-around nor back-references; in return, matching is linear in the text. How large a value may
//! be is up to the [`Lookup`].

mod clause;
mod eval;
mod lookup;
mod number;
mod parse;
mod pattern;
mod print;
#[cfg(test)]
mod tests;

pub use clause::{Clause, Operator};
pub use eval::ConditionResult;
pub use fabro_types::{ClauseResult, SyntaxError};
use fabro_types::{Span, Status};
pub use lookup::{Lookup, find};
pub use number::is_number;

#[doc = include_str!("../reference.md")]
pub mod language {}

/// A condition, ready to be evaluated any number of times.
///
/// Two conditions are equal when only whitespace, quotes and superfluous parentheses differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    clauses: Vec<Clause>,
    expr: Expr,
}

/// The value of a clause, for [`Condition::parse_with`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filled {
    /// The text is the value.
    AsWritten,
    /// This is the value.
    With(String),
    /// The value is not known yet: `matches` does not compile it, and never holds.
    NotYet,
}

/// Clauses by their index in [`Condition::clauses`]. `All` and `Any` are flat, so that a chain of
/// any length nests no deeper than the parentheses of its text.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Expr {
    All(Vec<Expr>),
    Any(Vec<Expr>),
    Not(Box<Expr>),
    Clause(usize),
}

impl Condition {
    /// Parses a condition. An empty text is the condition that always holds.
    ///
    /// # Errors
    /// The first syntax error, a regular expression that is invalid or too large, parentheses nested
    /// more than 128 deep, a key of more than 512 bytes.
    pub fn parse(text: &str) -> Result<Self, SyntaxError> {
        Self::parse_with(text, &mut |_, _| Ok(Filled::AsWritten))
    }

    /// As [`Condition::parse`], where `fill` may replace the value of each clause, for instance one
    /// with placeholders. It gets the value without quotes, and where it stands in the text. What it
    /// gives is one value: `&&` in it joins nothing.
    ///
    /// ```
    /// use fabro_condition::{Condition, Filled};
    ///
    /// let condition = Condition::parse_with("score < {{ most }}", &mut |value, _| {
    ///     Ok(match value {
    ///         "{{ most }}" => Filled::With("80".to_owned()),
    ///         _ => Filled::AsWritten,
    ///     })
    /// });
    /// assert_eq!(condition.unwrap().to_string(), "score < 80");
    /// ```
    ///
    /// # Errors
    /// As [`Condition::parse`], and those of `fill`.
    pub fn parse_with(
        text: &str,
        fill: &mut dyn FnMut(&str, Span) -> Result<Filled, SyntaxError>,
    ) -> Result<Self, SyntaxError> {
        let (clauses, expr) = parse::parse(text, fill)?;
        Ok(Self { clauses, expr })
    }

    /// Whether it holds. Clauses that cannot change the result are not evaluated.
    pub fn holds(&self, lookup: &dyn Lookup) -> bool {
        self.expr.holds(&mut |at| self.clauses[at].holds(lookup))
    }

    /// Whether it holds, with the result of every clause and the value that the clause tested.
    pub fn explain(&self, lookup: &dyn Lookup) -> ConditionResult {
        let clauses: Vec<_> = self.clauses.iter().map(|clause| clause.explain(lookup)).collect();
        ConditionResult { holds: self.expr.holds(&mut |at| clauses[at].holds), clauses }
    }

    /// Whether it can hold, and whether it can fail to hold, where the results of some clauses are
    /// not known: `clause` gives the result of a clause by its index, or `None`.
    ///
    /// ```
    /// use fabro_condition::{Condition, Possible};
    ///
    /// let condition = Condition::parse("outcome=succeeded && !(score > 80)").unwrap();
    /// let after = |success| condition.possible(|clause| (clause == 0).then_some(success));
    /// assert_eq!(after(true), Possible { holds: true, fails: true });
    /// assert_eq!(after(false), Possible { holds: false, fails: true });
    /// ```
    pub fn possible(&self, mut clause: impl FnMut(usize) -> Option<bool>) -> Possible {
        self.expr.possible(&mut clause)
    }

    /// Whether it reads the result of the previous stage: `outcome`, `failure_class`,
    /// `failure_signature` or `command.exit_code`.
    pub fn reads_result(&self) -> bool {
        self.keys().any(|key| {
            key == "outcome" || key == "command.exit_code" || key.starts_with("failure_")
        })
    }

    /// The possible results after a stage that ended with this status. Other keys that it reads may
    /// have any value.
    ///
    /// ```
    /// use fabro_condition::Condition;
    /// use fabro_types::Status;
    ///
    /// let condition = Condition::parse("outcome=failed && attempts < 3").unwrap();
    /// assert!(condition.possible_after(Status::Failed).holds);
    /// assert!(!condition.possible_after(Status::Succeeded).holds);
    /// ```
    pub fn possible_after(&self, status: Status) -> Possible {
        self.possible(|clause| self.clauses.get(clause)?.holds_after(status))
    }

    /// Whether it selects failures: it can hold after a failure but not after a success.
    pub fn is_for_failure(&self) -> bool {
        self.possible_after(Status::Failed).holds && !self.possible_after(Status::Succeeded).holds
    }

    /// True for an empty text: an edge with it is unconditional.
    pub fn is_always(&self) -> bool {
        self.clauses.is_empty()
    }

    /// The clauses in the order of the text.
    pub fn clauses(&self) -> &[Clause] {
        &self.clauses
    }

    /// The context keys that it reads, without a leading `context.`, in the order of the text,
    /// repeated keys included.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.clauses.iter().map(Clause::context_key)
    }

    /// The words that it compares the outcome with by `=` or `!=`, statuses included.
    pub fn outcome_words(&self) -> impl Iterator<Item = &str> {
        self.clauses
            .iter()
            .filter(|clause| clause.context_key() == "outcome")
            .filter(|clause| {
                matches!(clause.operator(), Some(Operator::Equal | Operator::NotEqual))
            })
            .filter_map(Clause::value)
    }
}

/// What the result of a condition can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Possible {
    /// It can hold.
    pub holds: bool,
    /// It can fail to hold.
    pub fails: bool,
}

impl Expr {
    fn possible(&self, clause: &mut dyn FnMut(usize) -> Option<bool>) -> Possible {
        match self {
            Self::Clause(at) => {
                let known = clause(*at);
                Possible { holds: known != Some(false), fails: known != Some(true) }
            }
            Self::Not(inner) => {
                let Possible { holds, fails } = inner.possible(clause);
                Possible { holds: fails, fails: holds }
            }
            Self::All(parts) => {
                let parts: Vec<_> = parts.iter().map(|part| part.possible(clause)).collect();
                Possible {
                    holds: parts.iter().all(|part| part.holds),
                    fails: parts.iter().any(|part| part.fails),
                }
            }
            Self::Any(parts) => {
                let parts: Vec<_> = parts.iter().map(|part| part.possible(clause)).collect();
                Possible {
                    holds: parts.iter().any(|part| part.holds),
                    fails: parts.iter().all(|part| part.fails),
                }
            }
        }
    }

    /// Left to right, and no further than needed.
    fn holds(&self, clause: &mut dyn FnMut(usize) -> bool) -> bool {
        match self {
            Self::Clause(at) => clause(*at),
            Self::Not(inner) => !inner.holds(clause),
            Self::All(parts) => parts.iter().all(|part| part.holds(clause)),
            Self::Any(parts) => parts.iter().any(|part| part.holds(clause)),
        }
    }
}
