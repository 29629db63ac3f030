//! Checking arguments.

use fabro_routing::{Affordable, Bounds, TOO_COSTLY, TOO_LARGE, is_too_large};
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

/// The most problems that are shown at once.
const MAX_PROBLEMS: usize = 3;

/// How long one of them may be, in characters.
const LONGEST: usize = 300;

/// How far a pattern with look-around may go back while it reads one text.
const MAX_BACKTRACKING: usize = 100_000;

/// How large one compiled pattern may be, in bytes.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// The JSON Schema of a tool's arguments. Nothing outside of it is read.
pub(crate) struct Schema {
    json: Value,
    validator: Validator,
    bounds: Bounds,
}

impl Schema {
    /// Compiles it; the error is a message.
    pub(crate) fn compile(schema: &Value) -> Result<Self, String> {
        if !schema.is_object() {
            return Err("it is not an object".to_owned());
        }
        if is_too_large(schema) {
            return Err(TOO_LARGE.to_owned());
        }
        let patterns = PatternOptions::fancy_regex()
            .backtrack_limit(MAX_BACKTRACKING)
            .size_limit(MAX_PATTERN_BYTES);
        let options = jsonschema::options().offline().with_pattern_options(patterns);
        let validator = options.build(schema).map_err(|error| message(&error))?;
        Ok(Self { json: schema.clone(), validator, bounds: Bounds::of(schema) })
    }

    /// What does not fit, with a JSON pointer each; empty when all does. Bounded in time and memory.
    pub(crate) fn problems(&self, arguments: &Value) -> String {
        match self.bounds.affordable(&self.json, arguments) {
            Affordable::Nothing => return TOO_COSTLY.to_owned(),
            _ if self.validator.is_valid(arguments) => return String::new(),
            Affordable::Validity => return "it does not match the schema".to_owned(),
            Affordable::Errors => {}
        }
        let errors = self.validator.iter_errors(arguments);
        let problems = errors.take(MAX_PROBLEMS).map(|error| message(&error));
        problems.collect::<Vec<_>>().join("; ")
    }
}

fn message(error: &ValidationError<'_>) -> String {
    let pointer = error.instance_path().as_str();
    let text = error.masked().to_string();
    let place = if pointer.is_empty() { String::new() } else { format!("{pointer}: ") };
    format!("{place}{text}").chars().take(LONGEST).collect()
}
