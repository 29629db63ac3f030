use fabro_types::{Span, Status};
use strum::{EnumString, IntoStaticStr};

use crate::lookup::PREFIX;
use crate::number::Number;
use crate::pattern::Pattern;

/// The comparison of a clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr)]
#[non_exhaustive]
pub enum Operator {
    /// `=` or `==`: equal as text.
    #[strum(to_string = "=", serialize = "==")]
    Equal,
    /// `!=`: not equal as text.
    #[strum(serialize = "!=")]
    NotEqual,
    /// `>`, both sides numbers.
    #[strum(serialize = ">")]
    Greater,
    /// `<`, both sides numbers.
    #[strum(serialize = "<")]
    Less,
    /// `>=`, both sides numbers.
    #[strum(serialize = ">=")]
    GreaterOrEqual,
    /// `<=`, both sides numbers.
    #[strum(serialize = "<=")]
    LessOrEqual,
    /// `contains`: a substring, or an item of an array.
    #[strum(serialize = "contains")]
    Contains,
    /// `matches`: a regular expression matches somewhere.
    #[strum(serialize = "matches")]
    Matches,
    /// `!contains`: not `contains`.
    #[strum(serialize = "!contains")]
    NotContains,
    /// `!matches`: not `matches`.
    #[strum(serialize = "!matches")]
    NotMatches,
}

impl Operator {
    /// The one that `!contains` and `!matches` are the opposite of.
    pub(crate) fn opposite(self) -> Option<Self> {
        match self {
            Self::NotContains => Some(Self::Contains),
            Self::NotMatches => Some(Self::Matches),
            _ => None,
        }
    }

    /// Whether both sides of it are numbers: `>`, `<`, `>=`, `<=`. It never holds for another value.
    pub fn is_numeric(self) -> bool {
        matches!(self, Self::Greater | Self::Less | Self::GreaterOrEqual | Self::LessOrEqual)
    }

    /// The operator as written; `=` for both of its spellings.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// One comparison, or one key alone.
#[derive(Clone, Debug)]
pub struct Clause {
    pub(crate) text: Box<str>,
    pub(crate) span: Span,
    pub(crate) key: Box<str>,
    /// The value of the key is a status, so that both spellings of one are equal.
    pub(crate) reads_status: bool,
    pub(crate) comparison: Option<Comparison>,
}

/// What a key is compared with, precomputed as far as possible.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
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
    /// The clause as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its span, in bytes of the text of the condition.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Its key as written, such as `context.score`.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Its key without a leading `context.`, such as `score`.
    pub fn context_key(&self) -> &str {
        self.key.strip_prefix(PREFIX).unwrap_or(&self.key)
    }

    /// Its comparison; `None` when the key stands alone.
    pub fn operator(&self) -> Option<Operator> {
        self.comparison.as_ref().map(|comparison| comparison.operator)
    }

    /// Whether it holds after a stage with this status; `None` if the status does not decide it.
    pub(crate) fn holds_after(&self, status: Status) -> Option<bool> {
        let equals = match self.context_key() {
            "outcome" => match (self.value().map(Status::parse), status) {
                (None, _) => return Some(true),
                (Some(Some(value)), _) => Some(value == status),
                // A custom outcome counts as a success.
                (Some(None), Status::Succeeded) => None,
                (Some(None), _) => Some(false),
            },
            "command.exit_code" if self.value() == Some("0") => match status {
                Status::Failed => Some(false),
                Status::Succeeded => Some(true),
                _ => None,
            },
            "failure_class" | "failure_signature" if status == Status::Succeeded => {
                match self.value() {
                    None => return Some(false),
                    Some(value) => Some(value.is_empty()),
                }
            }
            _ => None,
        };
        match self.operator()? {
            Operator::Equal => equals,
            Operator::NotEqual => equals.map(|equals| !equals),
            _ => None,
        }
    }

    /// What the key is compared with, without quotes; `None` when the key stands alone.
    pub fn value(&self) -> Option<&str> {
        self.comparison.as_ref().map(|comparison| &*comparison.value)
    }
}

impl PartialEq for Clause {
    /// Equal when only whitespace and quotes differ.
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
            && self.operator() == other.operator()
            && self.value() == other.value()
    }
}

impl Eq for Clause {}
