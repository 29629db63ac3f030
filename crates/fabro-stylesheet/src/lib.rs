//! Model stylesheets: which model, provider and the like the nodes of a workflow use.
//!
//! A rule is a selector and its properties. Of all rules that apply to a node, the one with the more
//! specific selector wins, property by property: `*` (0), a shape (1), `.class` (2), `#id` (3); of two
//! that are equally specific the later one.
//!
//! ```
//! use fabro_stylesheet::{Stylesheet, Subject};
//!
//! let sheet = Stylesheet::parse(
//!     "* { model: claude-sonnet-4-5; provider: anthropic; }
//!      .hard { reasoning_effort: high; }
//!      #review { model: gpt-5.2; provider: openai; }",
//! )
//! .unwrap();
//! let classes = ["hard".to_owned()];
//! let review = Subject { id: "review", shape: "box", classes: &classes };
//! assert_eq!(
//!     sheet.properties(&review),
//!     [("model", "gpt-5.2"), ("provider", "openai"), ("reasoning_effort", "high")]
//! );
//! ```
//!
//! The properties are `model`, `provider`, `reasoning_effort` (`none` to `max`), `speed`,
//! `backend` (`api`, `cli`, `acp`) and `max_tokens`; `llm_model` and `llm_provider` are older names of
//! the first two. A value with whitespace in it is written in single or double quotes. Comments are
//! `/* … */`.
//!
//! # Limits
//!
//! Selectors do not combine: no lists (`.a, .b`), no `box.hard`. Parsing takes time linear in the
//! text; finding the properties of a node does not depend on the number of rules.

mod parse;
mod property;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use fabro_types::Span;
pub use fabro_types::SyntaxError;

use property::PROPERTIES;

/// A model stylesheet, ready to be applied to nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stylesheet {
    rules: Vec<StyleRule>,
    unknown: Vec<SyntaxError>,
    /// For each selector the declarations that win among its own rules.
    merged: BTreeMap<Selector, Merged>,
}

/// By property, in the order of [`PROPERTIES`]: the rule and the declaration in it that set it last.
type Merged = [Option<(usize, usize)>; PROPERTIES.len()];

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StyleRule {
    /// The nodes that it applies to.
    pub selector: Selector,
    /// The span of the selector, in bytes of the stylesheet.
    pub span: Span,
    /// What it sets, in the order of the text; of a repeated property the last value counts.
    pub declarations: Vec<Declaration>,
}

/// One property and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// The attribute of nodes that it sets: `llm_model` reads as `model`.
    pub property: &'static str,
    /// The value without quotes.
    pub value: String,
    /// The span of the value, in bytes of the stylesheet.
    pub span: Span,
}

/// Which nodes a rule applies to, the least specific first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Selector {
    /// `*`: all nodes.
    Any,
    /// `box`: the nodes of a shape.
    Shape(String),
    /// `.hard`: the nodes of a class; case matters.
    Class(String),
    /// `#review`: the node with this id.
    Id(String),
}

impl Display for Selector {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Shape(shape) => f.write_str(shape),
            Self::Class(class) => write!(f, ".{class}"),
            Self::Id(id) => write!(f, "#{id}"),
        }
    }
}

/// What a stylesheet needs to know about a node.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its shape, such as `box`.
    pub shape: &'a str,
    /// Its classes, including those of its subgraphs.
    pub classes: &'a [String],
}

impl Stylesheet {
    /// Parses a stylesheet. An empty text is a stylesheet without rules.
    ///
    /// # Errors
    /// The first syntax error or invalid value. A property that there is not is left out: see
    /// [`Stylesheet::unknown_properties`].
    pub fn parse(text: &str) -> Result<Self, SyntaxError> {
        let mut unknown = Vec::new();
        let rules = parse::parse(text, &mut unknown)?;
        let mut merged = BTreeMap::<_, Merged>::new();
        for (rule_at, rule) in rules.iter().enumerate() {
            let slots = merged.entry(rule.selector.clone()).or_default();
            for (declaration_at, declaration) in rule.declarations.iter().enumerate() {
                if let Some(property) = property::find(declaration.property) {
                    slots[property] = Some((rule_at, declaration_at));
                }
            }
        }
        Ok(Self { rules, unknown, merged })
    }

    /// The properties that it sets on a node, each with its value. The names are those of node
    /// attributes, in a fixed order.
    pub fn properties(&self, subject: &Subject<'_>) -> Vec<(&'static str, &str)> {
        let mut winners = Merged::default();
        let mut cover = |specific: Merged| {
            for (winner, set) in winners.iter_mut().zip(specific) {
                *winner = set.or(*winner);
            }
        };
        let set_by = |selector| self.merged.get(&selector).copied().unwrap_or_default();
        cover(set_by(Selector::Any));
        cover(set_by(Selector::Shape(subject.shape.to_owned())));
        // All classes of a node are equally specific: of what they set, the last in the text.
        let classes = subject.classes.iter().map(|class| set_by(Selector::Class(class.clone())));
        cover(classes.fold(Merged::default(), later_of));
        cover(set_by(Selector::Id(subject.id.to_owned())));
        winners
            .iter()
            .zip(&PROPERTIES)
            .filter_map(|(winner, property)| {
                let (rule, declaration) = (*winner)?;
                Some((property.name, &*self.rules[rule].declarations[declaration].value))
            })
            .collect()
    }

    /// What is said of properties that there are not, in the order of the text.
    pub fn unknown_properties(&self) -> &[SyntaxError] {
        &self.unknown
    }

    /// The rules in the order of the text.
    pub fn rules(&self) -> &[StyleRule] {
        &self.rules
    }
}

/// Property by property, the setting that comes later in the text.
fn later_of(one: Merged, other: Merged) -> Merged {
    std::array::from_fn(|at| one[at].max(other[at]))
}
