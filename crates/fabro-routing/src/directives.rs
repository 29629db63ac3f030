use std::ops::Range;
use std::sync::Arc;

use fabro_types::{ContextPatch, Status, parse_json};
use serde_json::Value;

use crate::explain::kind;
use crate::objects::{Candidate, candidates};
use crate::parse::{line_and_column, parse_object};

/// What a response asks of the workflow. Rules: `docs/workflow-language.md`, "Directives".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directives {
    /// How the stage says it ended.
    pub outcome: Option<OutcomeWord>,
    /// The reason of a failure; never empty.
    pub failure_reason: Option<String>,
    /// The label of the edge to take; never empty.
    pub preferred_next_label: Option<String>,
    /// Suggested next nodes, most preferred first.
    pub suggested_next_ids: Vec<String>,
    /// Values for the context as written; the caller checks whether a stage may write them.
    pub context_updates: ContextPatch,
}

/// The value of an `outcome` directive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutcomeWord {
    /// A status, in either spelling. Where `outcome` is absent, `status` may state it.
    Status(Status),
    /// Any other word; never empty.
    Custom(String),
}

/// A directive that was ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Its field, such as `suggested_next_ids`.
    pub field: &'static str,
    /// What is wrong with it, a fragment without a full stop.
    pub message: String,
}

/// The directives of a text and where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extracted {
    /// What it asks for.
    pub directives: Directives,
    /// What could not be read, in the order of [`FIELDS`].
    pub warnings: Vec<Warning>,
    /// The byte range of the object in the text; empty when none parses.
    pub span: Range<usize>,
    /// An object that does not parse, as [`DirectivesObject::unreadable`].
    pub unreadable: Option<Unreadable>,
}

/// An object with a key of [`FIELDS`] that does not parse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// It has the key `outcome`, so the outcome of the stage is unknown.
    pub states_outcome: bool,
    /// The line of the error, from 1; the start of the object when it breaks off.
    pub line: usize,
    /// The column there, in characters from 1.
    pub column: usize,
    /// The error, a fragment without a full stop.
    pub message: String,
    /// The byte offset of its start in the text.
    pub start: usize,
}

/// The recognised fields.
pub const FIELDS: [&str; 5] =
    ["outcome", "failure_reason", "preferred_next_label", "suggested_next_ids", "context_updates"];

/// Finds the directives of a text: the last outermost JSON object that parses and has a field of
/// [`FIELDS`]; `None` when there is none, not even one that does not parse. A field of the wrong type is left
/// out with a warning, the others still count. A key written twice counts as written last.
pub fn extract(text: &str) -> Option<Extracted> {
    let DirectivesObject { object, unreadable, overruled } = directives_object(text);
    let (span, object) = match object {
        Some(found) => found,
        None if unreadable.is_some() => (0..0, Value::Null),
        None => return None,
    };
    let (directives, mut warnings) = Directives::read(object);
    if let Some(line) = overruled {
        let message = format!(
            "line {line} states a failure, but a later object has no `outcome`: only the last one counts"
        );
        warnings.push(Warning { field: "outcome", message });
    }
    Some(Extracted { directives, warnings, span, unreadable })
}

/// The object with the directives of a text, as [`extract`] finds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectivesObject {
    /// The object and its byte range in the text.
    pub object: Option<(Range<usize>, Value)>,
    /// The last object that does not parse, if it is the only one or comes later; or earlier, if it has the
    /// key `outcome` and no object after it has.
    pub unreadable: Option<Unreadable>,
    /// The line, from 1, of an earlier object that states a failure, where the last one states no outcome.
    pub overruled: Option<usize>,
}

/// The bits that mark the keys of an object: `outcome`, and the other fields.
const OUTCOME: u8 = 1;
const OTHER: u8 = 2;

/// What may be an object with directives, in order: also what is no JSON, but gives `outcome` a value.
pub(crate) fn directive_candidates(text: &str) -> Vec<Candidate> {
    let bits = |key: &str| match key {
        "outcome" => OUTCOME,
        key if FIELDS.contains(&key) => OTHER,
        _ => 0,
    };
    candidates(text, bits, Some(("outcome", OUTCOME)))
}

impl Candidate {
    /// Whether it says how the stage ended, as far as that can be seen without parsing it.
    pub(crate) fn states_outcome(&self) -> bool {
        self.keys & OUTCOME != 0
    }
}

/// Finds the object with the directives of a text.
pub fn directives_object(text: &str) -> DirectivesObject {
    let mut found = None;
    let mut unreadable = None;
    let mut overruled = None;
    // The last candidate with an outcome was seen.
    let mut is_settled = false;
    for candidate in directive_candidates(text).into_iter().rev() {
        if is_settled && found.is_some() {
            break;
        }
        let mut states_outcome = candidate.states_outcome();
        match parse_object(text, &candidate, parse_json) {
            Ok(object) if FIELDS.iter().any(|field| object.get(field).is_some()) => {
                states_outcome = object.get("outcome").is_some() || status(&object).is_some();
                if found.is_some() && !is_settled && states_failure(&object) {
                    overruled = Some(line_and_column(text, candidate.range.start).0);
                }
                found.get_or_insert((candidate.range, object));
            }
            Err(broken)
                if !is_settled
                    && candidate.keys != 0
                    && (states_outcome || found.is_none() && unreadable.is_none()) =>
            {
                unreadable = Some((states_outcome, candidate.range.start, broken));
            }
            _ => {}
        }
        is_settled |= states_outcome;
    }
    let unreadable = unreadable.map(|(states_outcome, start, broken)| {
        let (line, column) = line_and_column(text, broken.at);
        Unreadable { states_outcome, line, column, message: broken.message, start }
    });
    DirectivesObject { object: found, unreadable, overruled }
}

fn states_failure(object: &Value) -> bool {
    let word = object.get("outcome").and_then(Value::as_str).and_then(Status::parse);
    word.or_else(|| status(object)) == Some(Status::Failed)
}

/// The `status` of an object, which is read where it has no `outcome`.
fn status(object: &Value) -> Option<Status> {
    Status::parse_loosely(object.get("status")?.as_str()?)
}

impl Directives {
    /// Reads the directives of an object, with warnings for what could not be read.
    pub fn read(mut object: Value) -> (Self, Vec<Warning>) {
        let mut warnings = Vec::new();
        let status = status(&object);
        let mut take =
            |field: &'static str| object.get_mut(field).map(|value| (field, value.take()));
        let outcome = take("outcome").and_then(|field| text(field, &mut warnings)).map(|word| {
            Status::parse(&word).map_or(OutcomeWord::Custom(word), OutcomeWord::Status)
        });
        let outcome = outcome.or_else(|| {
            let status = status?;
            let field = "status";
            let message = "`status` is read as `outcome`, which is absent".to_owned();
            warnings.push(Warning { field, message });
            Some(OutcomeWord::Status(status))
        });
        let directives = Self {
            outcome,
            failure_reason: take("failure_reason").and_then(|field| text(field, &mut warnings)),
            preferred_next_label: take("preferred_next_label")
                .and_then(|field| text(field, &mut warnings)),
            suggested_next_ids: take("suggested_next_ids")
                .and_then(|field| strings(field, &mut warnings))
                .unwrap_or_default(),
            context_updates: take("context_updates")
                .and_then(|field| patch(field, &mut warnings))
                .unwrap_or_default(),
        };
        (directives, warnings)
    }
}

/// A string; an empty one counts as absent, without a warning.
fn text((field, value): (&'static str, Value), warnings: &mut Vec<Warning>) -> Option<String> {
    match value {
        Value::String(text) => (!text.trim().is_empty()).then_some(text),
        other => refuse(field, "a string", kind(&other), warnings),
    }
}

fn strings(
    (field, value): (&'static str, Value),
    warnings: &mut Vec<Warning>,
) -> Option<Vec<String>> {
    let Value::Array(elements) = value else {
        return refuse(field, "an array of strings", kind(&value), warnings);
    };
    let mut strings = Vec::with_capacity(elements.len());
    for element in elements {
        let Value::String(text) = element else {
            let seen = format!("an array with {}", kind(&element));
            return refuse(field, "an array of strings", &seen, warnings);
        };
        strings.push(text);
    }
    Some(strings)
}

fn patch(
    (field, value): (&'static str, Value),
    warnings: &mut Vec<Warning>,
) -> Option<ContextPatch> {
    match value {
        Value::Object(updates) => {
            Some(updates.into_iter().map(|(key, value)| (key, Arc::new(value))).collect())
        }
        other => refuse(field, "an object", kind(&other), warnings),
    }
}

fn refuse<T>(
    field: &'static str,
    wanted: &str,
    seen: &str,
    warnings: &mut Vec<Warning>,
) -> Option<T> {
    let message = format!("`{field}` is ignored: it must be {wanted}, not {seen}");
    warnings.push(Warning { field, message });
    None
}
