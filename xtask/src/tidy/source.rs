//! Rust files as flat lists of tokens: comments and strings can hide nothing and hold nothing.

use std::collections::BTreeSet;
use std::str::FromStr;

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};

use crate::workspace::{Package, Workspace};

/// One Rust file.
pub(super) struct Source<'a> {
    pub(super) path: &'a str,
    /// Its tokens; empty when it is no Rust, which the compiler says better.
    pub(super) tokens: Vec<Token>,
}

/// A token. Brackets are tokens of their own; doc comments are left out.
#[derive(Debug)]
pub(super) struct Token {
    pub(super) text: String,
    /// First and last line, from 1.
    pub(super) lines: (usize, usize),
    /// In an item under `#[cfg(test)]`, or in a file of tests.
    pub(super) test: bool,
}

/// The files below `src/` of a member, with what is test code marked.
pub(super) fn sources<'a>(workspace: &'a Workspace, package: &'a Package) -> Vec<Source<'a>> {
    let prefix = format!("{}/src/", package.dir);
    let mut sources: Vec<_> = workspace
        .sources(package)
        .filter(|(path, _)| path.starts_with(&prefix))
        .map(|(path, text)| read(path, text))
        .collect();
    let tests: BTreeSet<String> = sources.iter().flat_map(test_modules).collect();
    for source in &mut sources {
        if tests.iter().any(|module| is_in(source.path, module)) {
            source.tokens.iter_mut().for_each(|token| token.test = true);
        }
    }
    sources
}

/// One file by itself.
pub(super) fn read<'a>(path: &'a str, text: &'a str) -> Source<'a> {
    let mut tokens = Vec::new();
    if let Ok(stream) = TokenStream::from_str(text) {
        flatten(stream, false, &mut tokens);
    }
    Source { path, tokens }
}

/// Whether the tokens at `at` are these.
pub(super) fn starts(tokens: &[Token], at: usize, texts: &[&str]) -> bool {
    let here = tokens[at..].iter().map(|token| token.text.as_str());
    tokens.len() - at >= texts.len() && here.zip(texts).all(|(token, text)| token == *text)
}

fn flatten(stream: TokenStream, mut in_test: bool, out: &mut Vec<Token>) {
    let mut trees = stream.into_iter().peekable();
    // `#[cfg(test)]` holds to the end of its item: a `;` or a block.
    let mut test_item = false;
    while let Some(tree) = trees.next() {
        if is_punct(&tree, '#') {
            let bang = trees.next_if(|next| is_punct(next, '!'));
            let group = trees.next_if(|next| matches!(next, TokenTree::Group(_)));
            if let Some(TokenTree::Group(attribute)) = &group {
                match (is_cfg_test(attribute), &bang) {
                    (true, None) => test_item = true,
                    (true, Some(_)) => in_test = true,
                    (false, _) => {}
                }
                if is_doc(attribute) {
                    continue;
                }
            }
            for tree in [Some(tree), bang, group].iter().flatten() {
                push(tree, in_test || test_item, out);
            }
            continue;
        }
        push(&tree, in_test || test_item, out);
        let ends_item = match &tree {
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
            other => is_punct(other, ';'),
        };
        test_item &= !ends_item;
    }
}

fn push(tree: &TokenTree, in_test: bool, out: &mut Vec<Token>) {
    let token = |text: &str, span: Span| {
        let lines = (span.start().line, span.end().line);
        Token { text: text.to_owned(), lines, test: in_test }
    };
    let TokenTree::Group(group) = tree else {
        return out.push(token(&tree.to_string(), tree.span()));
    };
    let (open, close) = match group.delimiter() {
        Delimiter::Parenthesis => ("(", ")"),
        Delimiter::Brace => ("{", "}"),
        Delimiter::Bracket => ("[", "]"),
        Delimiter::None => ("", ""),
    };
    out.push(token(open, group.span_open()));
    flatten(group.stream(), in_test, out);
    out.push(token(close, group.span_close()));
}

fn is_punct(tree: &TokenTree, mark: char) -> bool {
    matches!(tree, TokenTree::Punct(punct) if punct.as_char() == mark)
}

fn is_doc(attribute: &Group) -> bool {
    matches!(attribute.stream().into_iter().next(), Some(TokenTree::Ident(it)) if it == "doc")
}

fn is_cfg_test(attribute: &Group) -> bool {
    attribute.stream().to_string().replace(' ', "") == "cfg(test)"
}

/// The modules that a file declares as `#[cfg(test)] mod name;`, as paths without `.rs`.
fn test_modules(source: &Source<'_>) -> Vec<String> {
    let (dir, file) = source.path.rsplit_once('/').unwrap_or(("", source.path));
    let stem = file.trim_end_matches(".rs");
    let below = match stem {
        "lib" | "main" | "mod" => dir.to_owned(),
        _ => format!("{dir}/{stem}"),
    };
    let tokens = &source.tokens;
    let declared = (0..tokens.len().saturating_sub(2))
        .filter(|at| tokens[*at].test && tokens[*at].text == "mod" && tokens[at + 2].text == ";");
    declared.map(|at| format!("{below}/{}", tokens[at + 1].text)).collect()
}

fn is_in(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::testing::workspace;

    /// The production tokens of a file.
    fn production(text: &str) -> String {
        let source = read("a.rs", text);
        let kept = source.tokens.iter().filter(|token| !token.test);
        kept.map(|token| token.text.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_docs_and_tests_are_no_production_tokens() {
        assert_eq!(production("/// a\nfn a() {} // b\n/* c */"), "fn a ( ) { }");
        assert_eq!(production("#[cfg(test)]\nmod tests { fn b() {} }\nfn a() {}"), "fn a ( ) { }");
        assert_eq!(production("#[cfg(test)] use a::b;\nfn a() {}"), "fn a ( ) { }");
        assert_eq!(
            production("#[cfg(not(test))] fn a() {}"),
            "# [ cfg ( not ( test ) ) ] fn a ( ) { }"
        );
        assert_eq!(production("#![warn(x)]"), "# ! [ warn ( x ) ]");
        assert_eq!(production("#![cfg(test)]\nfn a() {}\nfn b() {}"), "");
        assert_eq!(production("f!(#a)"), "f ! ( # a )");
    }

    #[test]
    fn a_module_declared_for_tests_is_test_code() {
        let workspace = workspace(&[
            ("crates/a/Cargo.toml", "[package]\nname = 'a'"),
            ("crates/a/src/lib.rs", "mod b;\n#[cfg(test)]\nmod tests;"),
            ("crates/a/src/b.rs", "#[cfg(test)]\nmod checks;\nfn b() {}"),
            ("crates/a/src/b/checks.rs", "fn c() {}"),
            ("crates/a/src/tests.rs", "mod deep;"),
            ("crates/a/src/tests/deep.rs", "fn d() {}"),
            ("crates/a/examples/e.rs", "fn e() {}"),
        ]);
        let sources = sources(&workspace, &workspace.packages[0]);
        let production = sources.iter().filter(|it| it.tokens.iter().any(|token| !token.test));
        let production: Vec<_> = production.map(|source| source.path).collect();
        assert_eq!(production, ["crates/a/src/b.rs", "crates/a/src/lib.rs"]);
    }
}
