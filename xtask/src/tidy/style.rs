//! Rules of style that a search can check. Most are warnings, one for each file.

use super::source::{Token, closing, sources, starts};
use super::{Problem, layers};
use crate::workspace::{Package, Workspace};

/// The length of a file in lines, above which there is a warning, then an error. That of functions
/// is checked by clippy.
const FILE_SOFT: usize = 500;
const FILE_HARD: usize = 800;

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

/// A file that grows past its budget is two files.
pub(super) fn file_lengths(workspace: &Workspace) -> Vec<Problem> {
    let all = workspace.packages.iter().flat_map(|package| workspace.sources(package));
    let check = |(path, text): (&str, &str)| {
        let lines = text.lines().count();
        let message = |limit: usize| format!("has {lines} lines, and {limit} are allowed");
        if lines > FILE_HARD {
            return Some(Problem::new(path, 0, message(FILE_HARD)));
        }
        (lines > FILE_SOFT).then(|| Problem::warning(path, 0, message(FILE_SOFT)))
    };
    all.filter_map(check).collect()
}

/// `let (a, b) = (x, y);` is two statements.
pub(super) fn tuple_lets(workspace: &Workspace) -> Vec<Problem> {
    in_files(workspace, workspace.packages.iter(), |tokens, at| {
        is_tuple_let(tokens, at).then(|| "`let (…) = (…);`".to_owned())
    })
}

/// A library does not know the options of the program that uses it.
pub(super) fn option_advice(workspace: &Workspace) -> Vec<Problem> {
    let is_library = |package: &&Package| {
        layers::find(&package.name).is_some_and(|member| member.layer < COMMAND_LINE)
    };
    let libraries = workspace.packages.iter().filter(is_library);
    in_files(workspace, libraries, |tokens, at| {
        let text = tokens[at].text.as_str();
        let (before, option) = text.split_once("--").filter(|_| text.starts_with('"'))?;
        let is_advice = before.len() > 2 && before.ends_with([' ', '`']);
        let end = option.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(option.len());
        (is_advice && end > 1).then(|| format!("advice about `--{}`", &option[..end]))
    })
}

/// Comments use the usual technical terms, so that a search finds the place.
pub(super) fn usual_words(workspace: &Workspace) -> Vec<Problem> {
    let files = workspace.packages.iter().flat_map(|package| workspace.sources(package));
    let check = |(path, text): (&str, &str)| {
        let comments = text.lines().filter(|line| line.trim_start().starts_with("//"));
        let comments = comments.collect::<Vec<_>>().join("\n").to_lowercase();
        let found = WORDS.iter().filter(|(word, _)| has_word(&comments, word));
        let found: Vec<_> = found.map(|(word, usual)| format!("{word} ({usual})")).collect();
        let message = format!("usual words: {}", found.join(", "));
        (!found.is_empty()).then(|| Problem::warning(path, 0, message))
    };
    files.filter_map(check).collect()
}

/// Whether the words `word` stand in a text, not as parts of other words.
fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        [before, after].into_iter().flatten().all(|c| !c.is_alphanumeric())
    })
}

/// One warning for each file of production code with a match.
fn in_files<'a>(
    workspace: &Workspace,
    packages: impl Iterator<Item = &'a Package>,
    find: impl Fn(&[Token], usize) -> Option<String>,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for package in packages {
        for source in sources(workspace, package) {
            let tokens = &source.tokens;
            let found = (0..tokens.len()).filter_map(|at| Some((at, find(tokens, at)?)));
            let found: Vec<_> = found.collect();
            let Some((at, message)) = found.first() else { continue };
            let more = found.len() - 1;
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let message = format!("{message}{more}");
            problems.push(Problem::warning(source.path, tokens[*at].line, message));
        }
    }
    problems
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

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::tidy::{Check, found};

    fn check(rule: Check, text: &str) -> String {
        let package = ("crates/a/Cargo.toml", "[package]\nname = 'fabro-graph'");
        found(rule, &[package, ("crates/a/src/a.rs", text)])
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
        assert_snapshot!(check(usual_words, text), @"crates/a/src/a.rs: warning: usual words: whoever (the caller), once more (again)");
        assert_eq!(check(usual_words, "/// The caller.\nfn f() {}"), "");
        assert_eq!(check(usual_words, "/// What works in that worktree.\nfn f() {}"), "");
    }

    #[test]
    fn a_long_file_is_found() {
        let check = |lines: usize| check(file_lengths, &"\n".repeat(lines));
        assert_eq!(check(FILE_SOFT), "");
        assert_snapshot!(check(FILE_SOFT + 1), @"crates/a/src/a.rs: warning: has 501 lines, and 500 are allowed");
        assert_snapshot!(check(FILE_HARD + 1), @"crates/a/src/a.rs: has 801 lines, and 800 are allowed");
    }
}
