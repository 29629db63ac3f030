use std::fmt;

use fabro_types::{Span, SyntaxError};
use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ReferencingError, ValidationError, Validator};
use serde_json::{Map, Value};

use crate::cost::{Affordable, Bounds, TOO_COSTLY, TOO_LARGE, is_too_large};
use crate::explain::{self, Problem, Redact, place};

/// How far a regular expression with look-around may go back while it reads one text.
const MAX_BACKTRACKING: usize = 100_000;

/// How large one compiled regular expression may be, in bytes.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// A JSON Schema, compiled once. Drafts 4 to 2020-12, chosen by `$schema`; without one 2020-12.
#[derive(Clone)]
pub struct Schema {
    json: Value,
    validator: Validator,
    bounds: Bounds,
}

impl Schema {
    /// Compiles a schema from its JSON text. A `$ref` may lead to any place inside the schema;
    /// nothing is fetched or read.
    ///
    /// # Errors
    /// The text is not a JSON object or not a valid schema, or it refers to something outside of
    /// itself or missing. Only errors of JSON have a narrower span than the whole text.
    ///
    /// ```
    /// use fabro_routing::Schema;
    ///
    /// assert!(Schema::compile(r#"{"type": "object", "required": ["score"]}"#).is_ok());
    /// let error = Schema::compile(r#"{"properties": {"score": {"type": "int"}}}"#).unwrap_err();
    /// assert!(error.message.starts_with("the schema is wrong at /properties/score/type"));
    /// ```
    pub fn compile(json: &str) -> Result<Self, SyntaxError> {
        let whole = Span::new(0, json.len());
        let text = json.strip_prefix('\u{feff}').unwrap_or(json);
        let json: Value = serde_json::from_str(text).map_err(|error| {
            let at = offset(text, error.line(), error.column());
            let message = format!("the schema is not JSON: {}", explain::json_error(&error));
            SyntaxError::new(message, Span::new(at, at + 1)).with_fix(FIX_TEXT)
        })?;
        let Value::Object(root) = &json else {
            return Err(
                SyntaxError::new("the schema is not a JSON object", whole).with_fix(FIX_TEXT)
            );
        };
        if is_too_large(&json) {
            let message = format!("the schema cannot be used: {TOO_LARGE}");
            let fix = "define what repeats once in `$defs`, and refer to it by `$ref`";
            return Err(SyntaxError::new(message, whole).with_fix(fix));
        }
        let patterns = PatternOptions::fancy_regex()
            .backtrack_limit(MAX_BACKTRACKING)
            .size_limit(MAX_PATTERN_BYTES);
        let options = jsonschema::options().offline().with_pattern_options(patterns);
        let validator = options.build(&json).map_err(|error| {
            let (message, fix) = compile_error(root, &error);
            SyntaxError::new(message, whole).with_fix(fix)
        })?;
        let bounds = Bounds::of(&json);
        Ok(Self { json, validator, bounds })
    }

    /// The schema itself.
    pub fn json(&self) -> &Value {
        &self.json
    }

    /// What is wrong with a value: at most `limit` problems, redacted; empty when it is valid.
    /// Bounded in time and memory: a value that would need more is refused.
    pub(crate) fn problems(
        &self,
        value: &Value,
        limit: usize,
        redact: &Redact<'_>,
    ) -> Vec<Problem> {
        let whole = |message: &str| Problem { pointer: String::new(), message: message.to_owned() };
        let affordable = self.bounds.affordable(&self.json, value);
        if affordable == Affordable::Nothing {
            return vec![whole(TOO_COSTLY)];
        }
        if self.validator.is_valid(value) {
            return Vec::new();
        }
        let mut problems = Vec::new();
        if affordable == Affordable::Errors {
            for error in self.validator.iter_errors(value).take(limit) {
                explain::add(&error, 0, limit, redact, &mut problems);
            }
        }
        if problems.is_empty() {
            problems.push(whole("it does not match the schema"));
        }
        problems
    }

    /// Whether its `type` lets something be the answer that is no object.
    pub(crate) fn admits_others(&self) -> bool {
        match self.json.get("type") {
            Some(Value::String(name)) => name != "object",
            Some(Value::Array(names)) => names.iter().any(|name| name != "object"),
            _ => false,
        }
    }

    /// The properties that its outermost level names.
    pub(crate) fn properties(&self) -> Option<&Map<String, Value>> {
        self.json.get("properties")?.as_object()
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema").field("json", &self.json).finish_non_exhaustive()
    }
}

const FIX_TEXT: &str =
    "write `routing`, a JSON Schema such as {\"type\": \"object\"}, or @ and the path of one";
const FIX_KEYWORD: &str = "correct it there; the keywords are those of JSON Schema, draft 2020-12 unless `$schema` names another";

/// Why a schema does not compile, with its fix.
fn compile_error(root: &Map<String, Value>, error: &ValidationError<'_>) -> (String, &'static str) {
    let invalid = |pointer: &str, message: &str| {
        (format!("the schema is wrong at {}: {message}", place(pointer)), FIX_KEYWORD)
    };
    let missing = |reference: &str| {
        let pointer = pointer_of(root, |written| written == reference);
        let message = format!(
            "the schema refers to `{reference}` at {}, which is not there",
            place(&pointer)
        );
        (message, "define it in `$defs`, or correct the reference")
    };
    let ValidationErrorKind::Referencing(reference) = error.kind() else {
        let (pointer, message) = explain::schema_problem(error);
        return invalid(&pointer, &message);
    };
    match reference {
        ReferencingError::Unretrievable { uri, .. } => {
            let is_it = |written: &str| {
                let file = written.split('#').next().unwrap_or_default();
                !written.starts_with('#') && uri.ends_with(file.trim_start_matches("./"))
            };
            let pointer = pointer_of(root, is_it);
            let message = format!(
                "the schema refers to `{uri}` at {}, but nothing outside of the schema itself is read: copy it into `$defs`",
                place(&pointer)
            );
            (message, "copy what it refers to into `$defs`, and write #/$defs/NAME")
        }
        ReferencingError::PointerToNowhere { pointer } => missing(&format!("#{pointer}")),
        ReferencingError::NoSuchAnchor { anchor } => missing(&format!("#{anchor}")),
        ReferencingError::UnknownSpecification { specification } => invalid(
            "/$schema",
            &format!(
                "`{specification}` is not a draft of JSON Schema: write https://json-schema.org/draft/2020-12/schema, or leave it out"
            ),
        ),
        other => invalid("", &other.to_string()),
    }
}

/// The byte of a line and a column in bytes, both from 1.
fn offset(text: &str, line: usize, column: usize) -> usize {
    let lines = text.split_inclusive('\n').take(line.saturating_sub(1));
    let at = lines.map(str::len).sum::<usize>() + column.saturating_sub(1);
    text.floor_char_boundary(at.min(text.len().saturating_sub(1)))
}

/// The pointer of the first `$ref` of this kind; empty when there is none. The recursion ends at the
/// 127 levels that the JSON parser allows.
fn pointer_of(root: &Map<String, Value>, is_it: impl Fn(&str) -> bool) -> String {
    let mut pointer = String::new();
    let found = root.iter().any(|(key, value)| find(key, value, &mut pointer, &is_it));
    if found { pointer } else { String::new() }
}

fn find(step: &str, value: &Value, pointer: &mut String, is_it: &dyn Fn(&str) -> bool) -> bool {
    let length = pointer.len();
    pointer.push('/');
    pointer.push_str(&step.replace('~', "~0").replace('/', "~1"));
    let found = match value {
        Value::String(text) => matches!(step, "$ref" | "$dynamicRef") && is_it(text),
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.any(|(at, item)| find(&at.to_string(), item, pointer, is_it))
        }
        Value::Object(fields) => fields.iter().any(|(key, item)| find(key, item, pointer, is_it)),
        _ => false,
    };
    if !found {
        pointer.truncate(length);
    }
    found
}
