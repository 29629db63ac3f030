//! `apply_patch`

mod lines;
mod parse;
mod tool;

pub use parse::{Change, Hunk, Line, Patch, PatchError};
pub(crate) use tool::apply_patch;
