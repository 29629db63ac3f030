//! Commands that route: directives and validated values in the output of a script with an
//! `output_schema`.

use std::borrow::Cow;
use std::io;

use fabro_engine::{OutputSpec, Stage, keys};
use fabro_events::EventBody;
use fabro_redact::{Redactor, Unredacted};
use fabro_routing::{Checked, Directives, Expected, check_redacted};
use fabro_sandbox::{Captured, Finished};
use fabro_types::{Failure, FailureClass, Outcome};

use crate::common::{failed, tail};
use crate::llm::with_directives;

/// How many bytes at the end of a large output are searched for JSON.
const LARGEST_JSON: u64 = 4 << 20;

/// What the output of a command must match; `None` without an `output_schema`.
fn expected(stage: &Stage) -> Option<Expected<'_>> {
    match &stage.spec().command()?.output {
        OutputSpec::Free => None,
        OutputSpec::Routing => Some(Expected::Routing),
        OutputSpec::Schema(schema) => Some(Expected::Schema(schema)),
    }
}

/// The JSON in the output of a command that succeeded: the last object in stdout, or in stderr if
/// stdout has none. Output that does not match is a failure. Output of at most
/// [`CAPTURE_LIMIT`](fabro_sandbox::CAPTURE_LIMIT) bytes is checked before redaction. The parsed
/// value is redacted again, because a JSON escape may hide a secret in the text.
pub(crate) fn json_of(
    stage: &Stage,
    ended: &Finished,
    redactor: &Redactor,
) -> Option<Result<serde_json::Value, Failure>> {
    let expected = expected(stage)?;
    let redact = |text: &str| redactor.redact(text).into_owned();
    let [stdout, stderr] = &ended.unredacted;
    let outputs = [(&ended.stdout, stdout), (&ended.stderr, stderr)];
    let mut checked = outputs.into_iter().map(|(captured, unredacted)| {
        let text = text_to_check(captured, unredacted.as_ref())?;
        Ok(check_redacted(&text, expected, redact))
    });
    let is_decided = |it: &io::Result<Checked>| !matches!(it, Ok(Checked::Missing));
    let checked = match checked.find(is_decided).unwrap_or(Ok(Checked::Missing)) {
        Ok(checked) => checked,
        Err(error) => return Some(Err(failed(&error))),
    };
    let problem = match checked {
        Checked::Valid(mut value) => {
            redactor.redact_value(&mut value);
            return Some(Ok(value));
        }
        Checked::Missing => match expected {
            Expected::Routing => "it has no JSON object with a routing field".to_owned(),
            Expected::Schema(_) => "it has no JSON object".to_owned(),
        },
        checked @ Checked::Invalid { .. } => checked.problem(),
    };
    let message = format!("the output does not match output_schema: {problem}");
    Some(Err(Failure::new(FailureClass::Deterministic, message)))
}

fn text_to_check<'c>(
    captured: &'c Captured,
    unredacted: Option<&'c Unredacted>,
) -> io::Result<Cow<'c, str>> {
    Ok(match (captured, unredacted) {
        (_, Some(unredacted)) => unredacted.expose().into(),
        (Captured::Text(text), None) => text.as_str().into(),
        (Captured::Large { path, .. }, None) => tail(path, LARGEST_JSON)?.into(),
    })
}

/// Adds the JSON in a command's output to its outcome: its directives for `routing`, else
/// `output.NODE`.
pub(crate) fn steered(
    stage: &Stage,
    outcome: Outcome,
    json: serde_json::Value,
) -> (Outcome, Vec<EventBody>) {
    let node = &*stage.at.node;
    if !matches!(expected(stage), Some(Expected::Routing)) {
        return (outcome.with_update(format!("{}{node}", keys::OUTPUT_PREFIX), json), Vec::new());
    }
    // Unlike a model, a script is written by the author of the workflow, and may set `output.*`.
    let refusal = |key: &str| {
        let is_output = key.strip_prefix(keys::OUTPUT_PREFIX).is_some_and(|rest| !rest.is_empty());
        keys::refusal(key).filter(|_| !is_output)
    };
    let mut notices = Vec::new();
    let directives = Directives::read(json);
    let outcome = with_directives(outcome, (&stage.plan, node), directives, refusal, &mut notices);
    (outcome, notices)
}
