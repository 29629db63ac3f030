//! What people give a run: inputs, a goal, answers, messages, values of the context. All of it is
//! recorded, so it must hold no secrets.

use fabro_engine::checkpoint;
use fabro_events::{Event, EventBody};
use fabro_handlers::RunSettings;
use fabro_human::QueueInterviewer;
use fabro_redact::Redactor;
use serde_json::{Map, Value};

use crate::agents::variable;
use crate::{SetupError, recorded_redactor};

/// Refuses a text that holds a value that `redactor` knows. `what` names it: `the answer`.
pub fn check_given(redactor: &Redactor, what: &str, text: &str) -> Result<(), SetupError> {
    let Some(name) = redactor.value_in(text) else { return Ok(()) };
    let message =
        format!("{what} holds the value of the secret `{name}`, and would be kept with the run");
    let fix = if variable(name).is_some() {
        format!("leave it out: scripts have the environment, and can read ${name} there")
    } else {
        "leave it out: what needs it has it from the settings".to_owned()
    };
    Err(SetupError::new(message, fix))
}

/// The same for values by name. `all` names them together: `the inputs`.
pub fn check_values<'v>(
    redactor: &Redactor,
    all: &str,
    values: impl IntoIterator<Item = (&'v String, &'v Value)>,
) -> Result<(), SetupError> {
    for (name, value) in values {
        check_given(redactor, &format!("a name in {all}"), name)?;
        check_given(redactor, &format!("`{name}` of {all}"), &value.to_string())?;
    }
    Ok(())
}

/// The same for what is kept with a run from its beginning: inputs, the goal and prepared answers.
pub fn check_kept(
    settings: &RunSettings,
    inputs: &Map<String, Value>,
    goal: &str,
) -> Result<(), SetupError> {
    let redactor = recorded_redactor(settings, false);
    check_values(&redactor, "the inputs", inputs)?;
    check_given(&redactor, "the goal", goal)?;
    check_answers(settings, &redactor)
}

/// The answers to gates that were prepared, without those that an earlier driver has given by the
/// log of the run. A rewind takes back what was given after its stage.
pub fn answers(
    settings: &RunSettings,
    events: &[Event],
) -> Result<Option<QueueInterviewer>, SetupError> {
    let Some(text) = &settings.answers else { return Ok(None) };
    let queue = QueueInterviewer::from_json(text).map_err(|error| {
        SetupError::new(format!("the answers are not valid: {error}"), "mend the file")
    })?;
    for event in checkpoint::effective(events) {
        if let EventBody::GateAnswered { source, .. } = &event.entry.body
            && source == "answers"
        {
            queue.skip(event.entry.node_id.as_deref().unwrap_or_default(), 1);
        }
    }
    Ok(Some(queue))
}

fn check_answers(settings: &RunSettings, redactor: &Redactor) -> Result<(), SetupError> {
    let Some(text) = &settings.answers else { return Ok(()) };
    // Without escapes that hide something.
    let plain = serde_json::from_str::<Value>(text).map(|answers| answers.to_string());
    check_given(redactor, "the file of answers", plain.as_deref().unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(answers: &str) -> RunSettings {
        let env = [("A_TOKEN".to_owned(), "hunter2\"hunter2".to_owned())].into();
        RunSettings { env, answers: Some(answers.to_owned()), ..RunSettings::default() }
    }

    #[test]
    fn what_is_kept_from_the_beginning_holds_no_secret() {
        let check = |input: (&str, Value), goal: &str, answers: &str| {
            let inputs = [(input.0.to_owned(), input.1)].into_iter().collect();
            let checked = check_kept(&settings(answers), &inputs, goal);
            checked.map_err(|error| error.to_string())
        };
        let of = |what: &str| {
            Err(format!(
                "{what} holds the value of the secret `A_TOKEN`, and would be kept with the run"
            ))
        };
        let none = || ("t", Value::Null);
        let plain = ("t", "as $A_TOKEN [redacted:A_TOKEN]".into());
        assert_eq!(check(plain, "hunter2", "{}"), Ok(()));
        let list = serde_json::json!([{"a": "[redacted:A_TOKEN] hunter2\"hunter2"}]);
        assert_eq!(check(("t", list), "", "{}"), of("`t` of the inputs"));
        assert_eq!(check(("hunter2\"hunter2", Value::Null), "", "{}"), of("a name in the inputs"));
        assert_eq!(check(none(), "with hunter2\"hunter2", "{}"), of("the goal"));
        let answers = r#"{"ask": ["it is \u0068unter2\"hunter2"]}"#;
        assert_eq!(check(none(), "", answers), of("the file of answers"));
        // That it is no JSON is told where it is read.
        assert_eq!(check(none(), "", "hunter2\"hunter2"), of("the file of answers"));
    }

    #[test]
    fn short_and_common_values_refuse_nothing() {
        let env = [("DEBUG_TOKEN", "1"), ("DB_PASSWORD", "postgres"), ("AUTH", "disabled")];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let settings = RunSettings { env, ..RunSettings::default() };
        let inputs = serde_json::json!({"port": 11, "db": "postgres", "tls": "disabled"});
        let inputs = inputs.as_object().unwrap();
        assert_eq!(check_kept(&settings, inputs, "1 postgres, tls disabled"), Ok(()));
    }
}
