use std::fmt::Write as _;

use fabro_types::excerpt;
use serde_json::{Map, Value};

use crate::directives::{FIELDS, directive_candidates};
use crate::explain::{Problem, Redact, kind, place};
use crate::objects::{Candidate, candidates};
use crate::parse::{as_written, line_and_column, parse_object, with_all_digits};
use crate::schema::Schema;

/// How many problems of one answer are reported.
const MAX_PROBLEMS: usize = 10;

/// How many characters of a schema a correction repeats.
const MAX_SCHEMA: usize = 2_000;

/// What an answer has to be.
#[derive(Clone, Copy, Debug)]
pub enum Expected<'a> {
    /// An object with routing directives, each of its type: [`FIELDS`].
    Routing,
    /// JSON that this schema accepts.
    Schema(&'a Schema),
}

/// What an answer is.
#[derive(Clone, Debug, PartialEq)]
pub enum Checked {
    /// What was asked for: the JSON found in the answer; for routing the object.
    Valid(Value),
    /// The answer has no JSON object; for routing, none with a field of [`FIELDS`].
    Missing,
    /// There is something, and it is not as it has to be.
    Invalid {
        /// At least one and at most 11: the first ten are worth telling, one more says that there
        /// are more.
        problems: Vec<Problem>,
    },
}

/// Checks the JSON of an answer. Which JSON that is, in a text of prose, fences and drafts:
///
/// - Routing: the last outermost object that parses and has a field of [`FIELDS`]. Every field has
///   to be of its type; any word is an outcome here. An object that does not parse, or breaks off,
///   but has such a field of its own is a wrong answer when it comes last, not a missing one; one
///   with `outcome` also when no later object has it.
/// - A schema: the last outermost object that parses. When the schema's `type` allows anything but
///   an object, the whole text, or else the last fenced block that is JSON, comes first. An object
///   that does not parse is a wrong answer when it comes last and has a key of the schema's
///   `properties`, or when there is no other.
///
/// Takes time linear in the text, apart from what the schema itself demands.
///
/// ```
/// use fabro_routing::{Checked, Expected, Schema, check, feedback};
///
/// let schema = Schema::compile(
///     r#"{"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}"#,
/// ).unwrap();
/// let expected = Expected::Schema(&schema);
/// let checked = check(r#"I would say {"score": "high"}."#, expected);
/// assert!(feedback(&checked, expected).contains("/score: it must be of type integer, not a string"));
/// let Checked::Valid(value) = check(r#"{"score": 3}"#, expected) else { panic!() };
/// assert_eq!(value["score"], 3);
/// ```
pub fn check(text: &str, expected: Expected<'_>) -> Checked {
    check_redacted(text, expected, str::to_owned)
}

/// Like [`check`], but `redact` removes secrets from the texts of problems. The check itself
/// sees the text unchanged, and a valid value is returned unredacted.
pub fn check_redacted(
    text: &str,
    expected: Expected<'_>,
    redact: impl Fn(&str) -> String,
) -> Checked {
    match expected {
        Expected::Routing => routing(text),
        Expected::Schema(schema) => custom(text, schema, &redact),
    }
}

/// The message that asks for a better answer: what is wrong, what is asked for, and that nothing but
/// the JSON is wanted. Empty for a valid answer. Bounded for any answer and schema.
pub fn feedback(checked: &Checked, expected: Expected<'_>) -> String {
    let mut said = match checked {
        Checked::Valid(_) => return String::new(),
        Checked::Missing => match expected {
            Expected::Routing => {
                "Your answer has no JSON object with a routing field.\n".to_owned()
            }
            Expected::Schema(_) => "Your answer has no JSON object.\n".to_owned(),
        },
        Checked::Invalid { problems } => {
            let mut said = "The JSON in your answer is not valid:\n".to_owned();
            for Problem { pointer, message } in problems.iter().take(MAX_PROBLEMS) {
                let _ = writeln!(said, "- {}: {message}", place(pointer));
            }
            if problems.len() > MAX_PROBLEMS {
                said.push_str("- and more\n");
            }
            said
        }
    };
    match expected {
        Expected::Routing => said.push_str(
            "It must be a JSON object with at least one of these fields: outcome (a string: succeeded, failed, partially_succeeded or skipped), failure_reason (a string), preferred_next_label (a string), suggested_next_ids (an array of strings), context_updates (an object).\n",
        ),
        Expected::Schema(schema) => {
            let json = schema.json().to_string();
            let _ = writeln!(said, "It must match this JSON Schema:\n{}", excerpt(&json, MAX_SCHEMA));
        }
    }
    said.push_str("Answer with the corrected JSON only.");
    said
}

impl Checked {
    /// What is wrong, in one line for people; empty for a valid answer.
    pub fn problem(&self) -> String {
        match self {
            Self::Valid(_) => String::new(),
            Self::Missing => "the answer has no JSON object".to_owned(),
            Self::Invalid { problems } => {
                let shown = problems.iter().take(3);
                let shown: Vec<_> =
                    shown.map(|it| format!("{}: {}", place(&it.pointer), it.message)).collect();
                let more = if problems.len() > shown.len() { "; and more" } else { "" };
                format!("{}{more}", shown.join("; "))
            }
        }
    }
}

fn routing(text: &str) -> Checked {
    let mut found = None;
    for candidate in directive_candidates(text).into_iter().rev() {
        let states_outcome = candidate.states_outcome();
        match parse(text, &candidate) {
            Ok(fields) if FIELDS.iter().any(|field| fields.contains_key(*field)) => {
                found.get_or_insert((candidate.range, fields));
                if states_outcome {
                    break;
                }
            }
            Err(problem) if states_outcome || candidate.keys != 0 && found.is_none() => {
                return Checked::Invalid { problems: vec![problem] };
            }
            _ => {}
        }
    }
    let Some((range, fields)) = found else { return Checked::Missing };
    let problems = wrong_types(&fields);
    let value = with_all_digits(&text[range]).unwrap_or(Value::Object(fields));
    valid_unless(problems, value)
}

fn custom(text: &str, schema: &Schema, redact: &Redact<'_>) -> Checked {
    if schema.admits_others()
        && let Some((source, value)) = whole(text)
    {
        return validated(source, value, schema, redact);
    }
    let properties = schema.properties();
    let is_property = |key: &str| properties.is_some_and(|known| known.contains_key(key)).into();
    let mut broken = None;
    for candidate in candidates(text, is_property, None).into_iter().rev() {
        match parse(text, &candidate) {
            Ok(fields) => {
                let source = &text[candidate.range.clone()];
                return validated(source, Value::Object(fields), schema, redact);
            }
            Err(problem) if candidate.keys != 0 => {
                return Checked::Invalid { problems: vec![problem] };
            }
            Err(problem) => {
                broken.get_or_insert(problem);
            }
        }
    }
    broken.map_or(Checked::Missing, |problem| Checked::Invalid { problems: vec![problem] })
}

/// The text as one JSON value that is not an object, or that of its last fenced block; objects are found
/// like everywhere.
fn whole(text: &str) -> Option<(&str, Value)> {
    other_value(text).or_else(|| {
        // Between fences, blocks and what is not one take turns; the first line of a block may name
        // a language.
        let parts: Vec<&str> = text.split("```").collect();
        let mut blocks = parts.iter().skip(1).step_by(2).rev();
        blocks.find_map(|block| other_value(block.split_once('\n').map_or(block, |(_, rest)| rest)))
    })
}

/// A JSON value that is not an object, and its text.
fn other_value(text: &str) -> Option<(&str, Value)> {
    let text = text.trim();
    if text.starts_with('{') {
        return None;
    }
    serde_json::from_str(text).ok().map(|value| (text, value))
}

/// The schema validates the numbers as written.
fn parse(text: &str, candidate: &Candidate) -> Result<Map<String, Value>, Problem> {
    parse_object(text, candidate, as_written).map_err(|broken| {
        let message = if broken.breaks_off {
            broken.message
        } else {
            // Relative to the object, since the model corrects the object alone.
            let start = candidate.range.start;
            let (line, column) = line_and_column(&text[start..], broken.at - start);
            format!("it does not parse: {} at line {line} column {column}", broken.message)
        };
        Problem { pointer: String::new(), message }
    })
}

/// The schema sees the numbers as they are written; the result has all digits of large integers.
fn validated(source: &str, value: Value, schema: &Schema, redact: &Redact<'_>) -> Checked {
    let problems = schema.problems(&value, MAX_PROBLEMS + 1, redact);
    if problems.is_empty() {
        return Checked::Valid(with_all_digits(source).unwrap_or(value));
    }
    Checked::Invalid { problems }
}

fn valid_unless(problems: Vec<Problem>, value: Value) -> Checked {
    if problems.is_empty() { Checked::Valid(value) } else { Checked::Invalid { problems } }
}

fn wrong_types(fields: &Map<String, Value>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut wrong = |pointer: String, wanted: &str, value: &Value| {
        if problems.len() <= MAX_PROBLEMS {
            let message = format!("it must be {wanted}, not {}", kind(value));
            problems.push(Problem { pointer, message });
        }
    };
    for field in FIELDS {
        let Some(value) = fields.get(field) else { continue };
        let pointer = format!("/{field}");
        match (field, value) {
            ("suggested_next_ids", Value::Array(items)) => {
                let others = items.iter().enumerate().filter(|(_, item)| !item.is_string());
                for (at, item) in others.take(MAX_PROBLEMS + 1) {
                    wrong(format!("{pointer}/{at}"), "a string", item);
                }
            }
            ("suggested_next_ids", _) => wrong(pointer, "an array of strings", value),
            ("context_updates", Value::Object(_)) => {}
            ("context_updates", _) => wrong(pointer, "an object", value),
            (_, Value::String(_)) => {}
            _ => wrong(pointer, "a string", value),
        }
    }
    problems
}
