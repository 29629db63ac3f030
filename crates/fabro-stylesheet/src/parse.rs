use fabro_types::{Span, SyntaxError, Unexpected, excerpt, nearest, unexpected};
use pest::Parser;
use pest::iterators::Pair;

use crate::property::{self, PROPERTIES};
use crate::{Declaration, Selector, StyleRule};

/// The longest piece of a stylesheet that a message repeats, in characters.
const MAX_EXCERPT: usize = 60;

#[derive(pest_derive::Parser)]
#[grammar = "stylesheet.pest"]
struct Grammar;

/// Parses the rules of a stylesheet, in their order.
/// Declarations of properties that there are not are left out, and added to `unknown`.
pub(crate) fn parse(
    text: &str,
    unknown: &mut Vec<SyntaxError>,
) -> Result<Vec<StyleRule>, SyntaxError> {
    let pairs = Grammar::parse(Rule::sheet, text).map_err(|error| syntax_error(text, &error))?;
    pairs
        .flat_map(Pair::into_inner)
        .filter(|pair| pair.as_rule() == Rule::block)
        .map(|pair| style_rule(pair, unknown))
        .collect()
}

fn style_rule(
    pair: Pair<'_, Rule>,
    unknown: &mut Vec<SyntaxError>,
) -> Result<StyleRule, SyntaxError> {
    let mut selector = Selector::Any;
    let mut span = Span::default();
    let mut declarations = Vec::new();
    for part in pair.into_inner() {
        match part.as_rule() {
            Rule::selector => {
                selector = to_selector(part.as_str());
                span = part.as_span().into();
            }
            Rule::declaration => declarations.extend(declaration(part, unknown)?),
            // The signs around them.
            _ => {}
        }
    }
    Ok(StyleRule { selector, span, declarations })
}

fn to_selector(text: &str) -> Selector {
    if text == "*" {
        Selector::Any
    } else if let Some(id) = text.strip_prefix('#') {
        Selector::Id(id.to_owned())
    } else if let Some(class) = text.strip_prefix('.') {
        Selector::Class(class.to_owned())
    } else {
        Selector::Shape(text.to_owned())
    }
}

/// `None` for a property that there is not.
fn declaration(
    pair: Pair<'_, Rule>,
    unknown: &mut Vec<SyntaxError>,
) -> Result<Option<Declaration>, SyntaxError> {
    let mut at = None;
    let mut value = String::new();
    let mut span = Span::default();
    for part in pair.into_inner() {
        match part.as_rule() {
            Rule::property => match to_property(&part) {
                Ok(property) => at = Some(property),
                Err(error) => unknown.push(error),
            },
            Rule::value => {
                span = part.as_span().into();
                value = to_value(part)?;
            }
            _ => {}
        }
    }
    let Some(property) = at.map(|at| &PROPERTIES[at]) else { return Ok(None) };
    if let Some((wrong, fix)) = property.values.reject(&value) {
        let value = excerpt(&value, MAX_EXCERPT);
        let message = format!("{} cannot be `{value}`: {wrong}", property.name);
        return Err(SyntaxError::new(message, span).with_fix(fix));
    }
    Ok(Some(Declaration { property: property.name, value, span }))
}

fn to_property(pair: &Pair<'_, Rule>) -> Result<usize, SyntaxError> {
    let name = pair.as_str();
    property::find(name).ok_or_else(|| {
        let message = format!("`{}` is not a property of a stylesheet", excerpt(name, MAX_EXCERPT));
        let fix = match nearest(name, property::names()) {
            Some(known) => format!("did you mean `{known}`?"),
            None => {
                format!("the properties are {}", property::names().collect::<Vec<_>>().join(", "))
            }
        };
        SyntaxError::new(message, pair.as_span().into()).with_fix(fix)
    })
}

fn to_value(pair: Pair<'_, Rule>) -> Result<String, SyntaxError> {
    let whole = Span::from(pair.as_span());
    let mut words = pair.into_inner();
    let Some(first) = words.next() else { return Ok(String::new()) };
    let text = first.as_str();
    if words.next().is_some() {
        return Err(SyntaxError::new("a value without quotes is one word", whole)
            .with_fix("add the missing `;`, or put the value in quotes"));
    }
    Ok(match first.as_rule() {
        Rule::quoted => text[1..text.len() - 1].trim().to_owned(),
        _ => text.to_owned(),
    })
}

fn syntax_error(text: &str, error: &pest::error::Error<Rule>) -> SyntaxError {
    let Unexpected { mut error, expected, rest } = unexpected(text, error, to_symbol);
    let at = error.span.start;
    if rest.starts_with("/*") {
        return SyntaxError::new("the comment is not closed", Span::new(at, at + 2))
            .with_fix("add `*/`");
    }
    if let Some(open) = open_quote(text).filter(|open| rest.is_empty() || *open == at) {
        return SyntaxError::new("the quote is not closed", Span::new(open, open + 1))
            .with_fix(format!("add a `{}`", &text[open..=open]));
    }
    error.fix = fix(&expected, rest).map(str::to_owned);
    error
}

/// Where a quote opens that nothing closes.
fn open_quote(text: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        at += text[at..].find(['"', '\'', '/'])?;
        let end = match &text[at..=at] {
            "/" if !text[at..].starts_with("/*") => at + 1,
            "/" => at + text[at..].find("*/")? + 2,
            quote => match text[at + 1..].find(quote) {
                Some(length) => at + length + 2,
                None => return Some(at),
            },
        };
        at = end;
    }
}

fn fix(expected: &[&str], rest: &str) -> Option<&'static str> {
    Some(match expected {
        _ if rest.starts_with(',') => "write a separate rule for each selector",
        _ if rest.starts_with("//") => "write comments as `/* … */`",
        _ if expected.contains(&"a selector") => {
            "a rule begins with `*`, a shape, `.class` or `#node_id`"
        }
        ["`{`"] => "write `{ property: value; }` after the selector",
        _ => return None,
    })
}

/// What a rule is called in messages. The match is exhaustive so that a new rule is given a name.
#[expect(
    clippy::unnecessary_wraps,
    reason = "the printer takes grammars with rules that have no name"
)]
fn to_symbol(rule: Rule) -> Option<&'static str> {
    Some(match rule {
        Rule::sheet
        | Rule::block
        | Rule::selector
        | Rule::any
        | Rule::id
        | Rule::class
        | Rule::shape
        | Rule::ASCII_ALPHANUMERIC_OR_LINE => "a selector",
        Rule::declaration | Rule::property => "a property",
        Rule::value | Rule::quoted | Rule::bare => "a value",
        Rule::open => "`{`",
        Rule::close => "`}`",
        Rule::colon => "`:`",
        Rule::blank | Rule::WHITESPACE | Rule::COMMENT | Rule::EOI => "the end",
    })
}
