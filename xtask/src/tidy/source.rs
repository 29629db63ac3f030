//! The production code of a crate as flat lists of tokens: comments, strings and tests hide nothing
//! and count for nothing.

use std::str::FromStr;

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};

use crate::workspace::{Package, Workspace};

/// One Rust file.
pub(super) struct Source<'a> {
    pub(super) path: &'a str,
    /// Its tokens; empty for a file that does not parse, which the compiler reports.
    pub(super) tokens: Vec<Token>,
}

/// A token. Brackets are tokens of their own; doc comments and tests are left out.
#[derive(Debug)]
pub(super) struct Token {
    pub(super) text: String,
    /// From 1.
    pub(super) line: usize,
}

/// The files below `src/` of a member, without files of tests.
pub(super) fn sources<'a>(
    workspace: &'a Workspace,
    package: &'a Package,
) -> impl Iterator<Item = Source<'a>> {
    let prefix = format!("{}/src/", package.dir);
    let files = workspace.sources(package);
    let production = files.filter(move |(path, _)| path.starts_with(&prefix) && !is_test(path));
    production.map(|(path, text)| Source { path, tokens: tokens(text) })
}

/// The production tokens of a file.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    if let Ok(stream) = TokenStream::from_str(text) {
        flatten(stream, &mut tokens);
    }
    tokens
}

/// Whether the tokens at `at` are these.
pub(super) fn starts(tokens: &[Token], at: usize, texts: &[&str]) -> bool {
    let here = tokens[at..].iter().map(|token| token.text.as_str());
    tokens.len() - at >= texts.len() && here.zip(texts).all(|(token, text)| token == *text)
}

/// The bracket that closes the one at `open`.
pub(super) fn closing(tokens: &[Token], open: usize) -> Option<usize> {
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

/// `tests.rs`, `…_tests.rs`, `testing.rs`, and what is in a directory `tests`.
fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("tests.rs") || path.ends_with("/testing.rs")
}

fn flatten(stream: TokenStream, out: &mut Vec<Token>) {
    let mut trees = stream.into_iter().peekable();
    // `#[cfg(test)]` applies to the end of its item: a `;` or a block.
    let mut in_test_item = false;
    while let Some(tree) = trees.next() {
        if is_punct(&tree, '#') && is_inner_doc(trees.clone()) {
            trees.by_ref().take(2).for_each(drop);
            continue;
        }
        if is_punct(&tree, '#')
            && let Some(TokenTree::Group(attribute)) = trees.peek()
            && (is_cfg_test(attribute) || is_doc(attribute))
        {
            in_test_item |= is_cfg_test(attribute);
            trees.next();
            continue;
        }
        if !in_test_item {
            push(&tree, out);
        }
        let ends_item = match &tree {
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
            other => is_punct(other, ';'),
        };
        in_test_item &= !ends_item;
    }
}

fn push(tree: &TokenTree, out: &mut Vec<Token>) {
    let token = |text: &str, span: Span| Token { text: text.to_owned(), line: span.start().line };
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
    flatten(group.stream(), out);
    out.push(token(close, group.span_close()));
}

fn is_punct(tree: &TokenTree, mark: char) -> bool {
    matches!(tree, TokenTree::Punct(punct) if punct.as_char() == mark)
}

/// Whether `![doc = …]` follows, which is a `//!`.
fn is_inner_doc(mut trees: impl Iterator<Item = TokenTree>) -> bool {
    trees.next().is_some_and(|tree| is_punct(&tree, '!'))
        && matches!(trees.next(), Some(TokenTree::Group(attribute)) if is_doc(&attribute))
}

fn is_doc(attribute: &Group) -> bool {
    matches!(attribute.stream().into_iter().next(), Some(TokenTree::Ident(it)) if it == "doc")
}

fn is_cfg_test(attribute: &Group) -> bool {
    attribute.stream().to_string().replace(' ', "") == "cfg(test)"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::testing::workspace;

    #[test]
    fn comments_docs_and_tests_are_not_production_tokens() {
        let check = |text: &str, expect: &str| {
            let tokens: Vec<_> = tokens(text).into_iter().map(|token| token.text).collect();
            assert_eq!(tokens.join(" "), expect);
        };
        check("/// a\nfn a() {} // b\n/* c */", "fn a ( ) { }");
        check("#[cfg(test)]\nmod tests { fn b() {} }\nfn a() {}", "fn a ( ) { }");
        check("#[cfg(test)] use a::b;\nfn a() {}", "fn a ( ) { }");
        check("#[cfg(not(test))] fn a() {}", "# [ cfg ( not ( test ) ) ] fn a ( ) { }");
        check("#![warn(x)]", "# ! [ warn ( x ) ]");
        check("//! a\n//! b\nfn a() {}", "fn a ( ) { }");
        check("f!(#a)", "f ! ( # a )");
    }

    #[test]
    fn files_of_tests_are_left_out() {
        let workspace = workspace(&[
            ("crates/a/Cargo.toml", "[package]\nname = 'a'"),
            ("crates/a/src/lib.rs", "mod b;\n#[cfg(test)]\nmod tests;"),
            ("crates/a/src/b.rs", "fn b() {}"),
            ("crates/a/src/b/testing.rs", "fn c() {}"),
            ("crates/a/src/tests.rs", "mod deep;"),
            ("crates/a/src/tests/deep.rs", "fn d() {}"),
            ("crates/a/examples/e.rs", "fn e() {}"),
        ]);
        let paths = sources(&workspace, &workspace.packages[0]).map(|source| source.path);
        assert_eq!(paths.collect::<Vec<_>>(), ["crates/a/src/b.rs", "crates/a/src/lib.rs"]);
    }
}
