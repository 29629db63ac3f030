//! What the reply of a hook means.

use std::borrow::Cow;

use fabro_config::{Hook, OnHookError};
use fabro_redact::Redactor;
use serde_json::Value;

/// The longest reason, in characters.
const REASON: usize = 2_000;

/// What a hook gave.
pub(crate) enum Reply {
    /// A command ended by itself with this code.
    Exit { code: i32, stdout: String, stderr: String },
    /// A server accepted the event.
    Body(String),
    /// It was canceled.
    Canceled,
}

impl Reply {
    pub(crate) fn redacted(self, redactor: &Redactor) -> Self {
        let redact = |text: String| match redactor.redact(&text) {
            Cow::Borrowed(_) => text,
            Cow::Owned(redacted) => redacted,
        };
        match self {
            Self::Exit { code, stdout, stderr } => {
                Self::Exit { code, stdout: redact(stdout), stderr: redact(stderr) }
            }
            Self::Body(body) => Self::Body(redact(body)),
            Self::Canceled => Self::Canceled,
        }
    }
}

/// Whether what follows may happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It may.
    Proceed,
    /// It may not; why.
    Block(String),
}

/// The result of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether what follows may happen. A hook that does not block lets everything happen.
    pub decision: Decision,
    /// What went wrong with the hook itself.
    pub failure: Option<String>,
}

/// The answer of a hook that gave this reply, or failed.
pub(crate) fn judge(hook: &Hook, reply: Result<Reply, String>) -> Answer {
    let decided = reply.and_then(|reply| decision(hook, reply));
    match decided {
        Ok(decision) => Answer { decision, failure: None },
        Err(failure) => {
            let decision = if hook.blocking && hook.on_error == OnHookError::Block {
                Decision::Block(format!("it failed: {failure}"))
            } else {
                Decision::Proceed
            };
            Answer { decision, failure: Some(failure) }
        }
    }
}

fn decision(hook: &Hook, reply: Reply) -> Result<Decision, String> {
    let text = match reply {
        Reply::Canceled => return Ok(Decision::Proceed),
        Reply::Exit { code: 0, stdout, .. } => stdout,
        Reply::Exit { code: 2, stdout, stderr } if hook.blocking => {
            let reason = if stderr.trim().is_empty() { stdout } else { stderr };
            return Ok(Decision::Block(reason_of(&reason)));
        }
        Reply::Exit { code, stderr, .. } => {
            let last = stderr.trim().lines().last().unwrap_or_default();
            let gap = if last.is_empty() { "" } else { ": " };
            return Err(format!("exit code {code}{gap}{}", cut(last, 300)));
        }
        Reply::Body(body) => body,
    };
    if !hook.blocking {
        return Ok(Decision::Proceed);
    }
    match object(&text)? {
        Some(answer) => of_object(&answer),
        None => Ok(Decision::Proceed),
    }
}

/// The JSON object that a hook answered with: all of its output, or the last line. Other text is no
/// answer.
fn object(text: &str) -> Result<Option<Value>, String> {
    let text = text.trim();
    if let Ok(value) = serde_json::from_str::<Value>(text) {
        return Ok(Some(value).filter(Value::is_object));
    }
    let last = text.lines().last().unwrap_or_default().trim();
    if !last.starts_with('{') && !text.starts_with('{') {
        return Ok(None);
    }
    match serde_json::from_str::<Value>(last) {
        Ok(value) => Ok(Some(value)),
        Err(error) => Err(format!("its answer is not valid JSON ({error})")),
    }
}

fn of_object(answer: &Value) -> Result<Decision, String> {
    let reason = answer.get("reason").and_then(Value::as_str).unwrap_or_default();
    match answer.get("decision") {
        None | Some(Value::Null) => Ok(Decision::Proceed),
        Some(Value::String(word)) if word == "proceed" => Ok(Decision::Proceed),
        Some(Value::String(word)) if word == "block" => Ok(Decision::Block(reason_of(reason))),
        Some(other) => {
            let other = cut(&other.to_string(), 100);
            Err(format!("its decision is {other}, which is neither \"proceed\" nor \"block\""))
        }
    }
}

fn reason_of(text: &str) -> String {
    let text = text.trim();
    if text.is_empty() { "it gave no reason".to_owned() } else { cut(text, REASON) }
}

fn cut(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
