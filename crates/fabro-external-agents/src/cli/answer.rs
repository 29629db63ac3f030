use fabro_types::{FailureClass, Usage};
use serde_json::Value;

use crate::cli::{CliAgent, claude, codex, gemini};
use crate::lines::{LONGEST, Lines};
use crate::{Progress, error};

/// What a program has said so far.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) text: Option<String>,
    pub(super) usage: Option<Usage>,
    pub(super) session_id: Option<String>,
    pub(super) model: Option<String>,
    pub(super) error: Option<(FailureClass, String)>,
    /// An error that may still be overcome.
    pub(super) trouble: Option<(Option<FailureClass>, String)>,
}

impl Answer {
    pub(super) fn fail(&mut self, class: Option<FailureClass>, message: &str) {
        let class = class.or(self.trouble.as_ref().and_then(|(class, _)| *class));
        self.error = Some((class.unwrap_or(FailureClass::Deterministic), message.to_owned()));
    }

    /// Takes it that what went wrong last was not overcome.
    pub(super) fn give_up(&mut self) {
        if let (None, Some((class, message))) = (&self.error, self.trouble.take()) {
            self.fail(class, &message);
        }
    }
}

/// Listens to the stdout of a program.
pub(super) struct Hearing<'a> {
    agent: CliAgent,
    on_event: &'a (dyn Fn(Progress) + Send + Sync),
    lines: Lines,
    whole: Vec<u8>,
    answer: Answer,
}

impl<'a> Hearing<'a> {
    pub(super) fn new(agent: CliAgent, on_event: &'a (dyn Fn(Progress) + Send + Sync)) -> Self {
        let (lines, answer) = <(Lines, Answer)>::default();
        Self { agent, on_event, lines, whole: Vec::new(), answer }
    }

    pub(super) fn hear(&mut self, bytes: &[u8]) {
        let Self { agent, on_event, lines, whole, answer } = self;
        let read = match agent {
            CliAgent::Claude => claude::read,
            CliAgent::Codex => codex::read,
            CliAgent::Gemini => {
                let room = LONGEST - whole.len();
                whole.extend_from_slice(&bytes[..bytes.len().min(room)]);
                on_event(Progress::Activity);
                return;
            }
        };
        lines.push(bytes, |line| one(line, read, answer, *on_event));
    }

    pub(super) fn answer(mut self, stderr: &str) -> Answer {
        let Self { agent, on_event, lines, whole, answer } = &mut self;
        match agent {
            CliAgent::Claude => lines.finish(|line| one(line, claude::read, answer, *on_event)),
            CliAgent::Codex => lines.finish(|line| one(line, codex::read, answer, *on_event)),
            CliAgent::Gemini => gemini::read(&String::from_utf8_lossy(whole), stderr, answer),
        }
        self.answer
    }
}

type Read = fn(&Value, &mut Answer, &dyn Fn(Progress));

fn one(line: &[u8], read: Read, answer: &mut Answer, on_event: &(dyn Fn(Progress) + Send + Sync)) {
    match serde_json::from_slice::<Value>(line) {
        Ok(event) if event.is_object() => read(&event, answer, &|progress| on_event(progress)),
        // A warning among the JSON is nothing to stumble over.
        _ => on_event(Progress::Activity),
    }
}

/// The class that an object states in its `type`, `code`, `kind` or `status`.
pub(super) fn stated(error: &Value) -> Option<FailureClass> {
    ["type", "code", "kind", "status"].iter().find_map(|key| error::class_of(error.get(key)?))
}

pub(super) fn number(object: &Value, key: &str) -> u64 {
    object[key].as_u64().unwrap_or_default()
}
