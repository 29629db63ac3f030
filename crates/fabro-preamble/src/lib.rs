//! The preamble of a prompt: what happened in earlier stages, within a guaranteed token ceiling.
//!
//! A [`Preamble`] collects the goal, the completed stages and the context of a run, and renders the
//! text that precedes a stage's own prompt, separated by an empty line: the text has no line end at
//! its end, and is empty when there is nothing to report.
//!
//! ```
//! use fabro_preamble::{Detail, Preamble, Stage};
//! use fabro_tokens::CharsPerFour;
//! use fabro_types::{Fidelity, Status};
//!
//! let detail = Detail::command("cargo test", "41 passed, 1 failed\n", "", 101);
//! let preamble = Preamble::new("Add a /health endpoint")
//!     .stage(Stage { detail, ..Stage::new("test", Status::Failed) })
//!     .context("tests_passed", false)
//!     .fidelity(Fidelity::SummaryMedium)
//!     .render(&CharsPerFour);
//! # assert_eq!(preamble, "Goal: Add a /health endpoint\n\n## Completed stages\n- **test**: fail
//! #   - Stdout:\n    ```\n    41 passed, 1 failed\n    ```\n\n## Context\n- tests_passed: false");
//! println!("{preamble}\n\nFix the failing test.");
//! ```
//!
//! [`Detail::llm`] and [`Detail::human`] make the stages of models and people.
//!
//! The ceiling of a fidelity holds for the whole text, as the given token counter counts, and only it
//! cuts, apart from the number of lines of a command's output. When not everything fits, the longest
//! fields (outputs, answers, context values, the text of a parent workflow) are cut first, to one
//! common length; when little would be left of each, the oldest stages are omitted, with their
//! number. The goal is cut last. A note has the size of what is cut and, with
//! [`Preamble::save_with`], the path of a file that holds all of it. The work is proportional to the
//! ceiling: lazy stages and context values ([`Preamble::earlier_stages`], [`Preamble::more_context`])
//! are read only while there is room.
//!
//! Limits: ids are truncated at 128 characters, keys at 200; control characters are shown as
//! `U+FFFD`.

mod context;
mod fit;
pub mod memory;
mod render;
mod stage;
mod text;
mod tokens;

use std::sync::Arc;

pub use context::shows_key;
use fabro_tokens::CountTokens;
use fabro_types::{Fidelity, Status};
use serde_json::Value;

/// The builder of a preamble: what it shows, and with how much detail.
pub struct Preamble<'a> {
    goal: &'a str,
    run_id: Option<String>,
    parent: Option<&'a str>,
    /// Oldest first.
    stages: Vec<Stage>,
    earlier_count: usize,
    earlier: Box<dyn Iterator<Item = Stage> + 'a>,
    context: Vec<(String, Shown)>,
    more_context: Box<dyn Iterator<Item = (String, Shown)> + 'a>,
    fidelity: Fidelity,
    limits: Limits,
    save: Option<Box<fit::SaveValue<'a>>>,
}

impl<'a> Preamble<'a> {
    /// A preamble with the goal of the run, empty when there is none; compact by default.
    pub fn new(goal: &'a str) -> Self {
        Self {
            goal,
            run_id: None,
            parent: None,
            stages: Vec::new(),
            earlier_count: 0,
            earlier: Box::new(std::iter::empty()),
            context: Vec::new(),
            more_context: Box::new(std::iter::empty()),
            fidelity: Fidelity::Compact,
            limits: Limits::default(),
            save: None,
        }
    }

    /// The id of the run, shown under `truncate`.
    #[must_use]
    pub fn run_id(mut self, id: impl Into<String>) -> Self {
        self.run_id = Some(id.into());
        self
    }

    /// The preamble of the parent run of a sub-workflow.
    #[must_use]
    pub fn parent(mut self, preamble: Option<&'a str>) -> Self {
        self.parent = preamble;
        self
    }

    /// Adds a completed stage, after those added before.
    #[must_use]
    pub fn stage(mut self, stage: Stage) -> Self {
        self.stages.push(stage);
        self
    }

    /// The stages before those added with [`stage`](Self::stage): how many there are, and an iterator
    /// over them, newest first, that is read only while there is room.
    #[must_use]
    pub fn earlier_stages(
        mut self,
        count: usize,
        newest_first: impl Iterator<Item = Stage> + 'a,
    ) -> Self {
        self.earlier_count = count;
        self.earlier = Box::new(newest_first);
        self
    }

    /// Adds a context value. Keys that are not for preambles (see [`shows_key`]) are omitted.
    #[must_use]
    pub fn context(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.context.push((key.into(), Shown::Value(Arc::new(value.into()))));
        self
    }

    /// Further context values, read only while there is room.
    #[must_use]
    pub fn more_context(mut self, values: impl Iterator<Item = (String, Shown)> + 'a) -> Self {
        self.more_context = Box::new(values);
        self
    }

    /// How much detail is shown.
    #[must_use]
    pub fn fidelity(mut self, fidelity: Fidelity) -> Self {
        self.fidelity = fidelity;
        self
    }

    /// The token ceilings.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// For a reader who can open files: `save` stores a value that is cut, and returns the path of
    /// its file. Without it the notes have the size alone.
    #[must_use]
    pub fn save_with(mut self, save: impl Fn(&Value) -> Option<String> + 'a) -> Self {
        self.save = Some(Box::new(save));
        self
    }

    /// The text of the preamble, within the ceiling of its fidelity and without a line end at its end;
    /// empty under [`Fidelity::Full`].
    pub fn render(self, counter: &dyn CountTokens) -> String {
        render::render(self, counter)
    }
}

/// The branches of a fan-out as Markdown sections, in at most `limit` tokens: what a model that
/// chooses among them reads. `save` is that of [`Preamble::save_with`].
pub fn branch_sections(
    branches: &[Branch],
    fidelity: Fidelity,
    limit: usize,
    counter: &dyn CountTokens,
    save: &dyn Fn(&Value) -> Option<String>,
) -> String {
    render::render_branches(branches, fidelity, limit, counter, save)
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
    /// Its status.
    pub status: Status,
    /// The outcome word of the workflow's own that replaces the status.
    pub word: Option<String>,
    /// What its handler did.
    pub detail: Detail,
    /// Notes.
    pub notes: Option<String>,
    /// Why it failed.
    pub failure: Option<String>,
    /// The label of its preferred outgoing edge.
    pub preferred_label: Option<String>,
    /// Its suggested next nodes, most preferred first.
    pub suggested_next_ids: Vec<String>,
    /// The files it wrote.
    pub files: Vec<String>,
    /// The artifacts that were kept of it, as paths that can be opened.
    pub artifacts: Vec<String>,
}

impl Stage {
    /// The first visit of a node, without further details.
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
            artifacts: Vec::new(),
        }
    }
}

/// The work of a handler.
#[derive(Clone, Debug, PartialEq)]
pub enum Detail {
    /// A script ran.
    Command {
        /// Its text.
        script: String,
        /// Its standard output.
        stdout: Output,
        /// Its standard error.
        stderr: Output,
        /// Its exit code; absent when a signal ended it. Shown unless it is 0 or a failure is
        /// shown.
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
        /// The question.
        question: String,
        /// The label of the chosen option; empty when there is none.
        answer: String,
        /// The free text.
        text: Option<String>,
    },
    /// Parallel branches.
    Parallel {
        /// In branch order.
        branches: Vec<Branch>,
    },
    /// Anything else.
    Other,
}

impl Detail {
    /// A script with its output and exit code.
    pub fn command(
        script: impl Into<String>,
        stdout: impl Into<Output>,
        stderr: impl Into<Output>,
        exit_code: impl Into<Option<i32>>,
    ) -> Self {
        Self::Command {
            script: script.into(),
            stdout: stdout.into(),
            stderr: stderr.into(),
            exit_code: exit_code.into(),
        }
    }

    /// The answer of a model, with the tokens sent and received.
    pub fn llm(
        model: impl Into<String>,
        input_tokens: u64,
        output_tokens: u64,
        response: impl Into<Output>,
    ) -> Self {
        let model = model.into();
        Self::Llm { model, input_tokens, output_tokens, response: response.into() }
    }

    /// The answer of a person: the label of the chosen option.
    pub fn human(question: impl Into<String>, answer: impl Into<String>) -> Self {
        Self::Human { question: question.into(), answer: answer.into(), text: None }
    }
}

/// A branch of a fan-out.
#[derive(Clone, Debug, PartialEq)]
pub struct Branch {
    /// Its id.
    pub id: String,
    /// Its status.
    pub status: Status,
    /// Notes.
    pub notes: Option<String>,
    /// The output of its last stage.
    pub output: Output,
    /// Whether a command wrote it.
    pub is_command: bool,
}

/// An output that may be too large to show.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Output {
    /// The text, at most about 100 KB.
    Text(String),
    /// The path of the file that holds it.
    File(String),
    /// It is left out: a description of it.
    Omitted(String),
    /// There is none.
    #[default]
    None,
}

impl From<&str> for Output {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
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

#[cfg(test)]
mod tests;
