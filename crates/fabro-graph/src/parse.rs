use std::iter::Peekable;
use std::vec::IntoIter;

use fabro_types::{Diagnostic, Span};
use pest::Parser as _;
use pest::iterators::{Pair, Pairs};

use crate::ast::{
    Attribute, AttributeList, Body, Comment, DefaultsOf, Document, End, Group, Literal, Name,
    Statement, StatementKind,
};
use crate::grammar::{Grammar, Rule};
use crate::value::{Value, unescape_into};
use crate::{refusal, scan};

/// Parses a file. The error is the first place that does not fit the syntax; its rule is `syntax`,
/// or a more exact one for what the language refuses. Takes time linear in the file's size.
///
/// ```
/// let document = fabro_graph::parse("digraph Demo { start -> work -> exit }").unwrap();
/// assert_eq!(document.name.unwrap().text.as_ref(), "Demo");
///
/// let error = fabro_graph::parse("digraph { a -- b }").unwrap_err();
/// assert_eq!(error.rule, "undirected-edge");
/// ```
pub fn parse(source: &str) -> Result<Document, Diagnostic> {
    let comments = scan::scan(source)?;
    let file = Grammar::parse(Rule::file, source)
        .map_err(|error| refusal::unexpected(source, &error))?
        .flat_map(Pair::into_inner);
    let mut digraph = None;
    for pair in file {
        match pair.as_rule() {
            Rule::digraph => digraph = Some(pair.into_inner()),
            Rule::refused | Rule::rest => return Err(refusal::refused(&pair)),
            _ => {}
        }
    }
    let mut builder = Builder { source, comments: comments.into_iter().peekable() };
    let Braced { name, head, body, .. } = match digraph {
        Some(pairs) => builder.braced(pairs)?,
        None => Braced::default(),
    };
    Ok(Document { name, head, body, tail: builder.comments_before(usize::MAX) })
}

type Parsed<T> = Result<T, Diagnostic>;

/// Turns pairs into the tree, and gives each comment to what it stands next to.
struct Builder<'a> {
    source: &'a str,
    comments: Peekable<IntoIter<Span>>,
}

/// A graph or subgraph with its braces.
#[derive(Default)]
struct Braced {
    keyword: bool,
    name: Option<Name>,
    head: Vec<Comment>,
    body: Body,
}

impl Builder<'_> {
    /// The recursion through groups ends at `scan::MAX_NESTING`.
    fn braced(&mut self, pairs: Pairs<'_, Rule>) -> Parsed<Braced> {
        let mut braced = Braced::default();
        for pair in pairs {
            match pair.as_rule() {
                Rule::subgraph_word => braced.keyword = true,
                Rule::ident | Rule::string => braced.name = Some(name(&pair)),
                Rule::open_block => braced.head = self.comments_before(span(&pair).start),
                Rule::close_block => {
                    braced.body.dangling = self.comments_before(span(&pair).start);
                }
                Rule::defaults | Rule::assignment | Rule::chain => {
                    braced.body.statements.push(self.statement(pair)?);
                }
                _ => {}
            }
        }
        Ok(braced)
    }

    fn statement(&mut self, pair: Pair<'_, Rule>) -> Parsed<Statement> {
        let span = span(&pair);
        let mut leading = self.comments_before(span.start);
        let blank_before = self.is_blank_before(span.start);
        let kind = match pair.as_rule() {
            Rule::assignment => StatementKind::Assignment(self.attribute(pair)),
            Rule::defaults => self.defaults(pair, &mut leading),
            _ => self.chain(pair, &mut leading)?,
        };
        leading.extend(self.comments_before(span.end));
        let trailing = self.comment_behind(span.end);
        Ok(Statement { kind, leading, trailing, blank_before, span })
    }

    fn defaults(&mut self, pair: Pair<'_, Rule>, leading: &mut Vec<Comment>) -> StatementKind {
        let mut of = DefaultsOf::Graph;
        let mut list = AttributeList::default();
        for pair in pair.into_inner() {
            match pair.as_rule() {
                Rule::defaults_word => {
                    of = match pair.as_str().as_bytes()[0].to_ascii_lowercase() {
                        b'n' => DefaultsOf::Node,
                        b'e' => DefaultsOf::Edge,
                        _ => DefaultsOf::Graph,
                    };
                }
                Rule::attributes => self.attributes(pair, &mut list, leading),
                _ => {}
            }
        }
        StatementKind::Defaults(of, list)
    }

    fn chain(&mut self, pair: Pair<'_, Rule>, leading: &mut Vec<Comment>) -> Parsed<StatementKind> {
        let mut ends = Vec::new();
        let mut list = AttributeList::default();
        for pair in pair.into_inner() {
            let span = span(&pair);
            match pair.as_rule() {
                Rule::ident if refusal::is_keyword(pair.as_str()) => {
                    return Err(refusal::keyword(&pair));
                }
                Rule::ident | Rule::string => ends.push(End::Node(name(&pair))),
                Rule::port => return Err(refusal::refused(&pair)),
                Rule::arrow if pair.as_str() == "--" => return Err(refusal::refused(&pair)),
                Rule::group => {
                    leading.extend(self.comments_before(span.start));
                    let Braced { keyword, name, head, body } = self.braced(pair.into_inner())?;
                    leading.extend(head);
                    ends.push(End::Group(Group { name, keyword, body, span }));
                }
                Rule::attributes => {
                    if let [End::Group(_)] = ends[..] {
                        return Err(refusal::group_attributes(span));
                    }
                    self.attributes(pair, &mut list, leading);
                }
                _ => {}
            }
        }
        Ok(StatementKind::Chain(ends, list))
    }

    /// Appends one block `[..]`. Comments before it go to the statement.
    fn attributes(
        &mut self,
        pair: Pair<'_, Rule>,
        list: &mut AttributeList,
        leading: &mut Vec<Comment>,
    ) {
        let span = span(&pair);
        leading.extend(self.comments_before(span.start));
        // A block without attributes may have left some, which now stand before others.
        let mut before = std::mem::take(&mut list.dangling);
        for pair in pair.into_inner() {
            if pair.as_rule() == Rule::attribute {
                let end = self::span(&pair).end;
                let mut attribute = self.attribute(pair);
                before.append(&mut attribute.leading);
                attribute.leading = std::mem::take(&mut before);
                attribute.trailing = self.comment_behind(end);
                list.items.push(attribute);
            }
        }
        before.extend(self.comments_before(span.end));
        list.dangling = before;
    }

    fn attribute(&mut self, pair: Pair<'_, Rule>) -> Attribute {
        let span = span(&pair);
        let leading = self.comments_before(span.end);
        let mut parts = pair
            .into_inner()
            .filter(|part| matches!(part.as_rule(), Rule::ident | Rule::string | Rule::word));
        let key = match parts.next() {
            Some(key) => name(&key),
            None => Name { text: "".into(), quoted: true, span },
        };
        Attribute { key, value: literal(parts, span), leading, trailing: None }
    }

    fn comments_before(&mut self, end: usize) -> Vec<Comment> {
        let mut comments = Vec::new();
        while let Some(span) = self.comments.next_if(|comment| comment.start < end) {
            comments.push(self.comment(span));
        }
        comments
    }

    /// The next comment, when it is the last thing on the line that ends here.
    fn comment_behind(&mut self, end: usize) -> Option<Comment> {
        let span = *self.comments.peek()?;
        let bytes = self.source.as_bytes();
        let is_separator = |byte: &u8| matches!(byte, b' ' | b'\t' | b',' | b';');
        if !bytes[end..span.start].iter().all(is_separator) {
            return None;
        }
        let after = bytes[span.end..].iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\r'));
        if !matches!(after, None | Some(b'\n')) {
            return None;
        }
        self.comments.next();
        Some(self.comment(span))
    }

    fn comment(&self, span: Span) -> Comment {
        let written = self.source[span.start..span.end].trim_end().replace("\r\n", "\n");
        let is_first = self.source[..span.start].trim_start_matches('\u{feff}').is_empty();
        let text = match written.strip_prefix('#') {
            Some(rest) if !(is_first && rest.starts_with('!')) => format!("//{rest}"),
            _ => written,
        };
        Comment { text, blank_before: self.is_blank_before(span.start), span }
    }

    /// Whether an empty line ends just before this place.
    fn is_blank_before(&self, start: usize) -> bool {
        let bytes = self.source.as_bytes()[..start].iter().rev();
        bytes.take_while(|byte| byte.is_ascii_whitespace()).filter(|byte| **byte == b'\n').count()
            > 1
    }
}

fn span(pair: &Pair<'_, Rule>) -> Span {
    let span = pair.as_span();
    Span::new(span.start(), span.end())
}

fn name(pair: &Pair<'_, Rule>) -> Name {
    let written = pair.as_str();
    let quoted = pair.as_rule() == Rule::string;
    let text = if quoted { unquote(written).into() } else { written.into() };
    Name { text, quoted, span: span(pair) }
}

/// The value made of these parts: one word, or one or more quoted texts.
fn literal<'a>(parts: impl Iterator<Item = Pair<'a, Rule>>, attribute: Span) -> Literal {
    let mut parts = parts.peekable();
    let Some(first) = parts.next() else {
        return Literal { value: Value::from(""), written: None, span: attribute };
    };
    let mut span = span(&first);
    let source = first.as_str();
    if first.as_rule() == Rule::word {
        let value = Value::from_word(source);
        let is_number = matches!(value, Value::Int(_) | Value::Float(_) | Value::Duration { .. });
        let written = is_number.then(|| source.into());
        return Literal { value, written, span };
    }
    let is_plain =
        |source: &str| !source.bytes().any(|byte| matches!(byte, b'\\' | b'\r' | b'\n' | b'\t'));
    if parts.peek().is_none() && is_plain(source) {
        let text = &source[1..source.len() - 1];
        return Literal { value: Value::from(text), written: None, span };
    }
    let mut text = unquote(source);
    let mut written = source.to_owned();
    for part in parts {
        span = span.to(self::span(&part));
        text.push_str(&unquote(part.as_str()));
        written.push_str(" + ");
        written.push_str(part.as_str());
    }
    let written = Some(written.replace("\r\n", "\n").into());
    Literal { value: Value::String(text.into()), written, span }
}

fn unquote(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    unescape_into(&source[1..source.len() - 1], &mut text);
    text
}
