//! What a stage makes of its agent's answer: validated output, directives, context keys.

use std::path::Path;
use std::sync::Arc;

use fabro_context::keys;
use fabro_engine::Stage;
use fabro_graph::NodeKind;
use fabro_redact::Redactor;
use fabro_routing::{Checked, Expected, Schema, check, feedback};
use fabro_types::{Failure, FailureClass, Outcome};
use serde_json::Value;

use crate::common::preview;
use crate::directives;
use crate::files::{AgentStatus, text_of_file};

/// The largest file of an agent that directives are looked for in.
const SOURCE_BYTES: u64 = 1 << 20;

/// How often an answer that does not hold is sent back, unless the node says.
const REPAIRS: u32 = 2;

/// What the answer of a node has to be.
pub(crate) enum Output {
    /// Anything.
    Free,
    /// An object of directives.
    Routing,
    /// JSON that matches a schema.
    Custom(Box<Schema>),
}

/// An answer that was looked at.
pub(super) enum Verdict {
    /// It is what it has to be. For a custom schema, with the value.
    Holds(Option<Value>),
    /// It is not; the agent is told why.
    Repair(String),
}

impl Output {
    /// What the stage's node asks for. A schema that was valid when the run was created is so now.
    pub(super) fn of(stage: &Stage) -> Result<Self, Failure> {
        match stage.node().attrs.text("output_schema").map(str::trim) {
            None | Some("") => Ok(Self::Free),
            Some("routing") => Ok(Self::Routing),
            Some(schema) => match Schema::compile(schema) {
                Ok(schema) => Ok(Self::Custom(Box::new(schema))),
                Err(error) => {
                    let message = format!("output_schema: {error}");
                    Err(Failure::new(FailureClass::Structural, message))
                }
            },
        }
    }

    /// The schema that a provider can be told.
    pub(super) fn schema(&self) -> Option<&Value> {
        match self {
            Self::Custom(schema) => Some(schema.json()),
            Self::Free | Self::Routing => None,
        }
    }

    /// Looks at an answer, and for routing at the other places where directives may be.
    pub(super) fn verdict(&self, source: Source<'_>, text: &str) -> Verdict {
        let expected = match self {
            Self::Free => return Verdict::Holds(None),
            Self::Routing => Expected::Routing,
            Self::Custom(schema) => Expected::Schema(schema),
        };
        let mut checked = check(text, expected);
        if matches!((&checked, self), (Checked::Missing, Self::Routing)) {
            if let Some(Err(feedback)) = source.known().and_then(|known| known()) {
                return Verdict::Repair(feedback);
            }
            // The next source counts only where the one before has nothing at all.
            let mut others = source.others().map(|text| check(&text, Expected::Routing));
            if let Some(found) = others.find(|it| !matches!(it, Checked::Missing)) {
                checked = found;
            }
        }
        match (checked, self) {
            (Checked::Valid(value), Self::Custom(_)) => Verdict::Holds(Some(value)),
            (Checked::Valid(_), _) => Verdict::Holds(None),
            (checked, _) => {
                let redactor = &source.reading.redactor;
                Verdict::Repair(redactor.redact(&feedback(&checked, expected)).into_owned())
            }
        }
    }
}

/// How often an answer of the stage's node is sent back: `output_retries`.
pub(super) fn repairs(stage: &Stage) -> u32 {
    let set = stage.node().attrs.int("output_retries");
    set.map_or(REPAIRS, |set| u32::try_from(set.max(0)).unwrap_or(u32::MAX))
}

/// How a stage fails whose answer never held.
pub(super) fn invalid(repairs: u32) -> Failure {
    let message = format!("output schema validation failed after {repairs} repair attempt(s)");
    Failure { terminal: true, ..Failure::new(FailureClass::Deterministic, message) }
}

/// The keys that every answer of a model writes.
pub(crate) fn response_outcome(node: &str, text: &str) -> Outcome {
    Outcome::succeeded()
        .with_update(format!("{}{node}", keys::RESPONSE_PREFIX), text)
        .with_update(keys::LAST_RESPONSE, preview(text))
}

/// Where directives may be, besides the answer.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) stage: &'a Stage,
    pub(super) status: &'a AgentStatus,
    /// The last file that the agent touched.
    pub(super) last_file: Option<&'a str>,
    pub(super) reading: &'a Reading,
}

/// How the files of agents are read.
#[derive(Clone)]
pub(super) struct Reading {
    /// What is read is recorded, without the secrets in it.
    pub(super) redactor: Redactor,
    /// What is known to have been in them; they are not looked at then.
    pub(super) known: Option<Known>,
}

/// Gives the text with directives that was in them, or what the agent was told of one that does not
/// hold.
pub(super) type Known = Arc<dyn Fn() -> Option<Result<String, String>> + Send + Sync>;

/// What a stage came to by its answer.
pub(super) async fn outcome(
    source: Source<'_>,
    text: &str,
    value: Option<Value>,
    output: &Output,
) -> Outcome {
    let stage = source.stage;
    let node = &stage.at.node;
    let mut outcome = response_outcome(node, text);
    if let (Output::Custom(_), Some(value)) = (output, value) {
        return outcome.with_update(format!("{}{node}", keys::OUTPUT_PREFIX), value);
    }
    let redactor = &source.reading.redactor;
    let source = source.of_directives(text);
    directives::apply(&mut outcome, stage, redactor, source.as_deref().unwrap_or(text)).await;
    outcome
}

impl<'a> Source<'a> {
    /// The text with the directives when the answer has none.
    fn of_directives(self, response: &str) -> Option<String> {
        if fabro_routing::extract(response).is_some() {
            return None;
        }
        self.others().find(|text| fabro_routing::extract(text).is_some())
    }

    /// An agent's `status.json` in the working directory, then the last file it touched.
    fn others(self) -> impl Iterator<Item = String> {
        let texts = match self.known() {
            Some(known) => [known().and_then(Result::ok), None],
            None if self.is_agent() => self.files(),
            None => [None, None],
        };
        let redactor = &self.reading.redactor;
        texts.into_iter().flatten().map(|text| redactor.redact(&text).into_owned())
    }

    fn files(self) -> [Option<String>; 2] {
        let last = self.last_file.filter(|file| *file != AgentStatus::NAME);
        let work_dir = Path::new(&self.stage.run.work_dir);
        let last = last.and_then(|file| text_of_file(&work_dir.join(file), SOURCE_BYTES));
        [self.status.text(SOURCE_BYTES), last]
    }

    fn known(self) -> Option<&'a Known> {
        self.reading.known.as_ref().filter(|_| self.is_agent())
    }

    fn is_agent(self) -> bool {
        self.stage.node().kind == NodeKind::Agent
    }
}
