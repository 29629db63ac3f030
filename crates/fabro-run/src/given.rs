//! What people give a run: inputs, a goal, answers, messages, values of the context. All of it is
//! recorded, so it must hold no secrets.

use std::collections::BTreeMap;

use fabro_engine::checkpoint;
use fabro_events::{Event, EventBody};
use fabro_gate::QueueInterviewer;
use fabro_handlers::RunSettings;
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
    for (node, count) in given_before(events) {
        queue.skip(node, count);
    }
    Ok(Some(queue))
}

/// What to tell of lists that [`answers`] has nothing left of, because as many were given before: in a
/// file that is not the one `recorded` with the run, they were likely meant for what comes now. Nothing
/// of a file that is not valid.
pub fn used_up(settings: &RunSettings, recorded: &RunSettings, events: &[Event]) -> Vec<String> {
    if settings.answers == recorded.answers {
        return Vec::new();
    }
    let text = settings.answers.as_deref().unwrap_or("{}");
    // That it is not valid is told where the answers are taken.
    let lists: BTreeMap<String, Vec<Value>> = serde_json::from_str(text).unwrap_or_default();
    let told = |(node, given): (&str, usize)| {
        let listed = lists.get(node)?.len();
        (1..=given).contains(&listed).then(|| {
            let given = match given {
                1 => "1 answer was".to_owned(),
                more => format!("{more} answers were"),
            };
            format!(
                "`{node}`: {given} given before, the file has {listed}: list them from the run's beginning"
            )
        })
    };
    given_before(events).into_iter().filter_map(told).collect()
}

/// How many prepared answers each gate has had.
fn given_before(events: &[Event]) -> BTreeMap<&str, usize> {
    let mut given = BTreeMap::new();
    for event in checkpoint::effective(events) {
        if let EventBody::GateAnswered { source, .. } = &event.entry.body
            && source == "answers"
        {
            *given.entry(event.entry.node_id.as_deref().unwrap_or_default()).or_default() += 1;
        }
    }
    given
}

fn check_answers(settings: &RunSettings, redactor: &Redactor) -> Result<(), SetupError> {
    let Some(text) = &settings.answers else { return Ok(()) };
    // Without escapes that hide something.
    let plain = serde_json::from_str::<Value>(text).map(|answers| answers.to_string());
    check_given(redactor, "the file of answers", plain.as_deref().unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use fabro_events::Entry;
    use fabro_types::RunId;

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
    fn lists_that_were_used_up_are_told() {
        let answered = |(seq, (node, source)): (u64, (&str, &str))| {
            let body = EventBody::GateAnswered {
                selected: "Y".into(),
                label: "Yes".into(),
                text: None,
                source: source.into(),
            };
            let entry = Entry { node_id: Some(node.into()), visit: Some(1), ..Entry::new(body) };
            Event { run_id: RunId::from_parts(0, 1), seq, ts_ms: 0, entry }
        };
        let given = [("a", "answers"), ("b", "answers"), ("b", "answers"), ("c", "cli")];
        let events: Vec<Event> = (1..).zip(given).map(answered).collect();
        let told = |file: &str| used_up(&settings(file), &settings("{}"), &events).join("\n");
        assert_eq!(
            told(r#"{"a": ["Y"], "b": ["N"], "c": ["N"], "d": ["Y"]}"#),
            "`a`: 1 answer was given before, the file has 1: list them from the run's beginning\n\
             `b`: 2 answers were given before, the file has 1: list them from the run's beginning"
        );
        for file in [r#"{"a": ["Y", "N"], "b": []}"#, "{}", "{"] {
            assert_eq!(told(file), "");
        }
        let own = settings(r#"{"a": ["Y"]}"#);
        assert_eq!(used_up(&own, &own, &events), [""; 0]);
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
