use fabro_types::Span;
use pest::Parser;
use pest::error::{ErrorVariant, InputLocation};
use pest::iterators::Pair;

use crate::property::{self, PROPERTIES};
use crate::{Declaration, Selector, StyleRule, StylesheetError};

#[derive(pest_derive::Parser)]
#[grammar = "stylesheet.pest"]
struct Grammar;

/// Reads the rules of a stylesheet in their order.
pub(crate) fn parse(text: &str) -> Result<Vec<StyleRule>, StylesheetError> {
    let pairs = Grammar::parse(Rule::sheet, text).map_err(|error| syntax_error(text, &error))?;
    pairs
        .flat_map(Pair::into_inner)
        .filter(|pair| pair.as_rule() == Rule::block)
        .map(style_rule)
        .collect()
}

fn style_rule(pair: Pair<'_, Rule>) -> Result<StyleRule, StylesheetError> {
    let mut selector = (Selector::Any, Span::default());
    let mut declarations = Vec::new();
    for part in pair.into_inner() {
        match part.as_rule() {
            Rule::selector => selector = (to_selector(part.as_str()), span(&part)),
            Rule::declaration => declarations.push(declaration(part)?),
            _ => {}
        }
    }
    Ok(StyleRule { selector: selector.0, span: selector.1, declarations })
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

fn declaration(pair: Pair<'_, Rule>) -> Result<Declaration, StylesheetError> {
    let mut at = 0;
    let mut value = (String::new(), Span::default());
    for part in pair.into_inner() {
        match part.as_rule() {
            Rule::property => at = to_property(&part)?,
            Rule::value => value = (to_value(part.clone())?, span(&part)),
            _ => {}
        }
    }
    let (value, span) = value;
    let property = &PROPERTIES[at];
    if let Some((wrong, fix)) = property.values.refuse(&value) {
        let message = format!("{} cannot be `{}`: {wrong}", property.name, shortened(&value));
        return Err(StylesheetError::new(message, span).with_fix(fix));
    }
    Ok(Declaration { property: property.name, value, span })
}

fn to_property(pair: &Pair<'_, Rule>) -> Result<usize, StylesheetError> {
    let name = pair.as_str();
    property::find(name).ok_or_else(|| {
        let message = format!("`{}` is no property of a stylesheet", shortened(name));
        let fix = property::nearest(name).map_or_else(
            || {
                format!(
                    "the properties are {}",
                    PROPERTIES.map(|property| property.name).join(", ")
                )
            },
            |known| format!("did you mean `{known}`?"),
        );
        StylesheetError::new(message, span(pair)).with_fix(fix)
    })
}

fn to_value(pair: Pair<'_, Rule>) -> Result<String, StylesheetError> {
    let whole = span(&pair);
    let mut words = pair.into_inner();
    let Some(first) = words.next() else { return Ok(String::new()) };
    let text = first.as_str();
    if words.next().is_some() {
        return Err(StylesheetError::new("a value without quotes is one word", whole)
            .with_fix("is a `;` missing? else put the value in quotes"));
    }
    Ok(match first.as_rule() {
        Rule::quoted => text[1..text.len() - 1].trim().to_owned(),
        _ => text.to_owned(),
    })
}

fn span(pair: &Pair<'_, Rule>) -> Span {
    Span::new(pair.as_span().start(), pair.as_span().end())
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(60) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

fn syntax_error(text: &str, error: &pest::error::Error<Rule>) -> StylesheetError {
    let at = match error.location {
        InputLocation::Pos(at) | InputLocation::Span((at, _)) => at,
    };
    let rest = &text[at..];
    if rest.starts_with("/*") {
        return StylesheetError::new("the comment is not closed", Span::new(at, at + 2))
            .with_fix("add `*/`");
    }
    if let Some(open) = open_quote(text).filter(|open| rest.is_empty() || *open == at) {
        return StylesheetError::new("the quote is not closed", Span::new(open, open + 1))
            .with_fix(format!("add a `{}`", &text[open..=open]));
    }
    let found: String = rest
        .chars()
        .enumerate()
        .take_while(|(at, c)| *at == 0 || (*at < 40 && is_plain(*c)))
        .map(|(_, c)| c)
        .collect();
    let wanted = match &error.variant {
        ErrorVariant::ParsingError { positives, .. } => words(positives),
        ErrorVariant::CustomError { message } => message.clone(),
    };
    let seen = if found.is_empty() { "the end".to_owned() } else { format!("`{found}`") };
    let span = Span::new(at, at + found.len());
    let mut error = StylesheetError::new(format!("expected {wanted}, found {seen}"), span);
    error.fix = fix_for(&wanted, &found, rest);
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

fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '#')
}

fn fix_for(wanted: &str, found: &str, rest: &str) -> Option<String> {
    let fix = match (wanted, found) {
        (_, ",") => "write a rule of its own for each selector",
        _ if rest.starts_with("//") => "write comments as `/* … */`",
        _ if wanted.contains("selector") => {
            "a rule begins with `*`, a shape, `.class` or `#node_id`"
        }
        ("`{`", _) => "after a selector comes `{ property: value; }`",
        _ => return None,
    };
    Some(fix.to_owned())
}

/// What the grammar would have taken, in words, in a fixed order.
fn words(rules: &[Rule]) -> String {
    let mut words: Vec<&str> = rules.iter().map(|rule| to_words(*rule)).collect();
    words.sort_unstable();
    words.dedup();
    match words.as_slice() {
        [] => "something else".to_owned(),
        [one] => (*one).to_owned(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

fn to_words(rule: Rule) -> &'static str {
    match rule {
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
    }
}
