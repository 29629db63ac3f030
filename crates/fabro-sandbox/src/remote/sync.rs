//! A copy of a working directory on the remote side, kept equal to it.

pub(super) mod list;
pub(super) mod pack;
pub(super) mod pull;
pub(super) mod rules;
mod scan;
pub(super) mod tree;

pub(super) use scan::scan;
