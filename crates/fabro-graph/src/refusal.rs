//! Syntax errors: their messages and fixes.

use fabro_types::{Diagnostic, Span, Unexpected, found};
use pest::error::Error;
use pest::iterators::Pair;

use crate::grammar::Rule;

/// The keywords, in any case; in quotes they are ordinary names.
const KEYWORDS: [&str; 6] = ["digraph", "subgraph", "graph", "node", "edge", "strict"];

pub(crate) fn is_keyword(word: &str) -> bool {
    KEYWORDS.iter().any(|keyword| keyword.eq_ignore_ascii_case(word))
}

/// Syntax that the grammar parses only to reject it.
pub(crate) fn refused(pair: &Pair<'_, Rule>) -> Diagnostic {
    let start = pair.as_span().start();
    let text = pair.as_str();
    let is = |word: &str| text.get(..word.len()).is_some_and(|t| t.eq_ignore_ascii_case(word));
    let at = |length: usize| Span::new(start, start + length);
    match pair.as_rule() {
        Rule::arrow => Diagnostic::error("undirected-edge", at(2), "`--` is an undirected edge")
            .with_fix("write `->`"),
        Rule::port => Diagnostic::error("port", at(text.len()), "a port stands behind a node only")
            .with_fix("remove the colon and what follows it"),
        Rule::refused if is("strict") => not_a_digraph(at(6), "this is no `strict digraph`"),
        Rule::refused => not_a_digraph(at(5), "a `graph` has undirected edges"),
        _ if is("digraph") || is("graph") || is("strict") => {
            let length = text.bytes().take_while(u8::is_ascii_alphabetic).count();
            Diagnostic::error("second-graph", at(length), "a file holds one graph only")
                .with_fix("move this graph into a file of its own")
        }
        _ => {
            let (length, found) = found(text);
            syntax(at(length), format!("{found} after the end of the graph"))
                .with_fix("remove it, or the closing brace before it")
        }
    }
}

/// A keyword in the place of a node.
pub(crate) fn keyword(word: &str, span: Span) -> Diagnostic {
    if word.eq_ignore_ascii_case("subgraph") {
        return syntax(span, "a subgraph without its braces").with_fix("write subgraph name { … }");
    }
    let message = format!("`{word}` is a keyword, not a node id");
    Diagnostic::error("node-id", span, message).with_fix(format!(
        "write {word} [key=value] for defaults, or choose another id; \"{word}\" in quotes is a node"
    ))
}

/// `{a; b} [..]` without an edge.
pub(crate) fn group_attributes(span: Span) -> Diagnostic {
    syntax(span, "a subgraph takes its attributes inside its braces")
        .with_fix("write them inside as key=value, or as node [..] for the nodes in it")
}

/// `a [..] -> b`.
pub(crate) fn edge_after_attributes(span: Span) -> Diagnostic {
    syntax(span, "an edge cannot begin at attributes")
        .with_fix("write the attributes after the last node of the edge")
}

/// The error of the grammar, with the text that was found and what was expected.
pub(crate) fn unexpected(source: &str, error: &Error<Rule>) -> Diagnostic {
    let Unexpected { mut error, expected, rest } =
        fabro_types::unexpected(source, error, to_symbol);
    if error.message.starts_with("stack") {
        return Diagnostic::error("nesting-too-deep", error.span, "subgraphs are nested too deep")
            .with_fix("flatten the subgraphs");
    }
    if expected.contains(&"`digraph`") {
        return not_a_digraph(error.span, &error.message);
    }
    let at = error.span.start;
    if let Some(open) =
        open_list(source, at).filter(|_| expected.contains(&"`=`") || expected.contains(&"`]`"))
    {
        if is_after_list(&source[open..at], rest) {
            return syntax(Span::new(open, open + 1), "these attributes have no closing `]`")
                .with_fix("add `]` after the last of them");
        }
        error.fix = fix_of_value(&source[open + 1..at]);
    }
    if error.fix.is_none() {
        error.fix = fix(&source[..at], rest, &expected).map(str::to_owned);
    }
    error.into_diagnostic("syntax")
}

/// The `[` of the attributes that are open before `at`.
fn open_list(source: &str, at: usize) -> Option<usize> {
    let mut open = None;
    let mut in_string = false;
    let mut chars = source[..at].char_indices();
    while let Some((index, char)) = chars.next() {
        match char {
            '\\' if in_string => {
                chars.next();
            }
            '"' => in_string = !in_string,
            '[' if !in_string => open = Some(index),
            ']' if !in_string => open = None,
            _ => {}
        }
    }
    open
}

/// Whether what was found belongs to a later statement: the end of a body, or, in another line than
/// the last value, the attributes or the edge of a node.
fn is_after_list(list: &str, rest: &str) -> bool {
    let line = &list[list.rfind('\n').unwrap_or(0)..];
    let is_new_line = line.starts_with('\n') && !line.contains(['=', '"']);
    match rest.chars().next() {
        None | Some('}') => true,
        Some('[') => is_new_line,
        Some('-') => is_new_line && rest.starts_with("->"),
        _ => false,
    }
}

/// What to do about the value before the error: text that needs quotes, or a quote inside quotes.
fn fix_of_value(list: &str) -> Option<String> {
    let word = list.trim_end().trim_end_matches(|c: char| c.is_alphanumeric() || c == '_');
    if word.ends_with('"') && word.len() < list.trim_end().len() {
        return Some(
            "write \\\" for a quote inside a string, and a comma between attributes".to_owned(),
        );
    }
    let equals = list.rfind('=')?;
    let value = list[equals + 1..].trim_start();
    let is_text = !value.is_empty() && !value.contains(['"', '\'', '\n', ',', ';', '“', '”']);
    let key = list[..equals].trim_end();
    let start = key.rfind(|c: char| !(c.is_alphanumeric() || "._-".contains(c)));
    let key =
        start.map_or(key, |start| key[start..].trim_start_matches(|c: char| !c.is_alphanumeric()));
    is_text.then(|| format!("put the text in double quotes: {key}=\"…\""))
}

fn fix(before: &str, rest: &str, expected: &[&str]) -> Option<&'static str> {
    let expects = |symbol| expected.contains(&symbol);
    Some(match rest.chars().next() {
        Some('“' | '”' | '„' | '‘' | '’') => "use straight double quotes",
        Some('\'') => "write strings in double quotes",
        Some('>') if before.ends_with("--") || before.ends_with('=') => "write `->` for an edge",
        Some('>' | '-') if expects("`->`") => "write `->` for an edge",
        Some(_) if expects("a value") => {
            "write strings with whitespace or punctuation in double quotes"
        }
        Some(_) if expected == ["`=`"] => "write key=value",
        Some(_) if expected == ["`{`"] => "put a name of several words in quotes",
        Some(_) if expects("`]`") => {
            "separate attributes by commas, put strings in double quotes, and end the list with `]`"
        }
        Some(_) if expects("a name") => "write the id of a node",
        Some(_) if expects("`}`") => "begin a node, an edge or an attribute here, or remove it",
        None if expects("`]`") => "end the attributes with `]` and the graph with `}`",
        None if expects("`}`") => "add the missing `}`",
        _ => return None,
    })
}

/// What a rule is called; `None` for those that only say that something bigger is missing. The
/// match is exhaustive so that a new rule is given a name.
fn to_symbol(rule: Rule) -> Option<&'static str> {
    Some(match rule {
        Rule::file | Rule::opening | Rule::digraph | Rule::digraph_word => "`digraph`",
        Rule::EOI => "the end",
        Rule::open_block | Rule::group => "`{`",
        Rule::close_block => "`}`",
        Rule::attributes => "`[`",
        Rule::close_list => "`]`",
        Rule::equals => "`=`",
        Rule::plus => "`+`",
        Rule::arrow => "`->`",
        Rule::statements | Rule::statement | Rule::subgraph_word => "a node or edge",
        Rule::attribute => "an attribute",
        Rule::ident => "a name",
        Rule::word => "a value",
        Rule::string => "a quoted string",
        Rule::refused
        | Rule::rest
        | Rule::block
        | Rule::strict
        | Rule::more
        | Rule::port
        | Rule::no_more
        | Rule::end
        | Rule::group_start
        | Rule::value
        | Rule::name
        | Rule::new_statement
        | Rule::ws
        | Rule::white => return None,
    })
}

/// `strict` before the graph.
pub(crate) fn strict(span: Span) -> Diagnostic {
    let message = "`strict` means nothing here: several edges between two nodes are allowed";
    Diagnostic::warning("strict-graph", span, message).with_fix("remove `strict`")
}

/// `a:n`: the first port of a file, and how many there are.
pub(crate) fn ports(first: Span, count: usize) -> Diagnostic {
    let message = match count {
        1 => "ports mean nothing here: the edge leads to the node".to_owned(),
        _ => format!("ports mean nothing here: edges lead to nodes ({count} ports in this file)"),
    };
    Diagnostic::warning("port", first, message).with_fix("remove the colon and what follows it")
}

fn syntax(span: Span, message: impl Into<String>) -> Diagnostic {
    Diagnostic::error("syntax", span, message)
}

fn not_a_digraph(span: Span, message: &str) -> Diagnostic {
    Diagnostic::error("not-a-digraph", span, message)
        .with_fix("a workflow is written as digraph Name { … }")
}
