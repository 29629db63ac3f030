//! The tools of an agent: files, search, shell, web, workflow context; arguments checked, output bounded.

mod call;
mod files;
mod limit;
mod patch;
mod schema;
mod search;
mod set;
mod tool;

pub use fabro_memory::ToolContext;
pub use files::file_tools;
pub use limit::Limits;
pub use patch::{Change, Hunk, Line, Patch, PatchError};
pub use set::ToolSet;
pub use tool::{Call, Output, Tool};
