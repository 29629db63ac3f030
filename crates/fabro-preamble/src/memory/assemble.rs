//! The message of the user.

use std::borrow::Cow;

use fabro_tokens::CountTokens;

use crate::memory::cut::cut;

/// The most tokens of a memory block.
pub const MEMORY_TOKENS: usize = 2_000;
/// The most tokens of a block of retrieved texts.
pub const RAG_TOKENS: usize = 2_000;
/// The most tokens of the instructions of tools.
pub const TOOL_INSTRUCTION_TOKENS: usize = 1_000;

/// What the message of a user is made of. A part that is blank is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocks<'a> {
    /// What happened before, with a ceiling of its own.
    pub preamble: &'a str,
    /// See [`Memory::block`](crate::memory::Memory::block).
    pub memory: &'a str,
    /// What was found in documents.
    pub rag: &'a str,
    /// How to use tools.
    pub tool_instructions: &'a str,
    /// What the stage before said, in a conversation of agents.
    pub partner: &'a str,
    /// What the node asks.
    pub prompt: &'a str,
}

/// The message of a user: preamble, memory, retrieved texts, instructions of tools, what the
/// partner said, and the prompt, with blank lines between them.
///
/// The second to the fourth are cut at [`MEMORY_TOKENS`], [`RAG_TOKENS`] and
/// [`TOOL_INSTRUCTION_TOKENS`], with a note. Preamble and prompt stand as they are: alone they are
/// `{preamble}\n\n{prompt}`, and a prompt alone is itself.
pub fn assemble(blocks: &Blocks<'_>, counter: &dyn CountTokens) -> String {
    let capped = |text: &str, limit| Cow::Owned(cut(text.trim(), limit, counter));
    let partner = match blocks.partner.trim() {
        "" => String::new(),
        said => format!("Partner just said: {said}"),
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
