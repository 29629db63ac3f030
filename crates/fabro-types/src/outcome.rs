use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::{Display, EnumString, IntoStaticStr};

use crate::skip::is_default;
use crate::{Status, Usage};

/// Changes to the context: keys and their new values, in key order.
pub type ContextPatch = BTreeMap<String, Arc<Value>>;

/// Why something failed, decided where it failed and never guessed from the message.
/// Rules: `docs/workflow-language.md`, "Failures and retries".
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    Display,
    IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum FailureClass {
    /// A service failed: a rate limit, an overloaded server, a timeout.
    TransientInfra,
    /// The same input would fail again: an exit code, an invalid request.
    Deterministic,
    /// A quota, a token window or a spending limit is used up.
    BudgetExhausted,
    /// A loop ran more often than it may.
    CompilationLoop,
    /// A person, or the engine, canceled it.
    Canceled,
    /// The workflow itself cannot continue here.
    Structural,
}

impl FailureClass {
    /// The machine-read word.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A failure of a stage or a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Decides retries, restarts and the breaker.
    pub class: FailureClass,
    /// What happened, for people.
    pub message: String,
    /// What exactly is wrong, for people; no part of the message, of which the context has a copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<String>,
    /// Equal for failures that are the same one again; empty until the engine knows the node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub signature: String,
    /// The stage itself said that it failed (a directive); such a failure outlives `auto_status`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stated: bool,
    /// Never retried, not even when the node's policy allows it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub terminal: bool,
    /// How long the server asks to wait before a retry, in milliseconds (`Retry-After`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Present when no model or agent is available (a key is refused, a provider cannot be reached, a program
    /// is missing): what to do about it. That is no result of the stage, and the run pauses, unless
    /// the workflow handles it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    /// Data of the store that the stage needs is lost or damaged. That is no result of the stage: the
    /// driver ends, nothing is recorded, and the run can be resumed once the store is restored.
    #[serde(skip)]
    pub damage: bool,
}

/// The failure policy of a stage (`on_failure`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, EnumString)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum OnFailure {
    /// An unhandled failure ends the run.
    Stop,
    /// The failure takes no plain edge; without another edge it ends the run.
    Exit,
    /// The failure may take a plain edge, but stays unhandled.
    Route,
    /// Without an edge for the failure, the stage succeeds instead.
    Succeed,
    /// The failure is ignored: it may take a plain edge, and the run may succeed.
    Continue,
}

impl OnFailure {
    /// Whether the run may succeed despite the failure.
    pub fn allows_success(self) -> bool {
        matches!(self, Self::Succeed | Self::Continue)
    }
}

/// What follows when no model or agent is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, EnumString)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum OnUnavailable {
    /// The run pauses, and a resume retries.
    Pause,
    /// It is a failure of the stage like any other.
    Fail,
}

impl Failure {
    /// A failure of this class, without a signature yet.
    pub fn new(class: FailureClass, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
            details: None,
            signature: String::new(),
            stated: false,
            terminal: false,
            retry_after_ms: None,
            unavailable: None,
            damage: false,
        }
    }

    /// The same failure, because no model or agent is available; `remedy` is what to do.
    pub fn with_remedy(self, remedy: impl Into<String>) -> Self {
        Self { unavailable: Some(remedy.into()), ..self }
    }

    /// The message with the details.
    pub fn text(&self) -> Cow<'_, str> {
        match &self.details {
            Some(details) => Cow::Owned(format!("{}: {details}", self.message)),
            None => Cow::Borrowed(&self.message),
        }
    }

    /// The same failure, signed for a node.
    pub fn signed(mut self, node: &str) -> Self {
        self.signature = failure_signature(node, self.class, &self.message);
        self
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.class {
            // The default class of exit codes and stated failures adds no information.
            FailureClass::Deterministic => write!(f, "{}", self.text()),
            class => write!(f, "{} ({class})", self.text()),
        }
    }
}

/// `node|class|message`, the message lowercased, runs of hexadecimal digits (8 and more, with a
/// digit among them, or after `0x`) as `<hex>`, other digits as `<n>`, cut at 240 characters: two
/// failures that differ only in addresses, counts or times have one signature.
pub fn failure_signature(node: &str, class: FailureClass, message: &str) -> String {
    let lower = message.to_lowercase();
    let mut text = format!("{node}|{class}|");
    let mut rest = lower.as_str();
    let mut after_word = false;
    while let Some(first) = rest.chars().next() {
        // Looked for at the beginning of a word alone, so that no digit is looked at twice.
        let hex = if after_word { 0 } else { hex_length(rest) };
        if hex > 0 {
            text.push_str("<hex>");
            rest = &rest[hex..];
            after_word = true;
        } else if first.is_ascii_digit() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            text.push_str("<n>");
            rest = &rest[digits..];
            after_word = true;
        } else {
            text.push(first);
            rest = &rest[first.len_utf8()..];
            after_word = first.is_alphanumeric();
        }
    }
    text.chars().take(240).collect()
}

/// The length of the hexadecimal number that a word is, in bytes; 0 when it is none.
fn hex_length(text: &str) -> usize {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let prefix = text.len() - digits.len();
    let run = digits.bytes().take_while(u8::is_ascii_hexdigit).count();
    let (run, after) = digits.split_at(run);
    let has_digit = run.bytes().any(|byte| byte.is_ascii_digit());
    let all_digits = run.bytes().all(|byte| byte.is_ascii_digit());
    let is_number =
        if prefix > 0 { !run.is_empty() } else { run.len() >= 8 && has_digit && !all_digits };
    let is_word = !after.starts_with(char::is_alphanumeric);
    if is_number && is_word { prefix + run.len() } else { 0 }
}

/// The result of a stage: the one record that context, transitions and reports are made from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// How it ended.
    pub status: Status,
    /// A word of the workflow's own that `outcome` reads as instead of the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub word: Option<String>,
    /// The label of the edge the stage asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred_label: Option<String>,
    /// Nodes the stage asks for, most wanted first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggested_next_ids: Vec<String>,
    /// What later stages see.
    #[serde(default, skip_serializing_if = "ContextPatch::is_empty")]
    pub context_updates: ContextPatch,
    /// Why it failed; present when and only when `status` is `failed`, or when a failure was
    /// turned into a partial success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// A remark for people and preambles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// Model usage; absent for stages without a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Files the stage wrote, relative to the working directory, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files_touched: Vec<String>,
    /// Captured artifacts, as paths below the run directory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<String>,
    /// Those of the stages of its branches or of its sub-workflow, as paths below the run directory; those of
    /// another run begin with `../` and its id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inner_artifacts: Vec<String>,
    /// The commit of the run's git worktree that has the files as the stage left them; absent when it
    /// changed none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_sha: Option<String>,
    /// The files before and after the stage, in a run that works in a git work tree of the user; absent when it
    /// changed none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trees: Option<StageTrees>,
    /// How long the last attempt took, in milliseconds.
    #[serde(default)]
    pub duration_ms: u64,
}

/// The files of a git work tree before and after a stage: trees in the repository that the run keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageTrees {
    /// The id of the tree before it.
    pub before: String,
    /// The id of the tree after it.
    pub after: String,
    /// Other stages ran at the same time: what they changed is in the trees too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    /// Files that changed and are not in the trees, with the reason; after the first ten, how many more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

impl Outcome {
    /// A success with nothing else.
    pub fn succeeded() -> Self {
        Self::default()
    }

    /// A failure for this reason.
    pub fn failed(failure: Failure) -> Self {
        Self { status: Status::Failed, failure: Some(failure), ..Self::default() }
    }

    /// The same outcome with one more context update.
    pub fn with_update(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.context_updates.insert(key.into(), Arc::new(value.into()));
        self
    }

    /// What `outcome` reads as in conditions: the custom word, else the status.
    pub fn reads_as(&self) -> &str {
        self.word.as_deref().unwrap_or(self.status.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_forget_numbers() {
        let sign = |message| failure_signature("test", FailureClass::Deterministic, message);
        insta::assert_snapshot!(sign("Exit code 101"), @"test|deterministic|exit code <n>");
        insta::assert_snapshot!(sign("at 0xDEADbeef, commit 1a2b3c4d5e, 250ms"), @"test|deterministic|at <hex>, commit <hex>, <n>ms");
        insta::assert_snapshot!(sign("feedback 12345678 décor"), @"test|deterministic|feedback <n> décor");
        insta::assert_snapshot!(sign("0x1g 0x 0xff 12345678a deadbeefcafe 1a2b3c4dz"), @"test|deterministic|<n>x<n>g <n>x <hex> <hex> deadbeefcafe <n>a<n>b<n>c<n>dz");
        assert_eq!(sign(&"x".repeat(9999)).chars().count(), 240);
    }

    #[test]
    fn long_words_of_hexadecimal_letters_are_read_once() {
        for word in ["a", "a1", "0x"] {
            let text = word.repeat(1_000_000) + "z";
            assert_eq!(failure_signature("", FailureClass::Canceled, &text).chars().count(), 240);
        }
    }

    #[test]
    fn a_plain_success_is_short() {
        insta::assert_snapshot!(serde_json::to_string(&Outcome::succeeded().with_update("a", 1)).unwrap(), @r#"{"status":"succeeded","context_updates":{"a":1},"duration_ms":0}"#);
    }
}
