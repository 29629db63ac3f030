//! The tools of an agent: files, search, shell, web, workflow context; arguments checked, output bounded.

mod tool;

pub use fabro_memory::ToolContext;
pub use tool::{Call, Output, Tool};
