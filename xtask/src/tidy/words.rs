//! Words that do not belong into finished code.

use super::Problem;
use super::source::{Source, Token, read, starts};
use crate::workspace::Workspace;

/// Nothing is left for later: no `todo!`, `unimplemented!`, `dbg!`, and no test that never runs.
pub(super) fn unfinished(workspace: &Workspace) -> Vec<Problem> {
    each(workspace, |tokens, at| {
        let text = tokens[at].text.as_str();
        let is_macro = ["todo", "unimplemented", "dbg"].contains(&text);
        if is_macro && starts(tokens, at + 1, &["!"]) {
            return Some(format!("`{text}!` is unfinished work"));
        }
        let ignored = starts(tokens, at, &["#", "[", "ignore"]);
        ignored.then(|| "`#[ignore]`: a test runs or goes".to_owned())
    })
}

/// A lint is silenced only with a reason.
pub(super) fn silenced_lints(workspace: &Workspace) -> Vec<Problem> {
    each(workspace, |tokens, at| {
        let text = tokens[at].text.as_str();
        let silences = ["allow", "expect"].contains(&text) && starts(tokens, at + 1, &["("]);
        if !silences || !in_attribute(tokens, at) {
            return None;
        }
        let mut depth = 0_usize;
        let inside = tokens[at + 1..].iter().take_while(|token| {
            match token.text.as_str() {
                "(" => depth += 1,
                ")" => depth -= 1,
                _ => {}
            }
            depth > 0
        });
        let has_reason = inside.into_iter().any(|token| token.text == "reason");
        (!has_reason).then(|| format!("`{text}` needs a `reason = \"…\"`"))
    })
}

/// Whether the token stands in `#[…]`, `#![…]` or `#[cfg_attr(…, …)]`.
fn in_attribute(tokens: &[Token], at: usize) -> bool {
    let mut depth = 0_usize;
    for open in (0..at).rev() {
        match tokens[open].text.as_str() {
            ")" | "]" | "}" => depth += 1,
            "[" if depth == 0 => {
                let is = |back: usize, mark| open >= back && starts(tokens, open - back, &[mark]);
                return (is(1, "#") || is(1, "!") && is(2, "#"))
                    && (open + 1 == at || starts(tokens, open + 1, &["cfg_attr"]));
            }
            "{" if depth == 0 => return false,
            "(" | "[" | "{" => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// Asks about every token of every file, tests, examples and benches too.
fn each(
    workspace: &Workspace,
    complaint: impl Fn(&[Token], usize) -> Option<String>,
) -> Vec<Problem> {
    let files = workspace.packages.iter().flat_map(|package| workspace.sources(package));
    let mut problems = Vec::new();
    for (path, text) in files {
        let Source { tokens, .. } = read(path, text);
        let found = (0..tokens.len()).filter_map(|at| Some((at, complaint(&tokens, at)?)));
        problems.extend(found.map(|(at, message)| Problem::new(path, tokens[at].lines.0, message)));
    }
    problems
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::tidy::{Check, said};

    fn check(rule: Check, text: &str) -> String {
        let package = ("crates/a/Cargo.toml", "[package]\nname = 'a'");
        said(rule, &[package, ("crates/a/tests/a.rs", text)])
    }

    #[test]
    fn unfinished_work_is_seen() {
        assert_snapshot!(check(unfinished, "fn f() {\n todo!()\n}"), @"crates/a/tests/a.rs:2: `todo!` is unfinished work");
        assert_snapshot!(check(unfinished, "fn f() { vec![dbg!(1)]; }"), @"crates/a/tests/a.rs:1: `dbg!` is unfinished work");
        assert_snapshot!(check(unfinished, "#[test]\n#[ignore]\nfn f() {}"), @"crates/a/tests/a.rs:2: `#[ignore]`: a test runs or goes");
        assert_eq!(check(unfinished, "// todo!()\nconst A: &str = \"dbg!\"; fn todo() {}"), "");
    }

    #[test]
    fn a_lint_silenced_without_a_reason_is_seen() {
        assert_snapshot!(check(silenced_lints, "#[allow(dead_code)]\nfn f() {}"), @r#"crates/a/tests/a.rs:1: `allow` needs a `reason = "…"`"#);
        assert_snapshot!(check(silenced_lints, "#![expect(a::b)]"), @r#"crates/a/tests/a.rs:1: `expect` needs a `reason = "…"`"#);
        assert_snapshot!(check(silenced_lints, "#[cfg_attr(test, allow(a))]\nfn f() {}"), @r#"crates/a/tests/a.rs:1: `allow` needs a `reason = "…"`"#);
        assert_eq!(check(silenced_lints, "#[allow(a, reason = \"b\")]\nfn f() {}"), "");
        assert_eq!(
            check(silenced_lints, "fn f() { x.expect(\"a\"); y[allow(1)]; vec![expect(2)]; }"),
            ""
        );
    }
}
