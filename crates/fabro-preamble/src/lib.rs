//! The preamble of a prompt: what happened in earlier stages, within a guaranteed token ceiling.
//!
//! [`render`] turns the goal, the completed stages and the context of a run into the text that
//! stands before a stage's own prompt. The two are joined as `{preamble}\n\n{prompt}`: the text
//! ends without a line end, and it is empty when there is nothing to say.
//!
//! ```
//! use fabro_preamble::{Detail, Input, Limits, Output, Stage, render};
//! use fabro_tokens::CharsPerFour;
//! use fabro_types::{Fidelity, Status};
//!
//! let test = Stage {
//!     detail: Detail::Command {
//!         script: "cargo test".into(),
//!         stdout: Output::Text("41 passed, 1 failed\n".into()),
//!         stderr: Output::None,
//!         exit_code: Some(101),
//!     },
//!     ..Stage::new("test", Status::Failed)
//! };
//! let input = Input {
//!     goal: "Add a /health endpoint",
//!     run_id: "01HF7YAT00000000000000001A",
//!     total_stages: 1,
//!     stages: &mut std::iter::once(test),
//!     context: &mut std::iter::empty(),
//!     parent: None,
//! };
//! let preamble = render(input, Fidelity::Compact, &Limits::default(), &CharsPerFour);
//! assert!(preamble.text.starts_with("Goal: Add a /health endpoint\n"));
//! assert!(preamble.text.ends_with("\
//! - **test**: fail
//!   - Script: `cargo test`
//!   - Stdout:
//!     ```
//!     41 passed, 1 failed
//!     ```
//!   - Stderr: (empty)
//!   - Exit code: 101"));
//! ```
//!
//! Stages are handed over newest first, and told oldest first.
//!
//! The ceiling of a fidelity holds for the whole text, whatever is in it, as the given counter
//! counts. The goal is told first of all and cut last. A parent's preamble may take a third of the
//! ceiling, the context a quarter, the stages the rest, newest first: one that does not fit, or
//! would take more than half of the ceiling, is told with less detail; what is left out is said
//! with its number. Work is in proportion to the ceiling: stages and context values are pulled
//! only while there is room.
//!
//! Limits: output lines are cut at 1,000 characters (2,000 under `summary:high`), context values
//! at 400; control characters are shown as `U+FFFD`.

mod budget;
mod context;
pub mod memory;
mod render;
mod stage;
mod text;

use std::ops::Range;
use std::sync::Arc;

pub use context::shows_key;
use fabro_types::Status;
pub use render::render;
use serde_json::Value;

/// What a preamble is made from.
pub struct Input<'a> {
    /// The goal of the run; blank when there is none.
    pub goal: &'a str,
    /// The id of the run, for `truncate`.
    pub run_id: &'a str,
    /// How many stages `stages` would yield if all were pulled.
    pub total_stages: usize,
    /// The completed stages, newest first, without start, exit and conditional nodes.
    pub stages: &'a mut dyn Iterator<Item = Stage>,
    /// The context in key order. Keys that are not for preambles (see [`shows_key`]) are left out
    /// here, so that it can be the whole context.
    pub context: &'a mut dyn Iterator<Item = (String, Shown)>,
    /// The preamble of the run that this one is a sub-workflow of.
    pub parent: Option<&'a str>,
}

/// A context value as a preamble shows it.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    /// The value itself.
    Value(Arc<Value>),
    /// The path of the file that holds a large one.
    File(String),
}

/// A completed stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// The id of its node.
    pub node: String,
    /// Which visit of the node, from 1.
    pub visit: u32,
    /// How it ended.
    pub status: Status,
    /// A word of the workflow's own that it ended with instead of a status.
    pub word: Option<String>,
    /// What its handler did.
    pub detail: Detail,
    /// A remark.
    pub notes: Option<String>,
    /// Why it failed.
    pub failure: Option<String>,
    /// The label of the edge it asked for.
    pub preferred_label: Option<String>,
    /// The nodes it asked for, most wanted first.
    pub suggested_next_ids: Vec<String>,
    /// The files it wrote.
    pub files: Vec<String>,
}

impl Stage {
    /// The first visit of a node, with nothing else to tell.
    pub fn new(node: impl Into<String>, status: Status) -> Self {
        Self {
            node: node.into(),
            visit: 1,
            status,
            word: None,
            detail: Detail::Other,
            notes: None,
            failure: None,
            preferred_label: None,
            suggested_next_ids: Vec::new(),
            files: Vec::new(),
        }
    }
}

/// What a handler did.
#[derive(Clone, Debug, PartialEq)]
pub enum Detail {
    /// A script ran.
    Command {
        /// Its text.
        script: String,
        /// What it wrote to standard output.
        stdout: Output,
        /// What it wrote to standard error.
        stderr: Output,
        /// Its exit code; absent when a signal ended it. Shown unless it is 0 or a failure is
        /// told.
        exit_code: Option<i32>,
    },
    /// A model answered.
    Llm {
        /// Its name.
        model: String,
        /// Tokens sent.
        input_tokens: u64,
        /// Tokens received.
        output_tokens: u64,
        /// The answer.
        response: Output,
    },
    /// A person answered.
    Human {
        /// What was asked.
        question: String,
        /// The label of the option chosen; blank when there was none.
        answer: String,
        /// What was written freely.
        text: Option<String>,
    },
    /// Branches ran side by side.
    Parallel {
        /// In branch order.
        branches: Vec<Branch>,
    },
    /// Anything else.
    Other,
}

/// A branch of a fan-out.
#[derive(Clone, Debug, PartialEq)]
pub struct Branch {
    /// Its id.
    pub id: String,
    /// How it ended.
    pub status: Status,
    /// A remark.
    pub notes: Option<String>,
    /// What its last stage answered or printed.
    pub output: Output,
}

/// A text that may be too large to show.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Output {
    /// The text itself; callers pass up to 100 KB so.
    Text(String),
    /// The path of the file that holds it.
    File(String),
    /// There is none.
    #[default]
    None,
}

/// Ceilings in tokens. Those of `summary:medium` (1,500) and `summary:low` (600) are fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For `compact`, and for `truncate` so that a goal is the same under both; 8,000.
    pub compact: usize,
    /// For `summary:high`; 32,000.
    pub high: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { compact: 8_000, high: 32_000 }
    }
}

/// A rendered preamble.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preamble {
    /// The text, without a line end at its end.
    pub text: String,
    /// How many completed stages it leaves out.
    pub omitted_stages: usize,
    /// Whether the goal is not whole.
    pub goal_cut: bool,
    /// Where its parts came from, in order; only line ends are between them.
    pub parts: Vec<Part>,
}

/// A part of a preamble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it is, in bytes of the text.
    pub range: Range<usize>,
    /// What it tells.
    pub source: PartSource,
}

/// What a part of a preamble tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartSource {
    /// The preamble of the run above.
    Parent,
    /// The goal.
    Goal,
    /// The run's id.
    Run,
    /// A visit of a node.
    Stage {
        /// The node's id.
        node: String,
        /// Which visit, from 1.
        visit: u32,
    },
    /// A context value.
    Context {
        /// Its key.
        key: String,
    },
    /// A heading, or a word about what was left out.
    Frame,
}

#[cfg(test)]
mod tests;
