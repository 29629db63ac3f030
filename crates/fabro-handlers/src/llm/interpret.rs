//! What a reply means for its stage: the validation against `output_schema`, the routing directives, the context
//! updates. Nothing here does I/O.

use fabro_engine::{OutputSpec, Plan, keys};
use fabro_events::EventBody;
use fabro_redact::{Redactor, Unredacted};
use fabro_routing::{
    Checked, Directives, DirectivesObject, Expected, OutcomeWord, Unreadable, Warning, check,
    check_redacted, directives_object, feedback,
};
use fabro_types::{Failure, FailureClass, Outcome, Status, Usage};
use serde_json::Value;

use crate::common::preview;
use crate::files::AgentStatus;

/// The answer to a stage's request.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    /// The answer, redacted.
    pub text: String,
    /// The answer before redaction, if redaction changed it; `None` for a recorded answer. Only for
    /// validation against a schema.
    pub unredacted: Option<Unredacted>,
    /// The answer is not whole: it reached its limit of tokens again and again.
    pub is_cut_off: bool,
    /// The answer equals the previous one, which was sent back for correction.
    pub is_unchanged: bool,
    /// What the stage has used so far.
    pub usage: Usage,
    /// The files that were written, changed or removed.
    pub files_touched: Vec<String>,
    /// The files in which an agent may put its directives instead.
    pub files: AgentFiles,
}

/// The contents of the files in which an agent may put its directives when its answer has none.
#[derive(Clone, Debug)]
pub enum AgentFiles {
    /// The redacted contents, in the order in which they count: `status.json`, then the file that
    /// the agent touched last.
    Contents(Vec<AgentFile>),
    /// Only known from a record: the correction that was sent because of their contents.
    Rejected(String),
}

/// A file of an agent that may contain directives.
#[derive(Clone, Debug, Default)]
pub struct AgentFile {
    /// Its name, for messages.
    pub name: String,
    /// Its redacted text.
    pub text: String,
}

impl AgentFile {
    /// Whether it is there for directives, or the whole of it looks like an object. Braces inside other files, such
    /// as source code, need not be JSON.
    fn is_for_directives(&self) -> bool {
        self.name == AgentStatus::NAME || self.text.trim_start().starts_with(['{', '`'])
    }
}

impl Default for AgentFiles {
    fn default() -> Self {
        Self::Contents(Vec::new())
    }
}

/// What a reply means for its stage.
#[derive(Debug)]
pub enum Interpretation {
    /// It is what the stage requires.
    Valid {
        /// The outcome of the stage, without usage and files.
        outcome: Box<Outcome>,
        /// What was ignored, for the log.
        notices: Vec<EventBody>,
    },
    /// It is not.
    Invalid {
        /// The correction that asks the model again.
        feedback: String,
        /// What is wrong, in one line for people.
        problem: String,
    },
}

/// Prefix of a correction after an unchanged answer.
const UNCHANGED: &str = "Your answer has not changed since the last correction.\n";

/// Interprets the reply of a model as the outcome of a node's stage: checks it against what the
/// node requires, and reads its directives. The text is scanned once, and the directives are
/// redacted once.
pub fn interpret(plan: &Plan, node: &str, reply: &Reply, redactor: &Redactor) -> Interpretation {
    let outcome = response_outcome(node, &reply.text);
    let invalid = |checked: &Checked, expected| {
        let unchanged = reply.is_unchanged && reply.contents().is_empty();
        let unchanged = if unchanged { UNCHANGED } else { "" };
        let feedback = format!("{unchanged}{}", feedback(checked, expected));
        Interpretation::Invalid {
            feedback: redactor.redact(&feedback).into_owned(),
            problem: redactor.redact(&checked.problem()).into_owned(),
        }
    };
    let llm = plan.find(node).and_then(|spec| spec.llm());
    let mut notices = Vec::new();
    let found = match llm.map_or(&OutputSpec::Free, |llm| &llm.output) {
        OutputSpec::Free if reply.is_cut_off => {
            let outcome = Box::new(cut_off(outcome));
            return Interpretation::Valid { outcome, notices: Vec::new() };
        }
        OutputSpec::Free => match reply.directives(&mut notices) {
            Ok(found) => found,
            Err(message) => {
                let outcome = Box::new(unreadable(outcome, message));
                return Interpretation::Valid { outcome, notices };
            }
        },
        OutputSpec::Routing => match reply.routing() {
            Ok(Checked::Valid(object)) => Some(object),
            Ok(checked) => return invalid(&checked, Expected::Routing),
            Err(feedback) => {
                let problem = "the directives in its files are not valid".to_owned();
                return Interpretation::Invalid { feedback, problem };
            }
        },
        OutputSpec::Schema(schema) => {
            let expected = Expected::Schema(schema);
            let redact = |text: &str| redactor.redact(text).into_owned();
            return match check_redacted(reply.checked_text(), expected, redact) {
                Checked::Valid(mut value) => {
                    redactor.redact_value(&mut value);
                    let key = format!("{}{node}", keys::OUTPUT_PREFIX);
                    let outcome = Box::new(outcome.with_update(key, value));
                    Interpretation::Valid { outcome, notices: Vec::new() }
                }
                checked => invalid(&checked, expected),
            };
        }
    };
    let Some(mut object) = found else {
        let outcome = if reply.text.trim().is_empty() { empty(outcome) } else { outcome };
        return Interpretation::Valid { outcome: Box::new(outcome), notices };
    };
    redactor.redact_value(&mut object);
    let (directives, warnings) = Directives::read(object);
    let read = (directives, warnings);
    let outcome = with_directives(outcome, (plan, node), read, keys::refusal, &mut notices);
    Interpretation::Valid { outcome: Box::new(outcome), notices }
}

impl Reply {
    /// The text to validate against a schema. Only the redacted text of a recorded answer is known:
    /// if it does not match, the model is asked again.
    pub(super) fn checked_text(&self) -> &str {
        self.unredacted.as_ref().map_or(&self.text, |unredacted| unredacted.expose())
    }

    fn contents(&self) -> &[AgentFile] {
        match &self.files {
            AgentFiles::Contents(files) => files,
            AgentFiles::Rejected(_) => &[],
        }
    }

    /// Where directives may be. The next text counts only when the one before has none at all.
    fn texts(&self) -> impl Iterator<Item = &str> {
        let files = self.contents().iter().map(|file| file.text.as_str());
        std::iter::once(self.text.as_str()).chain(files)
    }

    /// The object with the directives. An object that does not parse is an error if it states an
    /// outcome, which is then unknown, and otherwise a notice.
    fn directives(&self, notices: &mut Vec<EventBody>) -> Result<Option<Value>, String> {
        let files = self.contents().iter().map(|file| {
            let mut found = directives_object(&file.text);
            found.unreadable = found.unreadable.filter(|_| file.is_for_directives());
            (&*file.name, found)
        });
        let answer = std::iter::once_with(|| ("the answer", directives_object(&self.text)));
        for (source, DirectivesObject { object, unreadable, overruled }) in answer.chain(files) {
            if let Some(line) = overruled {
                notices.push(warning(overruled_failure(source, line)));
            }
            let object = object.map(|(_, object)| object);
            let Some(unreadable) = unreadable else {
                if object.is_some() {
                    return Ok(object);
                }
                continue;
            };
            let message = unparsable(source, &unreadable);
            notices.push(warning(message.clone()));
            let is_failure = |object: &Value| {
                let (directives, _) = Directives::read(object.clone());
                directives.outcome == Some(OutcomeWord::Status(Status::Failed))
            };
            match object {
                object if unreadable.states_outcome => {
                    return object.filter(is_failure).map_or(Err(message), |it| Ok(Some(it)));
                }
                Some(object) => return Ok(Some(object)),
                None => {}
            }
        }
        Ok(None)
    }

    /// The routing object; an error is the correction that was recorded.
    fn routing(&self) -> Result<Checked, String> {
        let mut checked = self.texts().map(|text| check(text, Expected::Routing));
        match (checked.find(|checked| *checked != Checked::Missing), &self.files) {
            (Some(checked), _) => Ok(checked),
            (None, AgentFiles::Rejected(feedback)) => Err(feedback.clone()),
            (None, AgentFiles::Contents(_)) => Ok(Checked::Missing),
        }
    }
}

fn warning(message: String) -> EventBody {
    EventBody::AgentWarning { kind: "directive".to_owned(), message, window: None }
}

/// The message for a failure that the last object of a text does not repeat.
fn overruled_failure(source: &str, line: usize) -> String {
    format!(
        "line {line} of {source} states a failure, but a later object has no `outcome`: only the last one counts"
    )
}

/// The message for a directives object that does not parse, with line and column.
fn unparsable(source: &str, unreadable: &Unreadable) -> String {
    let Unreadable { states_outcome, line, column, message, .. } = unreadable;
    let what = if *states_outcome { "an outcome" } else { "directives" };
    format!(
        "{what} in {source} cannot be read: the JSON does not parse at line {line}, column {column}: {message}"
    )
}

/// Fails a stage whose stated outcome cannot be read.
fn unreadable(outcome: Outcome, message: String) -> Outcome {
    let failure = Failure::new(FailureClass::Deterministic, message);
    let details = "with output_schema=\"routing\" the model is asked to correct it".to_owned();
    let failure = Failure { stated: true, details: Some(details), ..failure };
    Outcome { status: Status::Failed, failure: Some(failure), ..outcome }
}

/// Applies directives to the outcome of a node of a plan. `refusal` returns why they may not write
/// a key.
pub(crate) fn with_directives(
    mut outcome: Outcome,
    (plan, node): (&Plan, &str),
    (mut directives, warnings): (Directives, Vec<Warning>),
    refusal: impl Fn(&str) -> Option<String>,
    notices: &mut Vec<EventBody>,
) -> Outcome {
    notices.extend(warnings.into_iter().map(|ignored| warning(ignored.message)));
    let updates = std::mem::take(&mut directives.context_updates);
    if directives.outcome.is_none() && directives.failure_reason.is_some() {
        let message = "`failure_reason` without an `outcome` is a note: the stage has not failed";
        notices.push(warning(message.to_owned()));
    }
    let takes = |word: &str| plan.node(node).is_some_and(|(ix, _)| plan.takes_word(ix, word));
    if let Err(word) = apply_directives(directives, &mut outcome, takes) {
        notices.push(warning(format!(
            "outcome `{word}` is not a status, and no edge asks for it: ignored"
        )));
    }
    if let Some(label) = outcome.preferred_label.as_deref().filter(|it| !it.trim().is_empty())
        && plan.node(node).is_some_and(|(ix, _)| plan.misses_labels(ix, label))
    {
        notices.push(warning(format!("no edge of `{node}` has the label `{label}`: ignored")));
    }
    for (key, value) in updates {
        match refusal(&key) {
            None => {
                outcome.context_updates.insert(key, value);
            }
            Some(reason) => notices.push(EventBody::ContextRefused { key, reason }),
        }
    }
    outcome
}

/// The keys that every answer of a model writes.
pub(super) fn response_outcome(node: &str, text: &str) -> Outcome {
    Outcome::succeeded()
        .with_update(format!("{}{node}", keys::RESPONSE_PREFIX), text)
        .with_update(keys::LAST_RESPONSE, preview(text))
}

/// The outcome of a stage whose answer is not whole: directives may be missing, or belong to what is
/// missing.
fn cut_off(outcome: Outcome) -> Outcome {
    let message = "the answer is still cut off after being continued 3 times";
    let failure = Failure::new(FailureClass::Deterministic, message);
    let details = Some("raise max_tokens, or ask for less".to_owned());
    Outcome { status: Status::Failed, failure: Some(Failure { details, ..failure }), ..outcome }
}

/// The outcome of a stage whose answer is empty, where no file of the agent has directives instead.
fn empty(outcome: Outcome) -> Outcome {
    let message = "the answer is empty: change the prompt, or choose another model";
    let failure = Failure::new(FailureClass::Deterministic, message);
    Outcome { status: Status::Failed, failure: Some(failure), ..outcome }
}

/// Interprets the reply in a dry run, which is made up: no requirement of the node applies to it.
pub fn interpret_simulated(node: &str, reply: &Reply) -> Interpretation {
    let outcome = Box::new(response_outcome(node, &reply.text));
    Interpretation::Valid { outcome, notices: Vec::new() }
}

/// The outcome of a stage whose answer was still invalid after this many corrections; `problem` says
/// what is wrong.
pub fn invalid_outcome(node: &str, reply: &Reply, corrections: u32, problem: String) -> Outcome {
    let message = format!("output schema validation failed after {corrections} repair attempt(s)");
    let failure = Failure::new(FailureClass::Deterministic, message);
    Outcome {
        usage: Some(reply.usage.clone()),
        files_touched: reply.files_touched.clone(),
        context_updates: response_outcome(node, &reply.text).context_updates,
        ..Outcome::failed(Failure { terminal: true, details: Some(problem), ..failure })
    }
}

/// Puts directives into the outcome of a stage, except the context updates. A failure that they state
/// is deterministic. The error is a custom word that `takes` rejects; the rest is applied.
fn apply_directives(
    directives: Directives,
    outcome: &mut Outcome,
    takes: impl FnOnce(&str) -> bool,
) -> Result<(), String> {
    let mut rejected = Ok(());
    match directives.outcome {
        Some(OutcomeWord::Custom(word)) if takes(&word) => outcome.word = Some(word),
        Some(OutcomeWord::Custom(word)) => match Status::parse_loosely(&word) {
            Some(status) => outcome.status = status,
            None => rejected = Err(word),
        },
        Some(OutcomeWord::Status(status)) => outcome.status = status,
        None => {}
    }
    if outcome.status == Status::Failed {
        let reason = directives.failure_reason;
        let reason = reason.unwrap_or_else(|| "the stage reported a failure".to_owned());
        let failure = Failure::new(FailureClass::Deterministic, reason);
        outcome.failure = Some(Failure { stated: true, ..failure });
    } else {
        outcome.notes = directives.failure_reason;
    }
    outcome.preferred_label = directives.preferred_next_label;
    outcome.suggested_next_ids = directives.suggested_next_ids;
    rejected
}

#[cfg(test)]
mod tests {
    use fabro_graph::Workflow;

    use super::*;

    #[test]
    fn directives_become_an_outcome() {
        let applied = |text: &str| {
            let mut outcome = Outcome::succeeded();
            let directives = fabro_routing::extract(text).unwrap().directives;
            let rejected = apply_directives(directives, &mut outcome, |word| word == "ship");
            (rejected, outcome)
        };
        let (rejected, outcome) = applied(
            r#"{"outcome": "ship", "preferred_next_label": "b", "suggested_next_ids": ["c"], "failure_reason": "late", "context_updates": {"a": 1}}"#,
        );
        let wanted = Outcome {
            word: Some("ship".to_owned()),
            notes: Some("late".to_owned()),
            preferred_label: Some("b".to_owned()),
            suggested_next_ids: vec!["c".to_owned()],
            ..Outcome::succeeded()
        };
        assert_eq!((rejected, outcome), (Ok(()), wanted));
        let (rejected, outcome) = applied(r#"{"outcome": "shrug", "preferred_next_label": "b"}"#);
        assert_eq!((rejected, outcome.word), (Err("shrug".to_owned()), None));
        assert_eq!(outcome.preferred_label.as_deref(), Some("b"));
        let failure = applied(r#"{"outcome": "fail"}"#).1.failure.unwrap();
        assert_eq!(
            (failure.message.as_str(), failure.stated),
            ("the stage reported a failure", true)
        );
    }

    /// What becomes of a reply by a node with these attributes.
    #[track_caller]
    fn check_reply(attrs: &str, text: &str, files: AgentFiles, expected: &str) {
        let source = format!("digraph {{ start -> a -> exit; a [prompt=x{attrs}] }}");
        let workflow = Workflow::from_source("test", &source).unwrap();
        let plan = Plan::compile(workflow).unwrap();
        let reply = Reply { text: text.to_owned(), files, ..Reply::default() };
        let seen = match interpret(&plan, "a", &reply, &Redactor::default()) {
            Interpretation::Valid { outcome, notices } => {
                let label = outcome.preferred_label.as_deref().unwrap_or("-");
                format!("{} {label}, {} notices", outcome.status.as_str(), notices.len())
            }
            Interpretation::Invalid { feedback, .. } => feedback.lines().next().unwrap().to_owned(),
        };
        assert_eq!(seen, expected, "{text}");
    }

    #[test]
    fn replies_are_read_without_io() {
        let none = AgentFiles::default;
        let file = |text: &str| {
            let name = "status.json".to_owned();
            AgentFiles::Contents(vec![AgentFile { name, text: text.to_owned() }])
        };
        let routing = ", output_schema=routing";
        let label = r#"{"preferred_next_label": "fix"}"#;
        check_reply("", "Done.", none(), "succeeded -, 0 notices");
        check_reply("", label, none(), "succeeded fix, 0 notices");
        check_reply("", "Done.", file(label), "succeeded fix, 0 notices");
        check_reply("", r#"{"outcome": "failed"}"#, file(label), "failed -, 0 notices");
        check_reply("", r#"{"outcome": "perhaps"}"#, none(), "succeeded -, 1 notices");
        let edges = r#"]; a -> b [label="Ship it"]; a -> c [label="[F] Fix"]; b -> exit; c -> exit; c [prompt=y"#;
        for (wanted, notices) in [("ship it", 0), ("f", 0), ("Hold", 1)] {
            let text = format!(r#"{{"preferred_next_label": "{wanted}"}}"#);
            check_reply(edges, &text, none(), &format!("succeeded {wanted}, {notices} notices"));
        }
        check_reply(
            "",
            r#"{"context_updates": {"internal.x": 1}}"#,
            none(),
            "succeeded -, 1 notices",
        );
        check_reply(routing, label, none(), "succeeded fix, 0 notices");
        check_reply(routing, "Done.", file(label), "succeeded fix, 0 notices");
        let missing = "Your answer has no JSON object with a routing field.";
        check_reply(routing, "Done.", none(), missing);
        check_reply(routing, "Done.", AgentFiles::Rejected("Again.".to_owned()), "Again.");
        let broken = r#"{"outcome": "failed",}"#;
        check_reply("", broken, none(), "failed -, 1 notices");
        check_reply(
            "",
            &format!(r#"{{"outcome": "succeeded"}} {broken}"#),
            none(),
            "failed -, 1 notices",
        );
        check_reply(
            "",
            &format!(r#"{{"outcome": "fail"}} {broken}"#),
            none(),
            "failed -, 1 notices",
        );
        check_reply("", &format!("{broken} {label}"), none(), "failed -, 1 notices");
        check_reply("", "{'outcome':'failed'}", none(), "failed -, 1 notices");
        check_reply(
            "",
            &format!(r#"{label} {{"suggested_next_ids": [a]}}"#),
            none(),
            "succeeded fix, 1 notices",
        );
        check_reply("", r#"{"suggested_next_ids": [a]}"#, file(label), "succeeded fix, 1 notices");
        check_reply("", broken, file(label), "failed -, 1 notices");
        check_reply("", "Done.", file(broken), "failed -, 1 notices");
        check_reply("", "Done.", file(&format!("result = {broken}")), "failed -, 1 notices");
        let code = AgentFile { name: "a.py".to_owned(), text: format!("result = {broken}") };
        check_reply("", "Done.", AgentFiles::Contents(vec![code]), "succeeded -, 0 notices");
        check_reply(routing, broken, none(), "The JSON in your answer is not valid:");
        check_reply("", " \n", none(), "failed -, 0 notices");
        check_reply("", "", file("Done."), "failed -, 0 notices");
        check_reply("", "", file(label), "succeeded fix, 0 notices");
        check_reply(routing, "", file(label), "succeeded fix, 0 notices");
        check_reply(routing, "", none(), missing);
        let schema = r#", output_schema="{\"required\":[\"n\"]}""#;
        check_reply(schema, r#"{"n": 1}"#, none(), "succeeded -, 0 notices");
        check_reply(schema, "{}", none(), "The JSON in your answer is not valid:");
    }

    /// Interprets an answer with a secret as the value of `k`, which has this schema.
    #[track_caller]
    fn check_secret(schema: &str, key: &str, expected: &str) {
        let schema = format!(r#"{{"properties": {{"k": {schema}}}, "maxProperties": 2}}"#);
        let attrs = format!(", output_schema={}", Value::from(schema));
        let source = format!("digraph {{ start -> a -> exit; a [prompt=x{attrs}] }}");
        let plan = Plan::compile(Workflow::from_source("test", &source).unwrap()).unwrap();
        let redactor = Redactor::new([("TOKEN", TOKEN)]);
        let text = format!(r#"{{"k": "{key}"}}"#);
        let reply = Reply {
            text: redactor.redact(&text).into_owned(),
            unredacted: Some(Unredacted::new(&*text)),
            ..Reply::default()
        };
        assert!(!reply.text.contains(key), "{reply:?}");
        let interpretation = interpret(&plan, "a", &reply, &redactor);
        assert!(!format!("{interpretation:?} {reply:?}").contains(key), "{interpretation:?}");
        let seen = match interpretation {
            Interpretation::Valid { outcome, .. } => {
                outcome.context_updates["output.a"].to_string()
            }
            Interpretation::Invalid { problem, .. } => problem,
        };
        assert_eq!(seen, expected);
    }

    const TOKEN: &str = "correct/horse~battery";

    #[test]
    fn a_schema_checks_an_answer_before_redaction() {
        let key = "AKIAIOSFODNN7EXAMPL3";
        let valid = r#"{"k":"[redacted]"}"#;
        check_secret(&format!(r#"{{"const": "{key}"}}"#), key, valid);
        check_secret(&format!(r#"{{"enum": ["a", "{key}"]}}"#), key, valid);
        check_secret(r#"{"pattern": "^AKIA[0-9A-Z]{16}$"}"#, key, valid);
        check_secret(r#"{"minLength": 20}"#, key, valid);
        let wrong = r#"/k: "[redacted]" was expected"#;
        check_secret(r#"{"const": "AKIAZZZZZZZZ7EXAMPL9"}"#, key, wrong);
        check_secret(r#"{"const": "[redacted]"}"#, key, wrong);
        check_secret(
            r#"{"const": "[redacted:TOKEN]"}"#,
            TOKEN,
            r#"/k: "[redacted:TOKEN]" was expected"#,
        );
        let too_long = r#"/k: "[redacted:TOKEN]" is longer than 5 characters"#;
        check_secret(r#"{"maxLength": 5}"#, TOKEN, too_long);
    }
}
