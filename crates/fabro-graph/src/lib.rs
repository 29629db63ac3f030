//! The `.fabro` workflow language: a spanned syntax tree, a typed workflow graph, and a formatter.
//!
//! A workflow is a graph in the DOT language of Graphviz, with a few liberties. [`parse`] reads a
//! file into an [`ast::Document`] that keeps comments and the place of everything, [`format()`]
//! prints it in canonical form, and [`Workflow`] gives it meaning: nodes with their handlers,
//! edges, attributes of the right type with defaults applied.
//!
//! ```
//! use fabro_graph::{NodeKind, Workflow};
//!
//! let source = r#"
//!     digraph Release {
//!         node [timeout=15m]
//!         start -> test -> exit
//!         test [shape=parallelogram, script="cargo test", max_retries=2]
//!     }
//! "#;
//! let workflow = Workflow::from_source("release", source).unwrap();
//! assert!(workflow.findings().is_empty());
//! let test = workflow.node(workflow.find("test").unwrap());
//! assert_eq!(test.kind, NodeKind::Command);
//! assert_eq!(test.attrs.int("max_retries"), Some(2));
//! assert_eq!(test.attrs.duration("timeout").unwrap().as_secs(), 900);
//! ```
//!
//! Files that attributes name with `@path` come through [`Sources`]; the crate itself reads
//! nothing. The whole language, with every attribute, is described in [`language`].
//!
//! # Limits
//!
//! A file has at most 16 MB ([`MAX_FILE_BYTES`]), a million names and values ([`MAX_PARTS`]) and 128 nested
//! subgraphs ([`MAX_NESTING`]); what groups of nodes and defaults multiply to is bounded too. Beyond that there is an error, never a panic or an
//! endless computation. Whether a workflow makes sense (has a start, reaches its exit, has
//! conditions that parse) is not checked here but in `fabro-validate`.

pub mod ast;
mod attrs;
mod dot;
mod examples;
mod files;
mod format;
mod grammar;
mod import;
mod includes;
mod join;
mod lower;
mod parse;
mod refusal;
mod renamed;
mod scan;
pub mod schema;
mod sources;
mod typing;
mod value;
mod workflow;

pub use ast::Document;
pub use attrs::{Attr, Attrs, Origin};
pub use fabro_types::{Diagnostic, NodeKind, Span};
pub use files::resolve_files;
pub use format::format;
pub use import::expand_imports;
pub use join::{Join, Meeting, join, meeting};
pub use parse::parse;
pub use scan::{MAX_FILE_BYTES, MAX_NESTING, MAX_PARTS};
pub use sources::{MemorySources, Sources, join_path};
pub use value::{TimeUnit, Value};
pub use workflow::{Cluster, Edge, EdgeIx, Node, NodeIx, Workflow};

#[doc = include_str!("../reference.md")]
pub mod language {}
