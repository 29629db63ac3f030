//! The user message.

use std::borrow::Cow;

use fabro_tokens::CountTokens;

use crate::memory::cut::cut;

/// The most tokens of a memory block.
pub const MEMORY_TOKENS: usize = 2_000;
/// The most tokens of the retrieval results.
pub const RAG_TOKENS: usize = 2_000;
/// The most tokens of the instructions of tools.
pub const TOOL_INSTRUCTION_TOKENS: usize = 1_000;

/// The parts of a user message. Empty ones are omitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocks<'a> {
    /// The preamble, with a ceiling of its own.
    pub preamble: &'a str,
    /// See [`Memory::block`](crate::memory::Memory::block).
    pub memory: &'a str,
    /// The results of retrieval.
    pub rag: &'a str,
    /// Instructions for tools.
    pub tool_instructions: &'a str,
    /// The previous stage's message, in a conversation of agents.
    pub partner: &'a str,
    /// The prompt of the node.
    pub prompt: &'a str,
}

/// The user message: preamble, memory, retrieval results, instructions for tools, the partner's
/// message, and the prompt, separated by empty lines.
///
/// The second to the fourth are truncated at [`MEMORY_TOKENS`], [`RAG_TOKENS`] and
/// [`TOOL_INSTRUCTION_TOKENS`], with a note. Preamble and prompt are not changed: alone they are
/// `{preamble}\n\n{prompt}`, and a prompt alone is itself.
pub fn assemble(blocks: &Blocks<'_>, counter: &dyn CountTokens) -> String {
    let capped = |text: &str, limit| Cow::Owned(cut(text.trim(), limit, counter));
    let partner = match blocks.partner.trim() {
        "" => String::new(),
        message => format!("Partner just said: {message}"),
    };
    let before = [
        Cow::Borrowed(blocks.preamble),
        capped(blocks.memory, MEMORY_TOKENS),
        capped(blocks.rag, RAG_TOKENS),
        capped(blocks.tool_instructions, TOOL_INSTRUCTION_TOKENS),
        Cow::Owned(partner),
    ];
    let mut message = String::new();
    for block in before.iter().filter(|block| !block.trim().is_empty()) {
        message.push_str(block);
        message.push_str("\n\n");
    }
    message.push_str(blocks.prompt);
    message
}
