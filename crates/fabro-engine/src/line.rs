//! The names of the lines of a run: the main one and the branches of fan-outs.

use fabro_types::BranchPath;

/// The name of the main line among the cursors.
pub const MAIN: &str = "";

/// Whether a line is the main one, and not a branch.
pub(crate) fn is_main(line: &str) -> bool {
    BranchPath::new(line).is_main()
}
