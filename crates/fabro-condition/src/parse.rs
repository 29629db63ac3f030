use fabro_types::{Span, Status};
use pest::Parser;
use pest::error::{ErrorVariant, InputLocation};
use pest::iterators::Pair;

use crate::clause::{Clause, Operator, Test};
use crate::lookup::PREFIX;
use crate::number::Number;
use crate::pattern::{Pattern, PatternError};
use crate::{ConditionError, Expr};

/// The deepest nesting of brackets, so that neither the grammar nor what comes after it can run out
/// of stack.
const MAX_DEPTH: usize = 128;
/// The longest key in bytes; each dot of a key can cost a look-up.
const MAX_KEY: usize = 512;
/// Keys that hold a status.
const STATUS_KEYS: [&str; 2] = ["outcome", "parallel.fan_in.best_outcome"];

#[derive(pest_derive::Parser)]
#[grammar = "condition.pest"]
struct Grammar;

/// Reads a condition into its clauses and the expression over them.
pub(crate) fn parse(text: &str) -> Result<(Vec<Clause>, Expr), ConditionError> {
    check_depth(text)?;
    let mut pairs =
        Grammar::parse(Rule::condition, text).map_err(|error| syntax_error(text, &error))?;
    let mut clauses = Vec::new();
    let body = pairs
        .next()
        .and_then(|condition| condition.into_inner().find(|pair| pair.as_rule() == Rule::any_of));
    let expr = match body {
        Some(pair) => lower(pair, &mut clauses)?,
        None => Expr::All(Vec::new()),
    };
    Ok((clauses, expr))
}

/// Refuses brackets that are too deep, wherever they stand outside quotes.
fn check_depth(text: &str) -> Result<(), ConditionError> {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 1,
            b'"' => at = closing_quote(bytes, at).unwrap_or(at),
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            let message = format!("brackets are nested more than {MAX_DEPTH} deep");
            return Err(ConditionError::new(message, Span::new(at, at + 1))
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
fn lower(pair: Pair<'_, Rule>, clauses: &mut Vec<Clause>) -> Result<Expr, ConditionError> {
    let rule = pair.as_rule();
    match rule {
        Rule::any_of | Rule::all_of => {
            let mut parts = Vec::new();
            for part in pair.into_inner() {
                if matches!(part.as_rule(), Rule::or | Rule::and) {
                    continue;
                }
                match (rule, lower(part, clauses)?) {
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
                    _ => inner = lower(part, clauses)?,
                }
            }
            Ok(if negated { negate(inner) } else { inner })
        }
        Rule::clause => {
            clauses.push(clause(&pair)?);
            Ok(Expr::Clause(clauses.len() - 1))
        }
        // A group: its expression is between the brackets.
        _ => match pair.into_inner().next() {
            Some(inner) => lower(inner, clauses),
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

fn clause(pair: &Pair<'_, Rule>) -> Result<Clause, ConditionError> {
    let (mut key, mut operator, mut value) = ("", None, None);
    for part in pair.clone().into_inner() {
        match part.as_rule() {
            Rule::key => key = part.as_str(),
            Rule::operator => operator = Operator::parse(part.as_str()),
            _ => value = Some(part),
        }
    }
    let written = pair.as_str().trim_end();
    let start = pair.as_span().start();
    if key.len() > MAX_KEY {
        let span = Span::new(start, start + key.len());
        return Err(ConditionError::new(format!("the key is longer than {MAX_KEY} bytes"), span));
    }
    let context_key = key.strip_prefix(PREFIX).unwrap_or(key);
    let reads_status = STATUS_KEYS.contains(&context_key);
    let test = match (operator, value) {
        (Some(operator), Some(value)) => Some(test(operator, value, reads_status)?),
        _ => None,
    };
    Ok(Clause {
        text: written.into(),
        span: Span::new(start, start + written.len()),
        key: key.into(),
        reads_status,
        test,
    })
}

fn test(
    operator: Operator,
    pair: Pair<'_, Rule>,
    reads_status: bool,
) -> Result<Test, ConditionError> {
    let span = Span::new(pair.as_span().start(), pair.as_span().end());
    let value = match pair.into_inner().next() {
        Some(inner) => text_of(&inner)?,
        None => String::new(),
    };
    let pattern = match operator {
        Operator::Matches => {
            Some(Pattern::parse(&value).map_err(|error| pattern_error(&error, span))?)
        }
        _ => None,
    };
    let status = if reads_status { Status::parse(&value) } else { None };
    Ok(Test { operator, number: Number::parse(&value), status, pattern, value: value.into() })
}

/// The text that a value stands for.
fn text_of(pair: &Pair<'_, Rule>) -> Result<String, ConditionError> {
    let text = pair.as_str();
    let span = Span::new(pair.as_span().start(), pair.as_span().end());
    match pair.as_rule() {
        Rule::quoted => Ok(unquote(text)),
        Rule::trailing => Err(ConditionError::new("there is text after the closing quote", span)
            .with_fix("put the whole value in quotes, or join the clauses with `&&` or `||`")),
        Rule::unclosed => Err(ConditionError::new("the quote is not closed", span)
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

fn pattern_error(error: &PatternError, span: Span) -> ConditionError {
    match error {
        PatternError::TooLarge => ConditionError::new("the regular expression is too large", span)
            .with_fix("use fewer or smaller repetitions such as `{1000}`"),
        PatternError::Syntax(error) => {
            // The last line says what is wrong; those before it draw the pattern again.
            let text = error.to_string();
            let reason = text.lines().last().unwrap_or_default();
            let reason = reason.strip_prefix("error: ").unwrap_or(reason);
            ConditionError::new(format!("the regular expression does not parse: {reason}"), span)
        }
    }
}

fn syntax_error(text: &str, error: &pest::error::Error<Rule>) -> ConditionError {
    let at = match error.location {
        InputLocation::Pos(at) | InputLocation::Span((at, _)) => at,
    };
    let rest = text[at..].chars();
    let found: String =
        rest.take(40).take_while(|c| !matches!(c, ' ' | '\t' | '\r' | '\n')).collect();
    let span = Span::new(at, at + found.len());
    let wanted = match &error.variant {
        ErrorVariant::ParsingError { positives, .. } => words(positives),
        ErrorVariant::CustomError { message } => message.clone(),
    };
    let seen = if found.is_empty() { "the end".to_owned() } else { format!("`{found}`") };
    let mut error = ConditionError::new(format!("expected {wanted}, found {seen}"), span);
    error.fix = fix_for(&found).filter(|_| !(found.starts_with(')') && wanted == "a condition"));
    error
}

fn fix_for(found: &str) -> Option<String> {
    let fix = match found.to_ascii_lowercase().as_str() {
        "and" | "&" => "write `&&` for and",
        "or" | "|" => "write `||` for or",
        "not" => "write `!` for not",
        "in" => "write `list contains item`",
        "" => return None,
        _ if found.starts_with('~') || found.starts_with("=~") => {
            "write `matches` for a regular expression"
        }
        _ if found.starts_with(')') => {
            "open the bracket, or put the value that it belongs to in quotes"
        }
        _ if found.starts_with(|c: char| c == '"' || c == '\'' || c.is_ascii_digit()) => {
            "write a key first: it begins with a letter and has no quotes"
        }
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
        Rule::condition
        | Rule::any_of
        | Rule::all_of
        | Rule::unary
        | Rule::group
        | Rule::clause => "a condition",
        Rule::key | Rule::word => "a key",
        Rule::operator | Rule::word_operator => "an operator",
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
    }
}
