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
    /// When the attempt began, or begins, that this is part of, in milliseconds since 1970. The timeout of a stage is
    /// that of an attempt.
    pub attempt_ms: i64,
    /// The number of the attempt that begins at `attempt_ms`, from 2, while the stage waits for it.
    pub next_attempt: Option<u32>,
}

impl Activity {
    /// The same at this time, in milliseconds since 1970. The log has no event for the begin of another attempt: after
    /// its delay, the stage no longer waits for it.
    #[must_use]
    pub fn at(&self, now_ms: i64) -> Self {
        match self.next_attempt {
            Some(attempt) if now_ms >= self.attempt_ms => Self {
                what: format!("runs attempt {attempt}"),
                since_ms: self.attempt_ms,
                attempt_ms: self.attempt_ms,
                next_attempt: None,
            },
            _ => self.clone(),
        }
    }
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
            let activity = Activity {
                what: what.to_owned(),
                since_ms: event.ts_ms,
                attempt_ms: event.ts_ms,
                next_attempt: None,
            };
            self.of.insert(key, Doing { activity, tools: BTreeMap::new() });
            return;
        }
        let Some(doing) = self.of.get_mut(&key) else { return };
        let mut attempt_ms = doing.activity.attempt_ms;
        let mut next_attempt = None;
        let what = match &event.entry.body {
            EventBody::StageCompleted(_) | EventBody::StageFailed(_) => {
                self.of.remove(&key);
                return;
            }
            EventBody::StageRetrying { attempt, delay_ms, .. } => {
                doing.tools.clear();
                let delay_ms = i64::try_from(*delay_ms).unwrap_or(i64::MAX);
                attempt_ms = event.ts_ms.saturating_add(delay_ms);
                next_attempt = Some(attempt.saturating_add(1));
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
        doing.activity = Activity { what, since_ms: event.ts_ms, attempt_ms, next_attempt };
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

#[cfg(test)]
mod tests {
    use fabro_events::Entry;
    use fabro_types::{Failure, FailureClass, Fidelity, RunId};

    use super::*;

    #[test]
    fn a_stage_waits_for_its_next_attempt_until_that_begins() {
        let event = |ts_ms, body| {
            let entry = Entry { node_id: Some("a".into()), visit: Some(1), ..Entry::new(body) };
            Event { run_id: RunId::from_parts(1, 1), seq: 1, ts_ms, entry }
        };
        let mut activities = Activities::default();
        let handler = NodeKind::Command;
        activities.apply(&event(
            1_000,
            EventBody::StageStarted {
                rank: 1,
                handler,
                fidelity: Fidelity::Compact,
                thread_id: None,
            },
        ));
        let key = StageKey { branch: None, node: "a".into(), visit: 1 };
        let shown = |activities: &Activities, now_ms| {
            let it = activities.of(&key).unwrap().at(now_ms);
            (it.what, it.since_ms, it.attempt_ms, it.next_attempt)
        };
        let script = "runs its script".to_owned();
        assert_eq!(shown(&activities, 9_000), (script, 1_000, 1_000, None));
        let failure = Failure::new(FailureClass::Deterministic, "no");
        let retrying = EventBody::StageRetrying { attempt: 1, delay_ms: 500, failure, usage: None };
        activities.apply(&event(2_000, retrying));
        let waits = "attempt 1 failed: waits to retry".to_owned();
        assert_eq!(shown(&activities, 2_499), (waits, 2_000, 2_500, Some(2)));
        assert_eq!(shown(&activities, 2_500), ("runs attempt 2".to_owned(), 2_500, 2_500, None));
    }
}
