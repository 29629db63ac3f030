//! What is wrong with a value, in words that fit into a prompt for any value.

use std::borrow::Cow;

use fabro_types::excerpt;
use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::paths::Location;
use serde_json::Value;

/// One thing that is wrong with an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The JSON pointer of the place in the answer's JSON, such as `/items/0/score`; empty for the
    /// whole.
    pub pointer: String,
    /// What is wrong there, a fragment of at most about 300 characters.
    pub message: String,
}

/// Removes secrets from a text. Call it before truncating the text: part of a secret is not
/// recognized.
pub(crate) type Redact<'a> = dyn Fn(&str) -> String + 'a;

/// How many characters one message has at most.
const MAX_MESSAGE: usize = 300;

/// Values longer than this are not repeated in a message.
const MAX_SHOWN: usize = 80;

/// How many alternatives of `anyOf` and `oneOf` a message goes into.
const MAX_ALTERNATIVES: usize = 4;

/// How many values of an `enum` are listed.
const MAX_OPTIONS: usize = 10;

/// How deep alternatives of alternatives are followed.
const MAX_DEPTH: usize = 4;

/// A place in words: `/a/b`, or "the top".
pub(crate) fn place(pointer: &str) -> Cow<'_, str> {
    if pointer.is_empty() { Cow::Borrowed("the top") } else { excerpt(pointer, MAX_SHOWN) }
}

/// What serde says, without the place.
pub(crate) fn json_error(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or(&message);
    match message {
        "recursion limit exceeded" => "it is nested deeper than 127 levels".to_owned(),
        message => message.to_owned(),
    }
}

/// The place in a schema and what is wrong there.
pub(crate) fn schema_problem(error: &ValidationError<'_>) -> (String, String) {
    let mut problems = Vec::new();
    add(error, 0, 1, &str::to_owned, &mut problems);
    match problems.pop() {
        Some(Problem { pointer, message }) => (pointer, message),
        None => (String::new(), message(error)),
    }
}

/// Adds what one error means, at most until there are `limit` problems.
pub(crate) fn add(
    error: &ValidationError<'_>,
    depth: usize,
    limit: usize,
    redact: &Redact<'_>,
    problems: &mut Vec<Problem>,
) {
    if problems.len() >= limit {
        return;
    }
    let pointer = redacted_pointer(error.instance_path().as_str(), redact);
    let message = match error.kind() {
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            let at = error.instance_path();
            if let Some(errors) = meant(context, at).filter(|_| depth < MAX_DEPTH) {
                for error in errors {
                    add(error, depth + 1, limit, redact, problems);
                }
                return;
            }
            alternatives(context, at, depth, redact)
        }
        ValidationErrorKind::OneOfMultipleValid { .. } => {
            "it fits more than one of the alternatives of `oneOf`, and must fit exactly one"
                .to_owned()
        }
        ValidationErrorKind::PropertyNames { error } => {
            format!("a property name is wrong: {}", self::message(error))
        }
        _ => self::message(error),
    };
    let message = excerpt(&redact(&message), MAX_MESSAGE).into_owned();
    problems.push(Problem { pointer, message });
}

/// Redacts the names in a JSON pointer, with their escapes removed.
fn redacted_pointer(pointer: &str, redact: &Redact<'_>) -> String {
    let steps = pointer.split('/').map(|step| {
        let name = step.replace("~1", "/").replace("~0", "~");
        redact(&name).replace('~', "~0").replace('/', "~1")
    });
    steps.collect::<Vec<_>>().join("/")
}

/// The errors of the alternative that was probably meant: the only one that takes a value of this
/// type, or of those the only one whose constants fit.
fn meant<'e>(
    context: &'e [Vec<ValidationError<'static>>],
    at: &Location,
) -> Option<&'e Vec<ValidationError<'static>>> {
    let of_type = || {
        context.iter().filter(|errors| {
            !errors.iter().any(|error| {
                matches!(error.kind(), ValidationErrorKind::Type { .. })
                    && error.instance_path() == at
            })
        })
    };
    let with_constants = || {
        of_type().filter(|errors| {
            !errors.iter().any(|error| {
                matches!(
                    error.kind(),
                    ValidationErrorKind::Constant { .. } | ValidationErrorKind::Enum { .. }
                )
            })
        })
    };
    let mut fitting = with_constants();
    match (of_type().count(), fitting.next(), fitting.next()) {
        (1, _, _) => of_type().next(),
        (_, only, None) => only,
        _ => None,
    }
}

fn alternatives(
    context: &[Vec<ValidationError<'static>>],
    at: &Location,
    depth: usize,
    redact: &Redact<'_>,
) -> String {
    let shown = context.iter().take(MAX_ALTERNATIVES).enumerate().filter_map(|(number, errors)| {
        let error = errors.first()?;
        let mut problems = Vec::new();
        if depth < MAX_DEPTH {
            add(error, depth + 1, 1, redact, &mut problems);
        }
        let said = problems.pop().map_or_else(|| message(error), |problem| problem.message);
        let path = error.instance_path().as_str();
        let inside = redacted_pointer(path.strip_prefix(at.as_str()).unwrap_or(path), redact);
        let inside = if inside.is_empty() { String::new() } else { format!("{inside}: ") };
        Some(format!("({}) {inside}{said}", number + 1))
    });
    let shown: Vec<String> = shown.collect();
    let more = if context.len() > MAX_ALTERNATIVES { ", …" } else { "" };
    format!("it fits none of the alternatives: {}{more}", shown.join(", "))
}

/// The message of the error, the value in it only when it is short.
fn message(error: &ValidationError<'_>) -> String {
    match error.kind() {
        ValidationErrorKind::Required { property } => format!("{property} is missing"),
        ValidationErrorKind::Type { kind: TypeKind::Single(wanted) } => {
            format!("it must be of type {wanted}, not {}", kind(error.instance()))
        }
        ValidationErrorKind::Enum { options } => {
            let options = options.as_array().map(Vec::as_slice).unwrap_or_default();
            let shown: Vec<String> = options.iter().take(MAX_OPTIONS).map(short).collect();
            let more = if options.len() > MAX_OPTIONS { " and others" } else { "" };
            format!("{} is none of {}{more}", short(error.instance()), shown.join(", "))
        }
        ValidationErrorKind::Format { format } if format == "regex" => {
            let pattern = short(error.instance());
            format!("{pattern} is no regular expression, or one that grows too large")
        }
        ValidationErrorKind::FalseSchema => "nothing may stand here".to_owned(),
        ValidationErrorKind::BacktrackLimitExceeded { .. } => {
            "the pattern of the schema takes too long on this text".to_owned()
        }
        _ => {
            let instance = error.instance();
            if is_short(instance) {
                error.to_string()
            } else {
                error.masked_with(format!("the {}", noun(instance))).to_string()
            }
        }
    }
}

/// The value, or only its type when it is long.
fn short(value: &Value) -> String {
    if is_short(value) { value.to_string() } else { format!("the {}", noun(value)) }
}

fn is_short(value: &Value) -> bool {
    match value {
        Value::String(text) => text.len() <= MAX_SHOWN,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => true,
    }
}

/// The same without the article.
fn noun(value: &Value) -> &'static str {
    kind(value).trim_start_matches("an ").trim_start_matches("a ")
}

/// The type of a value with its article.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
