//! The tools of an agent: files, searches, a shell, the context of its workflow.
//!
//! A [`Tool`] is something that a model may call; a [`ToolSet`] is what an agent has of them. The set
//! stands between the model and the tools: it checks arguments against the JSON Schema, refuses what
//! is not permitted, redacts secrets in outputs and cuts them to a size that fits into a
//! conversation. Nothing that a model writes is an error of the program: every call has an
//! [`Output`] for the model to read.
//!
//! ```
//! use std::sync::Arc;
//! use fabro_sandbox::MemoryFiles;
//! use fabro_tools::{ToolContext, ToolSet, file_tools};
//! use fabro_types::Permissions;
//! use serde_json::json;
//! use tokio_util::sync::CancellationToken;
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! let files = Arc::new(MemoryFiles::new([("src/lib.rs", "pub fn add() {}\n")]));
//! let tools = file_tools(files).into_iter().fold(ToolSet::new(), ToolSet::with);
//!
//! let context = ToolContext::default();
//! let cancel = CancellationToken::new();
//! let run = async |name, arguments| {
//!     tools.run(name, "call-1", &arguments, &context, &cancel, Permissions::ReadOnly).await
//! };
//! let read = run("read_file", json!({"file_path": "src/lib.rs"})).await;
//! assert_eq!(read.text, "     1\tpub fn add() {}\n");
//! assert_eq!(read.files_read, ["src/lib.rs"]);
//!
//! let refused = run("write_file", json!({"file_path": "x", "content": ""})).await;
//! assert!(refused.is_error && refused.text.contains("needs permissions \"read-write\""));
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! | made by | tools | permissions |
//! | --- | --- | --- |
//! | [`file_tools`] | `read_file` `list_dir` `glob` `grep` | read-only |
//! | | `write_file` `edit_file` `apply_patch` | read-write |
//! | [`get_workflow_context`] | of the same name | read-only |
//! | [`append_workflow_context`] | of the same name | read-write |
//! | [`Shell`] | `shell` | full |
//!
//! Tools that need no more than read-only change nothing, and may run at the same time. The others
//! have to run one after the other, in the order of the calls.
//!
//! When a call is canceled or dropped, its processes are killed and its searches stop. A file that is being written is written whole, or not at all.
//!
//! # Limits
//!
//! - Needs a tokio runtime with its I/O and time drivers; file tools use its blocking threads.
//! - File tools see what their [`Files`](fabro_sandbox::Files) let them see. They change files of up
//!   to 16 MiB, and only UTF-8 text in part; `read_file` shows text of any size, in parts. A search
//!   stops after a minute.
//! - Searches heed `.gitignore` and `.ignore` from the working directory down, not git's own settings
//!   and not what is above. They follow no links.
//! - `apply_patch` does not take patches of `diff`: hunks are found by their lines. It writes one file
//!   after the other and restores all when one cannot be written; after a crash in between some files
//!   are changed and others are not.
//! - `shell` is not confined, but for its environment.

mod call;
mod file_tool;
mod files;
mod limit;
#[cfg(feature = "mcp")]
pub mod mcp;
mod patch;
mod schema;
mod search;
mod set;
mod shell;
mod tool;
#[cfg(feature = "web")]
pub mod web;
mod workflow;

pub use fabro_preamble::memory::ToolContext;
pub use files::file_tools;
pub use limit::Limits;
pub use patch::{Change, Hunk, Line, Patch, PatchError};
pub use set::ToolSet;
pub use shell::Shell;
pub use tool::{Call, CallGuard, Output, Tool};
pub use workflow::{AppendError, WorkflowContext, append_workflow_context, get_workflow_context};
