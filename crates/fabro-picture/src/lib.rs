//! Pictures of workflows: an SVG for a page, a report or a file, and an outline for a terminal.
//!
//! ```
//! use fabro_graph::Workflow;
//! use fabro_picture::{outline, svg};
//!
//! let source = "digraph { start -> test -> exit; test [shape=parallelogram, script=\"make\"] }";
//! let workflow = Workflow::from_source("demo", source).unwrap();
//! let picture = svg(&workflow, None).unwrap();
//! assert!(picture.starts_with("<svg ") && picture.contains("data-node=\"test\""));
//! assert!(outline(&workflow, None, 80).contains("test"));
//! ```
//!
//! The layout is that of dagre: layers from top to bottom, or from left to right with `rankdir=LR`.
//! The same workflow gives the same picture. An SVG needs nothing else: no script, no font, no other
//! file; it follows the reader's choice of a dark or light scheme. Texts of the workflow are escaped,
//! and characters that control text are left out. Each node is a group with its id in `data-node`.
//!
//! With [`Marks`] of a run, nodes have the color of their result, the number of visits and the time
//! they took, and edges how often they were taken.
//!
//! # Limits
//!
//! A picture has at most [`MAX_NODES`] nodes and [`MAX_EDGES`] edges: more could not be read, and the
//! layout would take minutes. An outline has no limit.

mod layout;
mod outline;
mod shape;
mod svg;
mod words;

use std::collections::BTreeMap;

pub use outline::outline;
pub use svg::{Picture, STYLE, svg};

/// The most nodes of a picture.
pub const MAX_NODES: usize = 1_000;

/// The most edges of a picture.
pub const MAX_EDGES: usize = 3_000;

/// What a run did with a workflow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The nodes that it came to, by id.
    pub nodes: BTreeMap<String, NodeMark>,
    /// How often an edge was taken, by its ends and its label as the workflow has it (`[R] Retry`). Nodes and edges
    /// that the workflow does not have are left out.
    pub edges: BTreeMap<(String, String, Option<String>), u32>,
}

/// What a run did at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeMark {
    /// How it ended the last time.
    pub result: NodeResult,
    /// How often it was visited.
    pub visits: u32,
    /// The time of all visits, in milliseconds.
    pub duration_ms: u64,
}

/// How a node ended the last time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeResult {
    /// It succeeded.
    Succeeded,
    /// It succeeded in part.
    PartiallySucceeded,
    /// It failed.
    Failed,
    /// It runs now.
    Running,
    /// It has begun, and its run waits: it is paused, or no process drives it.
    Waiting,
    /// It was skipped, or canceled with its branch.
    Skipped,
}

impl NodeResult {
    const ALL: [Self; 6] = [
        Self::Succeeded,
        Self::PartiallySucceeded,
        Self::Failed,
        Self::Running,
        Self::Waiting,
        Self::Skipped,
    ];

    /// As a class of the SVG, and a word of its legend.
    fn word(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::PartiallySucceeded => "partial",
            Self::Failed => "failed",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Skipped => "skipped",
        }
    }

    fn sign(self) -> char {
        match self {
            Self::Succeeded => '✓',
            Self::PartiallySucceeded => '~',
            Self::Failed => '✗',
            Self::Running => '▶',
            Self::Waiting => '‖',
            Self::Skipped => '-',
        }
    }
}

/// A workflow that is too large for a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a picture has at most {MAX_NODES} nodes and {MAX_EDGES} edges, and this workflow has {nodes} and {edges}"
)]
pub struct TooLarge {
    /// Its nodes.
    pub nodes: usize,
    /// Its edges.
    pub edges: usize,
}

/// A time in its largest unit: `850ms`, `12s`, `3m`, `2h`.
fn time(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{}s", ms / 1_000),
        60_000..3_600_000 => format!("{}m", ms / 60_000),
        _ => format!("{}h", ms / 3_600_000),
    }
}

#[cfg(test)]
mod tests;
