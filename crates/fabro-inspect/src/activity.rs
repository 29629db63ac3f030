//! What running stages do at present.

use std::collections::BTreeMap;

use fabro_events::{Event, EventBody};
use fabro_types::{NodeKind, one_line};

use crate::StageKey;

/// The longest name of a tool, in characters.
const NAME: usize = 60;

/// What a running stage does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity {
    /// A sentence's end: `waits for the model`.
    pub what: String,
    /// Since when, in milliseconds since 1970.
    pub since_ms: i64,
}

/// The same of all stages that have started and not ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Activities {
    of: BTreeMap<StageKey, Doing>,
}

#[derive(Clone, Debug)]
struct Doing {
    activity: Activity,
    /// The calls of tools that have not ended, with the tools' names.
    tools: BTreeMap<String, String>,
}

const MODEL: &str = "waits for the model";

impl Activities {
    pub(crate) fn of(&self, key: &StageKey) -> Option<Activity> {
        self.of.get(key).map(|doing| doing.activity.clone())
    }

    pub(crate) fn apply(&mut self, event: &Event) {
        let Some(key) = StageKey::of(event) else { return };
        if let EventBody::StageStarted { handler, .. } = &event.entry.body {
            let what = match handler {
                NodeKind::Command => "runs its script",
                NodeKind::Human => "asks",
                NodeKind::Wait => "waits",
                kind if kind.is_llm() => MODEL,
                _ => "runs",
            };
            let activity = Activity { what: what.to_owned(), since_ms: event.ts_ms };
            self.of.insert(key, Doing { activity, tools: BTreeMap::new() });
            return;
        }
        let Some(doing) = self.of.get_mut(&key) else { return };
        let what = match &event.entry.body {
            EventBody::StageCompleted(_) | EventBody::StageFailed(_) => {
                self.of.remove(&key);
                return;
            }
            EventBody::StageRetrying { attempt, .. } => {
                doing.tools.clear();
                format!("attempt {attempt} failed: waits to retry")
            }
            EventBody::GateAsked { .. } => "waits for an answer".to_owned(),
            EventBody::AgentToolStarted { tool, call_id, .. } => {
                doing.tools.insert(call_id.clone(), one_line(tool, NAME));
                doing.tools_or_model()
            }
            EventBody::AgentToolCompleted(end) => {
                doing.tools.remove(&end.call_id);
                doing.tools_or_model()
            }
            EventBody::AgentMessage { role, .. } if role == "assistant" => {
                "takes the model's answer".to_owned()
            }
            EventBody::AgentCompactionStarted { .. } => "summarizes its conversation".to_owned(),
            EventBody::AgentMessage { .. } | EventBody::AgentCompactionCompleted(_) => {
                doing.tools_or_model()
            }
            _ => return,
        };
        doing.activity = Activity { what, since_ms: event.ts_ms };
    }
}

impl Doing {
    fn tools_or_model(&self) -> String {
        if self.tools.is_empty() {
            return MODEL.to_owned();
        }
        let names: Vec<&str> = self.tools.values().map(String::as_str).collect();
        format!("runs {}", names.join(", "))
    }
}
