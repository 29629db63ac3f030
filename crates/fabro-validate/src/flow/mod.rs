//! Where a run can go, and what the stages before have written by then.

mod graph;
mod keys;
mod misspelled;
mod nearest;
mod reach;
mod writer;

pub(crate) use graph::Flow;
pub(crate) use keys::need;
pub(crate) use misspelled::Mentions;
pub(crate) use nearest::{Found, Nearest};
pub(crate) use reach::{Read, unmet};
pub(crate) use writer::{Need, Writer};
