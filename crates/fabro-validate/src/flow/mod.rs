//! Where a run can go, and what the stages before have written by then.

mod graph;
mod keys;
mod misspelled;
mod nearest;
mod reach;

pub(crate) use graph::Flow;
pub(crate) use keys::{Need, Writer, need};
pub(crate) use misspelled::Mentions;
pub(crate) use nearest::{Found, Nearest};
pub(crate) use reach::{Read, unmet};
