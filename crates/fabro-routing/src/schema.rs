use std::fmt;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ReferencingError, ValidationError, Validator};
use serde_json::{Map, Value};

use crate::explain;

/// How far a regular expression with look-around may go back while it reads one text.
const MAX_BACKTRACKING: usize = 100_000;

/// How large one compiled regular expression may be, in bytes.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// A JSON Schema, compiled once. Drafts 4 to 2020-12, chosen by `$schema`; without one 2020-12.
#[derive(Clone)]
pub struct Schema {
    json: Value,
    validator: Validator,
}

impl Schema {
    /// Compiles a schema out of its JSON text. A `$ref` may lead to any place inside the schema;
    /// nothing is fetched or read.
    ///
    /// # Errors
    /// Text that is no JSON object, that says something no schema can say, or that refers to
    /// anything outside of itself or not there.
    ///
    /// ```
    /// use fabro_routing::{Schema, SchemaError};
    ///
    /// assert!(Schema::compile(r#"{"type": "object", "required": ["score"]}"#).is_ok());
    /// let error = Schema::compile(r#"{"properties": {"score": {"type": "int"}}}"#).unwrap_err();
    /// assert!(matches!(error, SchemaError::Invalid { pointer, .. } if pointer == "/properties/score/type"));
    /// ```
    pub fn compile(json: &str) -> Result<Self, SchemaError> {
        let text = json.strip_prefix('\u{feff}').unwrap_or(json);
        let json: Value = serde_json::from_str(text).map_err(|error| SchemaError::NotJson {
            message: explain::json_error(&error),
            line: error.line(),
            column: error.column(),
        })?;
        let Value::Object(root) = &json else { return Err(SchemaError::NotAnObject) };
        let patterns = PatternOptions::fancy_regex()
            .backtrack_limit(MAX_BACKTRACKING)
            .size_limit(MAX_PATTERN_BYTES);
        let options = jsonschema::options().offline().with_pattern_options(patterns);
        let validator = options.build(&json).map_err(|error| refusal(root, &error))?;
        Ok(Self { json, validator })
    }

    /// The schema itself.
    pub fn json(&self) -> &Value {
        &self.json
    }

    pub(crate) fn validator(&self) -> &Validator {
        &self.validator
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

/// Why a text is no schema that answers can be checked with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// It does not parse.
    #[error("the schema is not JSON: {message}")]
    NotJson {
        /// What the parser says.
        message: String,
        /// The line of the place, from 1; 0 when the text ends too early at its very beginning.
        line: usize,
        /// The column of the place in bytes, from 1.
        column: usize,
    },
    /// It is JSON, but no object.
    #[error("the schema is no JSON object")]
    NotAnObject,
    /// A keyword has a value that it cannot have.
    #[error("the schema is wrong at {}: {message}", explain::place(.pointer))]
    Invalid {
        /// The JSON pointer of the value; empty for the whole schema.
        pointer: String,
        /// What is wrong with it, and what it may be.
        message: String,
    },
    /// It refers to a file or an address.
    #[error(
        "the schema refers to `{reference}` at {}, but nothing outside of the schema itself is read: copy it into `$defs`", explain::place(.pointer)
    )]
    OutsideReference {
        /// The JSON pointer of the `$ref`, as far as it can be told.
        pointer: String,
        /// What it refers to.
        reference: String,
    },
    /// It refers to a place inside itself that is not there.
    #[error("the schema refers to `{reference}` at {}, which is not there", explain::place(.pointer))]
    MissingReference {
        /// The JSON pointer of the `$ref`, as far as it can be told.
        pointer: String,
        /// What it refers to.
        reference: String,
    },
}

/// Sorts out why a schema does not compile.
fn refusal(root: &Map<String, Value>, error: &ValidationError<'_>) -> SchemaError {
    let ValidationErrorKind::Referencing(reference) = error.kind() else {
        let (pointer, message) = explain::schema_problem(error);
        return SchemaError::Invalid { pointer, message };
    };
    let missing = |reference: String| {
        let pointer = place_of(root, |written| written == reference);
        SchemaError::MissingReference { pointer, reference }
    };
    match reference {
        ReferencingError::Unretrievable { uri, .. } => {
            let is_it = |written: &str| {
                !written.starts_with('#')
                    && uri.ends_with(
                        written.split('#').next().unwrap_or_default().trim_start_matches("./"),
                    )
            };
            SchemaError::OutsideReference { pointer: place_of(root, is_it), reference: uri.clone() }
        }
        ReferencingError::PointerToNowhere { pointer } => missing(format!("#{pointer}")),
        ReferencingError::NoSuchAnchor { anchor } => missing(format!("#{anchor}")),
        ReferencingError::UnknownSpecification { specification } => SchemaError::Invalid {
            pointer: "/$schema".to_owned(),
            message: format!(
                "`{specification}` is no draft of JSON Schema: write https://json-schema.org/draft/2020-12/schema, or leave it out"
            ),
        },
        other => SchemaError::Invalid { pointer: String::new(), message: other.to_string() },
    }
}

/// The pointer of the first `$ref` of this kind; empty when there is none. The recursion ends at the
/// 127 levels that the JSON parser allows.
fn place_of(root: &Map<String, Value>, is_it: impl Fn(&str) -> bool) -> String {
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
