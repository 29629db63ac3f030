//! Budgets that keep files small enough to read. Functions are clippy's.

use super::Problem;
use crate::workspace::Workspace;

/// Lines of a file, all of them: said, then failed.
const FILE_SOFT: usize = 500;
const FILE_HARD: usize = 800;

/// A file that grows past its budget is two files.
pub(super) fn files(workspace: &Workspace) -> Vec<Problem> {
    let all = workspace.packages.iter().flat_map(|package| workspace.sources(package));
    let judged = all.filter_map(|(path, text)| {
        let lines = text.lines().count();
        let message = |limit: usize| format!("has {lines} lines, and {limit} are allowed");
        if lines > FILE_HARD {
            return Some(Problem::new(path, 0, message(FILE_HARD)));
        }
        (lines > FILE_SOFT).then(|| Problem::warning(path, message(FILE_SOFT)))
    });
    judged.collect()
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::tidy::said;

    const PACKAGE: (&str, &str) = ("crates/a/Cargo.toml", "[package]\nname = 'a'");

    #[test]
    fn a_long_file_is_said_then_failed() {
        let check =
            |lines: usize| said(files, &[PACKAGE, ("crates/a/src/a.rs", &"\n".repeat(lines))]);
        assert_eq!(check(500), "");
        assert_snapshot!(check(501), @"crates/a/src/a.rs: warning: has 501 lines, and 500 are allowed");
        assert_snapshot!(check(801), @"crates/a/src/a.rs: has 801 lines, and 800 are allowed");
    }
}
