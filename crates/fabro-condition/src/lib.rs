//! The condition language of workflow edges: parse once, evaluate, explain clause by clause.
//!
//! A condition is read and its regular expressions are compiled once; evaluation then asks a
//! [`Lookup`] for the values of its keys and allocates nothing for texts, booleans and numbers.
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use fabro_condition::Condition;
//! use serde_json::json;
//!
//! let condition = Condition::parse("outcome=success && context.score >= 80").unwrap();
//! let context = BTreeMap::from([
//!     ("outcome".to_owned(), json!("succeeded")),
//!     ("score".to_owned(), json!(85)),
//! ]);
//! assert!(condition.holds(&context).unwrap());
//! assert_eq!(condition.explain(&context).unwrap().clauses[1].value, "85");
//! ```
//!
//! The language is told in [`language`] (`reference.md`).
//!
//! # Limits
//!
//! Brackets nest at most 128 deep, a key has at most 512 bytes, a compiled regular expression takes
//! at most 2 MiB. Chains of `&&` and `||` may be of any length. Regular expressions have neither
//! look-around nor back-references; in return, matching is linear in the text. How large a value may
//! be is for the [`Lookup`] to say.

mod clause;
mod error;
mod eval;
mod lookup;
mod number;
mod parse;
mod pattern;
mod print;
#[cfg(test)]
mod tests;

pub use clause::{Clause, Operator};
pub use error::{ConditionError, LookupError};
pub use eval::Verdict;
pub use lookup::Lookup;

#[doc = include_str!("../reference.md")]
pub mod language {}

/// A condition, ready to be evaluated any number of times.
///
/// Two are equal when they mean the same by their form: spacing, quoting and superfluous brackets
/// do not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    clauses: Vec<Clause>,
    expr: Expr,
}

/// Clauses by their place in [`Condition::clauses`]. `All` and `Any` are flat, so that a chain of
/// any length nests no deeper than the brackets of its text.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Expr {
    All(Vec<Expr>),
    Any(Vec<Expr>),
    Not(Box<Expr>),
    Clause(usize),
}

impl Condition {
    /// Reads a condition. Blank text is the condition that always holds.
    ///
    /// # Errors
    /// The first place that does not parse: syntax, a regular expression that is wrong or too
    /// large, brackets more than 128 deep, a key of more than 512 bytes.
    pub fn parse(text: &str) -> Result<Self, ConditionError> {
        let (clauses, expr) = parse::parse(text)?;
        Ok(Self { clauses, expr })
    }

    /// Whether it holds. Clauses that cannot change the result are not looked at.
    ///
    /// # Errors
    /// A value that is needed cannot be had.
    pub fn holds(&self, lookup: &dyn Lookup) -> Result<bool, LookupError> {
        self.expr.eval(&mut |at| self.clauses[at].holds(lookup))
    }

    /// Whether it holds, with every clause and the value that the clause saw.
    ///
    /// # Errors
    /// Exactly when [`Condition::holds`] fails: a value that cannot be had but does not matter
    /// shows its error in place of the value.
    pub fn explain(&self, lookup: &dyn Lookup) -> Result<Verdict, LookupError> {
        let verdicts: Vec<_> = self.clauses.iter().map(|clause| clause.verdict(lookup)).collect();
        let holds = self.expr.eval(&mut |at| match &verdicts[at] {
            Ok(verdict) => Ok(verdict.holds),
            Err(error) => Err(error.clone()),
        })?;
        let clauses = self.clauses.iter().zip(verdicts).map(|(clause, verdict)| {
            verdict.unwrap_or_else(|error| clause.shown(&format!("({error})"), false))
        });
        Ok(Verdict { holds, clauses: clauses.collect() })
    }

    /// True for blank text: an edge with it is an unconditional edge.
    pub fn is_always(&self) -> bool {
        self.clauses.is_empty()
    }

    /// The clauses in the order of the text.
    pub fn clauses(&self) -> &[Clause] {
        &self.clauses
    }

    /// The context keys it reads, without a leading `context.`, in the order of the text; one that
    /// is read twice comes twice.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.clauses.iter().map(Clause::context_key)
    }

    /// The words that it compares the outcome with by `=` or `!=`, statuses among them.
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

impl Expr {
    /// Left to right, and no further than needed.
    fn eval<E>(&self, clause: &mut impl FnMut(usize) -> Result<bool, E>) -> Result<bool, E> {
        match self {
            Self::Clause(at) => clause(*at),
            Self::Not(inner) => Ok(!inner.eval(clause)?),
            Self::All(parts) => {
                for part in parts {
                    if !part.eval(clause)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Self::Any(parts) => {
                for part in parts {
                    if part.eval(clause)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }
}
