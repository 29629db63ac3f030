use fabro_types::{Span, Status};

use crate::lookup::PREFIX;
use crate::number::Number;
use crate::pattern::Pattern;

/// The comparison of a clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operator {
    /// `=` or `==`: the same text.
    Equal,
    /// `!=`: another text.
    NotEqual,
    /// `>`, both sides numbers.
    Greater,
    /// `<`, both sides numbers.
    Less,
    /// `>=`, both sides numbers.
    GreaterOrEqual,
    /// `<=`, both sides numbers.
    LessOrEqual,
    /// `contains`: a part of a text, or an item of an array.
    Contains,
    /// `matches`: a regular expression finds something.
    Matches,
}

impl Operator {
    /// The operator as it is written; `=` for both of its spellings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Greater => ">",
            Self::Less => "<",
            Self::GreaterOrEqual => ">=",
            Self::LessOrEqual => "<=",
            Self::Contains => "contains",
            Self::Matches => "matches",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "=" | "==" => Self::Equal,
            "!=" => Self::NotEqual,
            ">" => Self::Greater,
            "<" => Self::Less,
            ">=" => Self::GreaterOrEqual,
            "<=" => Self::LessOrEqual,
            "contains" => Self::Contains,
            "matches" => Self::Matches,
            _ => return None,
        })
    }
}

/// One comparison, or one key alone.
#[derive(Clone, Debug)]
pub struct Clause {
    pub(crate) text: Box<str>,
    pub(crate) span: Span,
    pub(crate) key: Box<str>,
    /// The key holds a status, so that both spellings of one are equal.
    pub(crate) reads_status: bool,
    pub(crate) test: Option<Test>,
}

/// What a key is compared with; everything that can be worked out before evaluation is.
#[derive(Clone, Debug)]
pub(crate) struct Test {
    pub(crate) operator: Operator,
    pub(crate) value: Box<str>,
    /// The value as a number, for the numeric operators.
    pub(crate) number: Option<Number>,
    /// The value as a status, where the key holds one.
    pub(crate) status: Option<Status>,
    /// The value of `matches`.
    pub(crate) pattern: Option<Pattern>,
}

impl Clause {
    /// The clause as it is written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Where it stands, in bytes of the text of the condition.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Its key as it is written, such as `context.score`.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Its key without a leading `context.`, such as `score`.
    pub fn context_key(&self) -> &str {
        self.key.strip_prefix(PREFIX).unwrap_or(&self.key)
    }

    /// Its comparison; `None` when the key stands alone.
    pub fn operator(&self) -> Option<Operator> {
        self.test.as_ref().map(|test| test.operator)
    }

    /// What the key is compared with, without quotes; `None` when the key stands alone.
    pub fn value(&self) -> Option<&str> {
        self.test.as_ref().map(|test| &*test.value)
    }
}

impl PartialEq for Clause {
    /// Equal when they mean the same: how they are spaced and quoted does not matter.
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
            && self.operator() == other.operator()
            && self.value() == other.value()
    }
}

impl Eq for Clause {}
