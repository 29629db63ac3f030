//! The workflow memory: recent turns of LLM and human stages, a summary of older ones, and the block for a prompt.
//!
//! A [`Memory`] is folded from [`Turn`]s, one for each stage with a message of a model or a person. The
//! last [`RECENT_TURNS`] are kept as they are; the older ones become one line each in a summary. The
//! same turns always give the same memory.
//!
//! ```
//! use fabro_preamble::memory::{Blocks, Memory, Speaker, Turn, assemble};
//! use fabro_tokens::CharsPerFour;
//!
//! let memory = Memory::fold([
//!     Turn::new("draft", Speaker::Llm, "Here is the plan. It has two steps."),
//!     Turn::new("review", Speaker::Human, "Step two is missing a test."),
//! ]);
//! let message = assemble(
//!     &Blocks {
//!         preamble: "Goal: Add a /health endpoint",
//!         memory: &memory.block(&CharsPerFour, 2_000),
//!         partner: memory.partner().unwrap_or_default(),
//!         prompt: "Answer your partner.",
//!         ..Blocks::default()
//!     },
//!     &CharsPerFour,
//! );
//! assert_eq!(message, "\
//! Goal: Add a /health endpoint\n\n## Conversation so far (2 turns)
//!
//! [1] draft (llm): Here is the plan. It has two steps.
//!
//! [2] review (human): Step two is missing a test.
//!
//! Partner just said: Step two is missing a test.
//!
//! Answer your partner.");
//! ```
//!
//! [`assemble`] builds every user message; [`ToolContext`] is the same memory for tools.
//!
//! # Limits
//!
//! - The summary has at most 100 lines of at most 160 characters; older lines are dropped and
//!   counted. It is an excerpt: a summary by a model is set with [`Memory::with_summary`].
//! - A memory holds its recent turns whole, however long they are. Only the block is truncated.
//! - Preamble, partner and prompt are not truncated by [`assemble`].

mod assemble;
mod block;
mod cut;
mod summary;

pub use assemble::{Blocks, MEMORY_TOKENS, RAG_TOKENS, TOOL_INSTRUCTION_TOKENS, assemble};
use fabro_tokens::CountTokens;
use serde::{Deserialize, Serialize};
use summary::Summary;

/// How many turns a memory keeps whole.
pub const RECENT_TURNS: usize = 12;

/// How many turns a memory contains, recent or summarized.
pub const REMEMBERED_TURNS: usize = RECENT_TURNS + summary::LINES;

/// The message of one stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// The id of the stage's node.
    pub node: String,
    /// The author.
    pub kind: Speaker,
    /// The last message of the stage.
    pub text: String,
    /// Which turn of the workflow it is, from 1; [`Memory::push`] sets it.
    #[serde(default)]
    pub round: u64,
}

impl Turn {
    /// A turn whose round [`Memory::push`] sets.
    pub fn new(node: impl Into<String>, kind: Speaker, text: impl Into<String>) -> Self {
        Self { node: node.into(), kind, text: text.into(), round: 0 }
    }
}

/// The author of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Speaker {
    /// A model.
    Llm,
    /// A person.
    Human,
}

/// The turns of a workflow so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The oldest first.
    recent: Vec<Turn>,
    summary: Summary,
    /// Replaces `summary`.
    model_summary: Option<String>,
    round: u64,
}

impl Memory {
    /// The memory of these turns, the oldest first.
    pub fn fold(turns: impl IntoIterator<Item = Turn>) -> Self {
        let mut memory = Self::default();
        for turn in turns {
            memory.push(turn);
        }
        memory
    }

    /// A memory that knows only the number of earlier turns. After [`REMEMBERED_TURNS`] more it is the
    /// same as with all of them.
    pub fn after(earlier: u64) -> Self {
        Self { summary: Summary::after(earlier), round: earlier, ..Self::default() }
    }

    /// Adds a turn. The cost does not grow with the number of earlier turns.
    pub fn push(&mut self, turn: Turn) {
        self.round += 1;
        if self.recent.len() == RECENT_TURNS {
            let oldest = self.recent.remove(0);
            self.summary.add(&oldest);
        }
        self.recent.push(Turn { round: self.round, ..turn });
    }

    /// Sets the summary of the turns before the recent ones, written by a model for instance. An empty
    /// one leaves the summary as it is.
    pub fn with_summary(mut self, summary: impl Into<String>) -> Self {
        let summary = summary.into().trim().to_owned();
        self.model_summary = Some(summary).filter(|summary| !summary.is_empty());
        self
    }

    /// The summary of the turns before the recent ones, a line each, without a line end at its end;
    /// empty when there are none.
    pub fn summary(&self) -> String {
        self.model_summary.clone().unwrap_or_else(|| self.summary.text())
    }

    /// The last [`RECENT_TURNS`] turns, the oldest first.
    pub fn recent_turns(&self) -> &[Turn] {
        &self.recent
    }

    /// How many turns there were.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// The text of the last turn.
    pub fn partner(&self) -> Option<&str> {
        self.recent.last().map(|turn| &*turn.text)
    }

    /// The retrieval query before a stage with this prompt: the last message, or the prompt when there
    /// is none, and the last line of the summary.
    pub fn query(&self, prompt: &str) -> String {
        let message = self.partner().filter(|text| !text.trim().is_empty()).unwrap_or(prompt);
        match self.summary().lines().last() {
            Some(line) => format!("{message}\n{line}"),
            None => message.to_owned(),
        }
    }

    /// Summary and recent turns as Markdown of at most `max_tokens`; empty when there are none.
    ///
    /// When not all of it fits, the longest turns are cut first, to one common length, with a note.
    /// When little would be left of each, the oldest become lines of the summary; at last its oldest
    /// lines are omitted, and a note has their number.
    pub fn block(&self, counter: &dyn CountTokens, max_tokens: usize) -> String {
        block::render(self, counter, max_tokens)
    }
}

/// The memory of a workflow as tools read it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolContext {
    /// The summary of the turns before the recent ones; may be empty.
    pub workflow_summary: String,
    /// The recent turns as `node (kind): text`, the oldest first.
    pub recent_turns: Vec<String>,
    /// How many turns there were.
    pub round: u64,
}

impl From<&Memory> for ToolContext {
    fn from(memory: &Memory) -> Self {
        let turn = |turn: &Turn| format!("{} ({}): {}", turn.node, turn.kind, turn.text);
        Self {
            workflow_summary: memory.summary(),
            recent_turns: memory.recent.iter().map(turn).collect(),
            round: memory.round,
        }
    }
}

#[cfg(test)]
mod tests;
