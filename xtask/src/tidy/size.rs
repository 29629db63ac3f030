//! The number of production lines, which only shrinks unless a commit of its own raises it.

use std::collections::BTreeSet;

use super::Problem;
use super::source::sources;
use crate::workspace::Workspace;

/// The most production lines of all crates: lines with code, without tests, comments and documentation.
/// Code that is removed lowers it in the same commit; only a commit of its own, which says why, raises it.
const CEILING: usize = 115_101;

pub(super) fn production_lines(workspace: &Workspace) -> Vec<Problem> {
    let lines = count(workspace);
    if lines <= CEILING {
        return Vec::new();
    }
    let message = format!(
        "the crates have {lines} production lines, {} more than allowed: remove code, or raise the number in a commit \
         of its own",
        lines - CEILING
    );
    vec![Problem::new("xtask/src/tidy/size.rs", 0, message)]
}

/// What `tidy` says about it at the end.
pub(super) fn summary(workspace: &Workspace) -> String {
    format!("{} production lines of at most {CEILING}", count(workspace))
}

fn count(workspace: &Workspace) -> usize {
    let crates = workspace.packages.iter().filter(|package| package.dir.starts_with("crates/"));
    crates
        .flat_map(|package| sources(workspace, package))
        .map(|source| {
            // A text of several lines is one token.
            let lines = source.tokens.iter().flat_map(|token| {
                let more = token.text.matches('\n').count();
                token.line..=token.line + more
            });
            lines.collect::<BTreeSet<_>>().len()
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::testing::workspace;

    #[test]
    fn comments_tests_and_blank_lines_do_not_count() {
        let code = "//! A.\n\n/// B.\nfn b() {\n    // c\n    let d = \"e\n\nf\";\n}\n\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\n";
        let files = [
            ("crates/a/Cargo.toml", "[package]\nname = 'a'"),
            ("crates/a/src/lib.rs", code),
            ("crates/a/src/tests.rs", "fn h() {}"),
            ("crates/a/tests/it.rs", "fn i() {}"),
        ];
        assert_eq!(count(&workspace(&files)), 5);
    }
}
