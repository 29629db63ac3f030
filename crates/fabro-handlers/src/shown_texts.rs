//! What a person sees beside the question of a gate.

use fabro_engine::{Mode, ShowSpec, Stage, StageRecord, TextTemplate, keys, reference};
use fabro_events::ShownText;
use fabro_types::{BlobRef, BranchPath, Failure, FailureClass, NodeKind};
use serde::Deserialize;
use serde_json::Value;

use crate::common::value_of;
use crate::render::render;

/// The maximum length of a text recorded with the question, in characters. The log of its stage has the
/// full text.
const MAX_SHOWN: usize = 16_000;

/// The context key with the link that a gate with `review_target` shows.
const REVIEW_TARGET: &str = "review_target";

/// The longest label of such a link, in characters.
const MAX_LABEL: usize = 200;

/// Its longest URL, in bytes.
const MAX_URL: usize = 2048;

/// The texts to display with the question. `options` are those that say more than their label.
pub(crate) fn shown(
    stage: &Stage,
    options: &[(String, &[TextTemplate])],
) -> Result<Vec<ShownText>, Failure> {
    let human = stage.spec().human();
    let mut texts = Vec::new();
    if human.is_some_and(|human| human.review_target) {
        texts.push(review_target(stage)?);
    }
    for show in human.map(|human| human.show.as_slice()).unwrap_or_default() {
        match show {
            ShowSpec::Last => texts.extend(last_output(stage)?),
            ShowSpec::Text(text) => {
                let text = render(stage, text, Mode::Text)?;
                texts.push(shown_text(None, None, &text, None));
            }
            ShowSpec::Key(key) => {
                let value = value_at(stage, key)?;
                texts.push(match &value {
                    Some(value) => shown_value(stage, None, Some(key.to_string()), value)?,
                    None => shown_text(None, Some(key.to_string()), "(no value)", None),
                });
            }
        }
    }
    for (name, about) in options {
        let about = about.iter().map(|text| render(stage, text, Mode::Text));
        let lines = about.collect::<Result<Vec<_>, _>>()?;
        texts.push(shown_text(None, None, &format!("{name}: {}", lines.join("\n")), None));
    }
    Ok(texts.into_iter().filter(|shown| !shown.text.is_empty()).collect())
}

/// What is to be reviewed.
#[derive(Deserialize)]
struct ReviewTarget {
    label: String,
    url: String,
    #[serde(default = "document")]
    kind: String,
}

fn document() -> String {
    "document".to_owned()
}

/// The link to what is to be reviewed. The values of one that is not valid are not repeated.
fn review_target(stage: &Stage) -> Result<ShownText, Failure> {
    let invalid = |why: &str| {
        let message = format!("the context key `{REVIEW_TARGET}` {why}; the gate was not asked");
        Failure::new(FailureClass::Deterministic, message)
    };
    let value = stage.context.get(REVIEW_TARGET);
    let value = value.ok_or_else(|| invalid("has no value"))?;
    let target: ReviewTarget = serde_json::from_value(value_of(stage, value)?.into_owned())
        .map_err(|_| invalid("is not an object with the texts `label` and `url`"))?;
    let ReviewTarget { label, url, kind } = &target;
    let is_line = |text: &str| {
        let chars = text.chars().count();
        (1..=MAX_LABEL).contains(&chars)
            && !text.trim().is_empty()
            && !text.contains(char::is_control)
    };
    if !is_line(label) || !is_line(kind) {
        return Err(invalid("has a `label` or `kind` that is not one line of 1 to 200 characters"));
    }
    if !is_link(url) {
        let why = "has a `url` that is not an http or https URL of at most 2,048 bytes without credentials";
        return Err(invalid(why));
    }
    let text = format!("Review the {label} {kind}, then choose the next action.\n{url}");
    Ok(shown_text(None, None, &text, None))
}

/// Whether this is an HTTP(S) URL with a host and no credentials.
fn is_link(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next());
    url.len() <= MAX_URL
        && !url.contains(|c: char| c.is_control() || c.is_whitespace() || c == '\\')
        && host.is_some_and(|host| !host.is_empty() && !host.contains('@'))
}

/// The value of a context key, or of a path into its value. The longest key wins, as in templates.
fn value_at(stage: &Stage, path: &str) -> Result<Option<Value>, Failure> {
    let ends = path.rmatch_indices('.').map(|(at, _)| at);
    for end in std::iter::once(path.len()).chain(ends) {
        let Some(value) = stage.context.get(&path[..end]) else { continue };
        let parts = path[end..].split('.').filter(|part| !part.is_empty());
        if end == path.len() {
            return Ok(Some(value.clone()));
        }
        let value = value_of(stage, value)?;
        let mut parts = parts;
        let found = parts.try_fold(&*value, |value, part| value.get(part));
        if found.is_some() {
            return Ok(found.cloned());
        }
    }
    Ok(None)
}

/// The last output or answer before the gate, on its own line. In a branch, stages before the fan-out do
/// not count, because the list that they produced contains the other elements.
fn last_output(stage: &Stage) -> Result<Option<ShownText>, Failure> {
    let line = stage.branch.as_deref().unwrap_or_default();
    let history = stage.history.iter().rev();
    for record in history.take_while(|record| *record.branch == *line) {
        let Some(value) = output_of(record) else { continue };
        let name = BranchPath::new(&record.branch).stage(&record.node, record.visit);
        let shown = shown_value(stage, Some(name), None, &value)?;
        if !shown.text.is_empty() {
            return Ok(Some(shown));
        }
    }
    Ok(None)
}

/// The output of a stage: a response, a validated output, a command output, the text of a person, the
/// outputs of branches, or the result of a sub-workflow.
fn output_of(record: &StageRecord) -> Option<Value> {
    let updates = &record.end.outcome.context_updates;
    let of_node = |prefix: &str| updates.get(&format!("{prefix}{}", record.node));
    let found = match record.handler {
        NodeKind::Command => updates.get(keys::COMMAND_OUTPUT).filter(|it| !is_blank(it)).or_else(
            // A command without stdout may explain its failure on stderr.
            || updates.get(keys::COMMAND_STDERR),
        ),
        NodeKind::Human => updates.get(keys::HUMAN_TEXT),
        NodeKind::Parallel => updates.get(keys::PARALLEL_OUTPUTS),
        NodeKind::ManagerLoop => {
            let child = of_node(keys::CHILD_PREFIX)?;
            let result = child.get(keys::LAST_RESPONSE).filter(|it| !is_blank(it));
            return result.or_else(|| child.get(keys::COMMAND_OUTPUT)).cloned();
        }
        _ => of_node(keys::RESPONSE_PREFIX).or_else(|| of_node(keys::OUTPUT_PREFIX)),
    };
    found.map(|value| Value::clone(value)).filter(|value| !is_blank(value))
}

fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.trim().is_empty(),
        Value::Array(items) => items.iter().all(is_blank),
        _ => false,
    }
}

fn shown_value(
    stage: &Stage,
    made_by: Option<String>,
    key: Option<String>,
    value: &Value,
) -> Result<ShownText, Failure> {
    let read = value_of(stage, value)?;
    let text = match &*read {
        Value::String(text) => text.clone(),
        other => serde_json::to_string_pretty(other).unwrap_or_else(|_| other.to_string()),
    };
    let blob = reference(&*stage.store, value);
    Ok(shown_text(made_by, key, &text, blob))
}

fn shown_text(
    stage: Option<String>,
    key: Option<String>,
    text: &str,
    blob: Option<BlobRef>,
) -> ShownText {
    let text = text.trim_end().trim_start_matches('\n');
    let beginning: String = text.chars().take(MAX_SHOWN).collect();
    let omitted = text[beginning.len()..].chars().count();
    let blob = blob.filter(|_| omitted > 0);
    ShownText { stage, key, text: beginning, omitted, blob }
}
