use fabro_types::{Span, Status, SyntaxError, Unexpected, unexpected};
use pest::Parser;
use pest::iterators::Pair;

use crate::clause::{Clause, Comparison, Operator};
use crate::lookup::PREFIX;
use crate::number::Number;
use crate::pattern::{Pattern, PatternError};
use crate::{Expr, Filled};

/// The deepest nesting of parentheses, so that neither the grammar nor `lower` can run out of stack.
const MAX_DEPTH: usize = 128;
/// The longest key in bytes: each dot of a key can cost a lookup.
const MAX_KEY: usize = 512;

/// The longest condition, in bytes.
const MAX_TEXT: usize = 1024 * 1024;
/// Keys that hold a status.
const STATUS_KEYS: [&str; 2] = ["outcome", "parallel.fan_in.best_outcome"];

#[derive(pest_derive::Parser)]
#[grammar = "condition.pest"]
struct Grammar;

/// Gives the value of a clause by its text, without quotes, and its span in the condition.
pub(crate) type Fill<'a> = &'a mut dyn FnMut(&str, Span) -> Result<Filled, SyntaxError>;

/// Parses a condition into its clauses and the expression over them.
pub(crate) fn parse(text: &str, fill: Fill<'_>) -> Result<(Vec<Clause>, Expr), SyntaxError> {
    if text.len() > MAX_TEXT {
        let message = format!("the condition has {} bytes, the limit is {MAX_TEXT}", text.len());
        return Err(SyntaxError::new(message, Span::new(0, 1))
            .with_fix("split the condition over several edges"));
    }
    check_depth(text)?;
    let mut pairs =
        Grammar::parse(Rule::condition, text).map_err(|error| syntax_error(text, &error))?;
    let mut clauses = Vec::new();
    let body = pairs
        .next()
        .and_then(|condition| condition.into_inner().find(|pair| pair.as_rule() == Rule::any_of));
    let expr = match body {
        Some(pair) => lower(pair, &mut clauses, fill)?,
        None => Expr::All(Vec::new()),
    };
    Ok((clauses, expr))
}

/// Rejects parentheses that are nested too deep outside of quotes.
fn check_depth(text: &str) -> Result<(), SyntaxError> {
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut depth = 0_usize;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 1,
            b'"' => at = closing_quote(bytes, at).unwrap_or(at),
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            let message = format!("parentheses are nested more than {MAX_DEPTH} deep");
            return Err(SyntaxError::new(message, Span::new(at, at + 1))
                .with_fix("split the condition over several edges, or flatten it"));
        }
        at += 1;
    }
    Ok(())
}

fn closing_quote(bytes: &[u8], open: usize) -> Option<usize> {
    let mut at = open + 1;
    loop {
        match bytes.get(at)? {
            b'\\' => at += 2,
            b'"' => return Some(at),
            _ => at += 1,
        }
    }
}

/// Builds the expression of an `any_of`, `all_of` or `unary`. Nesting is bounded by `check_depth`.
fn lower(
    pair: Pair<'_, Rule>,
    clauses: &mut Vec<Clause>,
    fill: Fill<'_>,
) -> Result<Expr, SyntaxError> {
    let rule = pair.as_rule();
    match rule {
        Rule::any_of | Rule::all_of => {
            let mut parts = Vec::new();
            for part in pair.into_inner() {
                if matches!(part.as_rule(), Rule::or | Rule::and) {
                    continue;
                }
                match (rule, lower(part, clauses, fill)?) {
                    (Rule::any_of, Expr::Any(inner)) | (Rule::all_of, Expr::All(inner)) => {
                        parts.extend(inner);
                    }
                    (_, other) => parts.push(other),
                }
            }
            Ok(match (parts.len(), rule) {
                (1, _) => parts.remove(0),
                (_, Rule::any_of) => Expr::Any(parts),
                _ => Expr::All(parts),
            })
        }
        Rule::unary => {
            let mut negated = false;
            let mut inner = Expr::All(Vec::new());
            for part in pair.into_inner() {
                match part.as_rule() {
                    Rule::not => negated = !negated,
                    _ => inner = lower(part, clauses, fill)?,
                }
            }
            Ok(if negated { negate(inner) } else { inner })
        }
        Rule::clause => {
            clauses.push(clause(&pair, fill)?);
            Ok(Expr::Clause(clauses.len() - 1))
        }
        // A group: its expression is between the parentheses.
        _ => match pair.into_inner().next() {
            Some(inner) => lower(inner, clauses, fill),
            None => Ok(Expr::All(Vec::new())),
        },
    }
}

fn negate(expr: Expr) -> Expr {
    match expr {
        Expr::Not(inner) => *inner,
        other => Expr::Not(Box::new(other)),
    }
}

fn clause(pair: &Pair<'_, Rule>, fill: Fill<'_>) -> Result<Clause, SyntaxError> {
    let mut key = "";
    let mut operator = None;
    let mut value = None;
    for part in pair.clone().into_inner() {
        match part.as_rule() {
            Rule::key => key = part.as_str(),
            Rule::operator => operator = operator_of(part.as_str()),
            _ => value = Some(part),
        }
    }
    let written = pair.as_str().trim_end();
    let start = pair.as_span().start();
    if key.len() > MAX_KEY {
        let span = Span::new(start, start + key.len());
        return Err(SyntaxError::new(format!("the key is longer than {MAX_KEY} bytes"), span));
    }
    let context_key = key.strip_prefix(PREFIX).unwrap_or(key);
    let reads_status = STATUS_KEYS.contains(&context_key);
    let mut is_filled = false;
    let comparison = match (operator, value) {
        (Some(operator), Some(value)) => {
            let mut fill = |text: &str, span: Span| {
                let filled = fill(text, span)?;
                is_filled = matches!(filled, Filled::With(_));
                Ok(filled)
            };
            Some(comparison(operator, value, reads_status, &mut fill)?)
        }
        _ => None,
    };
    let span = Span::new(start, start + written.len());
    let mut clause =
        Clause { text: written.into(), span, key: key.into(), reads_status, comparison };
    if is_filled {
        clause.text = clause.to_string().into();
    }
    Ok(clause)
}

fn comparison(
    operator: Operator,
    pair: Pair<'_, Rule>,
    reads_status: bool,
    fill: Fill<'_>,
) -> Result<Comparison, SyntaxError> {
    let span = Span::from(pair.as_span());
    let (written, span_of_text) = match pair.into_inner().next() {
        Some(inner) => (text_of(&inner)?, Span::from(inner.as_span())),
        None => (String::new(), span),
    };
    let filled = fill(&written, span_of_text)?;
    let is_known = !matches!(filled, Filled::NotYet);
    let value = match filled {
        Filled::With(value) => value,
        Filled::AsWritten | Filled::NotYet => written,
    };
    let pattern = match operator {
        Operator::Matches | Operator::NotMatches if is_known => {
            Some(Pattern::parse(&value).map_err(|error| pattern_error(&error, span))?)
        }
        _ => None,
    };
    let status = if reads_status { Status::parse(&value) } else { None };
    Ok(Comparison { operator, number: Number::parse(&value), status, pattern, value: value.into() })
}

/// `! contains` is `!contains`.
fn operator_of(written: &str) -> Option<Operator> {
    match written.strip_prefix('!') {
        Some(word) if word != "=" => format!("!{}", word.trim_start()).parse().ok(),
        _ => written.parse().ok(),
    }
}

/// The text that a value stands for.
fn text_of(pair: &Pair<'_, Rule>) -> Result<String, SyntaxError> {
    let text = pair.as_str();
    let span = Span::from(pair.as_span());
    match pair.as_rule() {
        Rule::quoted => Ok(unquote(text)),
        Rule::trailing => Err(SyntaxError::new("there is text after the closing quote", span)
            .with_fix("put the whole value in quotes, or join the clauses with `&&` or `||`")),
        Rule::unclosed => Err(SyntaxError::new("the quote is not closed", span)
            .with_fix("add a `\"`, or write `\\\"` for a quote inside a quoted value")),
        _ => Ok(text.trim().to_owned()),
    }
}

/// Takes the quotes off; `\"` and `\\` stand for one character, any other backslash for itself.
fn unquote(text: &str) -> String {
    let inner = &text[1..text.len() - 1];
    let mut plain = String::with_capacity(inner.len());
    let mut chars = inner.chars().peekable();
    while let Some(char) = chars.next() {
        let escaped = chars.next_if(|next| char == '\\' && matches!(next, '"' | '\\'));
        plain.push(escaped.unwrap_or(char));
    }
    plain
}

fn pattern_error(error: &PatternError, span: Span) -> SyntaxError {
    match error {
        PatternError::TooLarge => SyntaxError::new("the regular expression is too large", span)
            .with_fix("use fewer or smaller repetitions such as `{1000}`"),
        PatternError::Syntax(error) => {
            // The last line says what is wrong; those before it repeat the pattern.
            let text = error.to_string();
            let reason = text.lines().last().unwrap_or_default();
            let reason = reason.strip_prefix("error: ").unwrap_or(reason);
            SyntaxError::new(format!("invalid regular expression: {reason}"), span)
        }
    }
}

fn syntax_error(text: &str, error: &pest::error::Error<Rule>) -> SyntaxError {
    let Unexpected { mut error, expected, rest } = unexpected(text, error, to_symbol);
    let before = text[..text.len() - rest.len()].trim_end();
    error.fix = fix(before, rest, &expected).map(str::to_owned);
    error
}

/// What to write instead: of the operators and words of other languages, the ones of this language.
fn fix(before: &str, rest: &str, expected: &[&str]) -> Option<&'static str> {
    if before.rsplit([' ', '(', '|', '&']).next().is_some_and(|it| it.eq_ignore_ascii_case("not")) {
        return Some("write `!` for not");
    }
    let word: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
    Some(match word.to_ascii_lowercase().as_str() {
        "and" => "write `&&` for and",
        "or" => "write `||` for or",
        "not" => "write `!` for not",
        "in" => "write `list contains item`",
        "is" | "eq" | "equals" => "write `=` for equality, `!=` for its opposite",
        "ne" | "neq" => "write `!=`",
        "gt" => "write `>`",
        "ge" | "gte" => "write `>=`",
        "lt" => "write `<`",
        "le" | "lte" => "write `<=`",
        "has" | "includes" => "write `contains`",
        "like" | "startswith" | "endswith" => {
            "write `contains`, or `matches` for a regular expression"
        }
        _ => match rest.chars().next()? {
            '&' if !rest.starts_with("&&") => "write `&&` for and",
            '|' if !rest.starts_with("||") => "write `||` for or",
            ':' if rest.starts_with(":=") => "write `=` for equality, `!=` for its opposite",
            '~' => "write `matches` for a regular expression",
            '=' if rest.starts_with("=~") => "write `matches` for a regular expression",
            ')' if expected != ["a condition"] => {
                "add the opening parenthesis, or put the value that it belongs to in quotes"
            }
            '\'' if before.contains('\'') => {
                "quote the value with `\"`: single quotes are a part of it, and do not hold it together"
            }
            '"' | '\'' | '0'..='9' => {
                "begin with a key: a word that begins with a letter, not quoted"
            }
            _ => return None,
        },
    })
}

/// What a rule is called in messages. The match is exhaustive so that a new rule is given a name.
#[expect(
    clippy::unnecessary_wraps,
    reason = "the printer takes grammars with rules that have no name"
)]
fn to_symbol(rule: Rule) -> Option<&'static str> {
    Some(match rule {
        Rule::condition
        | Rule::any_of
        | Rule::all_of
        | Rule::unary
        | Rule::group
        | Rule::clause => "a condition",
        Rule::key | Rule::word => "a key",
        Rule::operator | Rule::word_operator | Rule::not_operator => "an operator",
        Rule::value
        | Rule::quoted
        | Rule::quoted_char
        | Rule::trailing
        | Rule::unclosed
        | Rule::raw
        | Rule::raw_piece
        | Rule::nested => "a value",
        Rule::and => "`&&`",
        Rule::or => "`||`",
        Rule::not => "`!`",
        Rule::close => "`)`",
        Rule::stop | Rule::blank | Rule::WHITESPACE | Rule::EOI => "the end",
    })
}
