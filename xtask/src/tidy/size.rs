//! Budgets that keep crates and files small enough to read. Functions are clippy's.

use std::collections::BTreeSet;

use super::Problem;
use super::source::{Source, sources};
use crate::workspace::Workspace;

/// Production lines of a crate: neither blank, nor comment, nor test.
const CRATE: usize = 3_000;
/// Lines of a file, all of them: said, then failed.
const FILE_SOFT: usize = 500;
const FILE_HARD: usize = 800;

/// A crate that grows past its budget is two crates.
pub(super) fn crates(workspace: &Workspace) -> Vec<Problem> {
    let mut problems = Vec::new();
    for package in &workspace.packages {
        let lines: usize = sources(workspace, package).iter().map(production_lines).sum();
        if lines > CRATE {
            let message = format!("has {lines} production lines, and {CRATE} are allowed");
            problems.push(Problem::new(package.dir.clone(), 0, message));
        }
    }
    problems
}

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

fn production_lines(source: &Source<'_>) -> usize {
    let production = source.tokens.iter().filter(|token| !token.test);
    let lines: BTreeSet<_> = production.flat_map(|token| token.lines.0..=token.lines.1).collect();
    lines.len()
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::tidy::said;

    const PACKAGE: (&str, &str) = ("crates/a/Cargo.toml", "[package]\nname = 'a'");

    #[test]
    fn a_large_crate_is_seen() {
        let check = |file: &str, lines: usize| {
            let text = "\n/// Doc.\nfn f() {} // same line\n".repeat(lines);
            said(crates, &[PACKAGE, ("crates/a/src/lib.rs", "#[cfg(test)]\nmod t;"), (file, &text)])
        };
        assert_eq!(check("crates/a/src/b.rs", 3_000), "");
        assert_snapshot!(check("crates/a/src/b.rs", 3_001), @"crates/a: has 3001 production lines, and 3000 are allowed");
        assert_eq!(check("crates/a/src/t.rs", 3_001), "");
        assert_eq!(check("crates/a/examples/b.rs", 3_001), "");
    }

    #[test]
    fn a_long_file_is_said_then_failed() {
        let check =
            |lines: usize| said(files, &[PACKAGE, ("crates/a/src/a.rs", &"\n".repeat(lines))]);
        assert_eq!(check(500), "");
        assert_snapshot!(check(501), @"crates/a/src/a.rs: warning: has 501 lines, and 500 are allowed");
        assert_snapshot!(check(801), @"crates/a/src/a.rs: has 801 lines, and 800 are allowed");
    }
}
