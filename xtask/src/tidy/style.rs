//! Rules of style that a search can check. All of them are warnings, one for each file.

use super::source::{Token, sources, starts};
use super::{Problem, layers};
use crate::workspace::{Package, Workspace};

/// Words that have a usual technical term, and that term.
const WORDS: [(&str, &str); 14] = [
    ("whoever", "the caller"),
    ("whatever", "any"),
    ("nobody", "no process"),
    ("at work", "running"),
    ("goes on", "continues"),
    ("once more", "again"),
    ("what came of", "result"),
    ("is told", "is reported"),
    ("ready answers", "canned responses"),
    ("sign of life", "activity"),
    ("patience", "retry limit"),
    ("gravest", "most severe"),
    ("in vain", "no target left"),
    ("blanked", "redacted"),
];

/// The layer of the command line: only from there on messages know its options.
const COMMAND_LINE: u8 = 7;

/// `let (a, b) = (x, y);` is two statements.
pub(super) fn tuple_lets(workspace: &Workspace) -> Vec<Problem> {
    let found = |package: &Package| {
        in_files(workspace, package, |tokens, at| {
            is_tuple_let(tokens, at).then(|| "`let (…) = (…);`".to_owned())
        })
    };
    workspace.packages.iter().flat_map(found).collect()
}

/// A library does not know the options of the program that uses it.
pub(super) fn option_advice(workspace: &Workspace) -> Vec<Problem> {
    let is_library = |package: &&Package| {
        layers::find(&package.name).is_some_and(|member| member.layer < COMMAND_LINE)
    };
    let advice = |tokens: &[Token], at: usize| {
        let text = tokens[at].text.as_str();
        let (before, option) = text.split_once("--").filter(|_| text.starts_with('"'))?;
        let is_advice = before.len() > 2 && before.ends_with([' ', '`']);
        let end = option.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(option.len());
        (is_advice && end > 1).then(|| format!("advice about `--{}`", &option[..end]))
    };
    let libraries = workspace.packages.iter().filter(is_library);
    libraries.flat_map(|package| in_files(workspace, package, advice)).collect()
}

/// Doc comments use the usual technical terms, so that a search finds the place.
pub(super) fn usual_words(workspace: &Workspace) -> Vec<Problem> {
    let files = workspace.packages.iter().flat_map(|package| workspace.sources(package));
    let check = |(path, text): (&str, &str)| {
        let found = text.lines().filter(|line| is_doc_comment(line)).filter_map(word_in);
        let mut found: Vec<_> = found.map(|(word, usual)| format!("{word} ({usual})")).collect();
        found.sort_unstable();
        found.dedup();
        let message = format!("usual words: {}", found.join(", "));
        (!found.is_empty()).then(|| Problem::warning(path, message))
    };
    files.filter_map(check).collect()
}

fn is_doc_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

fn word_in(line: &str) -> Option<&'static (&'static str, &'static str)> {
    let line = line.to_lowercase();
    WORDS.iter().find(|(word, _)| line.contains(word))
}

/// One warning for each file of production code with a match.
fn in_files(
    workspace: &Workspace,
    package: &Package,
    find: impl Fn(&[Token], usize) -> Option<String>,
) -> Vec<Problem> {
    let check = |source: super::source::Source<'_>| {
        let tokens = &source.tokens;
        let production = (0..tokens.len()).filter(|at| !tokens[*at].test);
        let mut found = production.filter_map(|at| Some((tokens[at].lines.0, find(tokens, at)?)));
        let (line, message) = found.next()?;
        let more = found.count();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let problem = Problem::warning(source.path, format!("{message}{more}"));
        Some(Problem { line, ..problem })
    };
    sources(workspace, package).into_iter().filter_map(check).collect()
}

fn is_tuple_let(tokens: &[Token], at: usize) -> bool {
    if !starts(tokens, at, &["let", "("]) {
        return false;
    }
    let Some(pattern) = closing(tokens, at + 1) else { return false };
    if !starts(tokens, pattern + 1, &["=", "("]) {
        return false;
    }
    closing(tokens, pattern + 2).is_some_and(|value| starts(tokens, value + 1, &[";"]))
}

/// The bracket that closes the one at `open`.
fn closing(tokens: &[Token], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::tidy::{Check, said};

    fn check(rule: Check, text: &str) -> String {
        let package = ("crates/a/Cargo.toml", "[package]\nname = 'fabro-graph'");
        said(rule, &[package, ("crates/a/src/a.rs", text)])
    }

    #[test]
    fn a_tuple_let_is_found() {
        let two = "fn f() {\n let (a, b) = (1, g(2));\n let (c, d) = (3, [4]);\n}";
        assert_snapshot!(check(tuple_lets, two), @"crates/a/src/a.rs:2: warning: `let (…) = (…);` and 1 more");
        assert_eq!(check(tuple_lets, "fn f() { let (a, b) = g(1); let c = (1, 2); }"), "");
        assert_eq!(check(tuple_lets, "fn f() { let (a, b) = (1, 2).swap(); }"), "");
    }

    #[test]
    fn advice_about_an_option_is_found() {
        let check = |text: &str| check(option_advice, &format!("const A: &str = {text};"));
        assert_snapshot!(check("\"name another with `--store`\""), @"crates/a/src/a.rs:1: warning: advice about `--store`");
        assert_eq!(check("\"--store\""), "");
        assert_eq!(check("\"a -- b\""), "");
    }

    #[test]
    fn an_unusual_word_is_found() {
        let text = "/// Whoever asks.\n/// Once more.\nfn nobody() {}";
        assert_snapshot!(check(usual_words, text), @"crates/a/src/a.rs: warning: usual words: once more (again), whoever (the caller)");
        assert_eq!(check(usual_words, "/// The caller.\nfn f() {}"), "");
    }
}
