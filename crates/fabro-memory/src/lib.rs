//! What the LLM and human stages of a workflow have said: recent turns, a summary, and the block that tells them.

mod tool_context;

pub use tool_context::ToolContext;
