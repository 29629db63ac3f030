use std::iter::{Copied, Peekable};
use std::slice::Iter;

use fabro_types::{Diagnostic, Span};
use pest::Parser as _;
use pest::iterators::{Pair, Pairs};

use crate::ast::{
    Attribute, AttributeList, Body, Comment, DefaultsOf, Document, End, Group, Literal, Name,
    Statement, StatementKind,
};
use crate::grammar::{Grammar, Rule};
use crate::refusal;
use crate::scan::{self, Scanned};
use crate::value::{Value, unescape_into};

/// Parses a file. The error is the first syntax error; its rule is `syntax`, or a more specific one for
/// DOT syntax that the language rejects. Takes time linear in the size of the file, errors included.
///
/// ```
/// let document = fabro_graph::parse("digraph Demo { start -> work -> exit }").unwrap();
/// assert_eq!(document.name.unwrap().text.as_ref(), "Demo");
///
/// let error = fabro_graph::parse("digraph { a -- b }").unwrap_err();
/// assert_eq!(error.rule, "undirected-edge");
/// ```
pub fn parse(source: &str) -> Result<Document<'_>, Diagnostic> {
    let scanned = scan::scan(source)?;
    let mut statements = Vec::new();
    match by_statements(source, &scanned, |statement| statements.push(statement)) {
        Some(frame) => Ok(frame.around(statements)),
        None => at_once(source, &scanned),
    }
}

/// A file without its statements.
pub(crate) struct Frame<'a> {
    pub(crate) strict: Option<Span>,
    pub(crate) name: Option<Name<'a>>,
    head: Vec<Comment>,
    dangling: Vec<Comment>,
    tail: Vec<Comment>,
}

impl<'a> Frame<'a> {
    fn around(self, statements: Vec<Statement<'a>>) -> Document<'a> {
        let Self { strict, name, head, dangling, tail } = self;
        Document { strict, name, head, body: Body { statements, dangling }, tail }
    }
}

/// Parses one statement after another, which bounds memory by the largest statement. `None` for a
/// syntax error: only the grammar of a whole file reports what is wrong.
pub(crate) fn by_statements<'a>(
    source: &'a str,
    scanned: &Scanned<'_>,
    mut take: impl FnMut(Statement<'a>),
) -> Option<Frame<'a>> {
    let Scanned { code, comments, .. } = scanned;
    let mut builder = Builder::new(source, comments);
    let opening = Grammar::parse(Rule::opening, code).ok()?.next()?;
    let mut at = opening.as_span().end();
    let Braced { strict, name, head, .. } = builder.braced(opening.into_inner()).ok()?;
    loop {
        let rest = &code[at..];
        at += rest.len() - rest.trim_start_matches(|c: char| c.is_whitespace() || c == ';').len();
        if code[at..].starts_with('}') {
            break;
        }
        let some = Grammar::parse(Rule::statements, &code[at..]).ok()?.next()?;
        let end = at + some.as_span().end();
        builder.offset = at;
        for statement in some.into_inner() {
            take(builder.statement(statement).ok()?);
        }
        at = end;
    }
    let dangling = builder.comments_before(at);
    let is_end = code[at + 1..].trim_start().is_empty();
    is_end.then(|| Frame {
        strict,
        name,
        head,
        dangling,
        tail: builder.comments_before(usize::MAX),
    })
}

/// Parses a whole file.
pub(crate) fn at_once<'a>(
    source: &'a str,
    scanned: &Scanned<'_>,
) -> Result<Document<'a>, Diagnostic> {
    let Scanned { code, comments, suspect } = scanned;
    let file = Grammar::parse(Rule::file, code)
        .map_err(|error| {
            let error = refusal::unexpected(source, &error);
            let is_on_its_line = |text: &Span| {
                code.get(text.end..error.span.start).is_some_and(|gap| !gap.contains('\n'))
            };
            match suspect.as_ref().filter(|text| is_on_its_line(text)) {
                Some(text) => scan::open_string(text.start),
                None => error,
            }
        })?
        .flat_map(Pair::into_inner);
    let mut digraph = None;
    for pair in file {
        match pair.as_rule() {
            Rule::digraph => digraph = Some(pair.into_inner()),
            Rule::refused | Rule::rest => return Err(refusal::refused(&pair)),
            _ => {}
        }
    }
    let mut builder = Builder::new(source, comments);
    let Braced { strict, name, head, body, .. } = match digraph {
        Some(pairs) => builder.braced(pairs)?,
        None => Braced::default(),
    };
    Ok(Document { strict, name, head, body, tail: builder.comments_before(usize::MAX) })
}

type Parsed<T> = Result<T, Diagnostic>;

/// Builds the tree from pairs, and attaches each comment to its neighbour.
struct Builder<'a, 'c> {
    source: &'a str,
    comments: Peekable<Copied<Iter<'c, Span>>>,
    // Where the parsed text begins in the source.
    offset: usize,
    // Where the last part ends; the span of a rule may include trailing whitespace and comments.
    end: usize,
}

/// A graph or subgraph with its braces.
#[derive(Default)]
struct Braced<'a> {
    strict: Option<Span>,
    keyword: bool,
    name: Option<Name<'a>>,
    head: Vec<Comment>,
    body: Body<'a>,
}

impl<'a, 'c> Builder<'a, 'c> {
    fn new(source: &'a str, comments: &'c [Span]) -> Self {
        Self { source, comments: comments.iter().copied().peekable(), offset: 0, end: 0 }
    }

    /// The recursion through groups ends at `scan::MAX_NESTING`.
    fn braced(&mut self, pairs: Pairs<'_, Rule>) -> Parsed<Braced<'a>> {
        let mut braced = Braced::default();
        for pair in pairs {
            match pair.as_rule() {
                Rule::strict => braced.strict = Some(self.span(&pair)),
                Rule::subgraph_word => braced.keyword = true,
                Rule::ident | Rule::string => braced.name = Some(self.name(&pair)),
                Rule::open_block => braced.head = self.comments_before(self.span(&pair).start),
                Rule::close_block => {
                    braced.body.dangling = self.comments_before(self.span(&pair).start);
                }
                Rule::statement => {
                    braced.body.statements.push(self.statement(pair)?);
                }
                _ => {}
            }
        }
        Ok(braced)
    }

    fn statement(&mut self, pair: Pair<'_, Rule>) -> Parsed<Statement<'a>> {
        let start = self.span(&pair).start;
        let mut leading = self.comments_before(start);
        let blank_before = self.is_blank_before(start);
        let kind = if is_assignment(&pair) {
            let mut attribute = self.attribute(pair);
            leading.append(&mut attribute.leading);
            StatementKind::Assignment(Box::new(attribute))
        } else {
            self.chain(pair, &mut leading)?
        };
        let span = Span::new(start, self.end);
        leading.extend(self.comments_before(span.end));
        let trailing = self.comment_behind();
        Ok(Statement { kind, leading, trailing, blank_before, span })
    }

    /// Nodes, edges, a subgraph, or defaults, which look like a node.
    fn chain(
        &mut self,
        pair: Pair<'_, Rule>,
        leading: &mut Vec<Comment>,
    ) -> Parsed<StatementKind<'a>> {
        let pairs = pair.into_inner();
        // There is an arrow between two ends, and few attribute lists.
        let mut ends = Vec::with_capacity(pairs.len().div_ceil(2));
        let mut list: Option<AttributeList<'a>> = None;
        for pair in pairs {
            let span = self.span(&pair);
            match pair.as_rule() {
                Rule::ident | Rule::string => {
                    self.end = span.end;
                    ends.push(End::Node(self.name(&pair), Vec::new()));
                }
                Rule::group => {
                    leading.extend(self.comments_before(span.start));
                    let Braced { keyword, name, head, body, .. } =
                        self.braced(pair.into_inner())?;
                    leading.extend(head);
                    self.end = span.end;
                    ends.push(End::Group(Box::new(Group { name, keyword, body, span })));
                }
                Rule::attributes => {
                    leading.extend(self.comments_before(span.start));
                    self.attributes(pair, list.get_or_insert_default());
                }
                Rule::port if let (Some(End::Node(_, ports)), None) = (ends.last_mut(), &list) => {
                    ports.extend(pair.into_inner().map(|port| self.name(&port)));
                    self.end = span.end;
                }
                Rule::arrow if pair.as_str() == "->" && list.is_none() => {}
                Rule::arrow if pair.as_str() == "->" => {
                    return Err(refusal::edge_after_attributes(span));
                }
                _ => return Err(refusal::refused(&pair)),
            }
        }
        match (&ends[..], list) {
            ([End::Node(name, ports)], Some(list))
                if ports.is_empty()
                    && let Some(of) = defaults_of(name) =>
            {
                Ok(StatementKind::Defaults(of, list))
            }
            ([End::Group(_)], Some(_)) => {
                Err(refusal::group_attributes(Span::new(self.end - 1, self.end)))
            }
            (_, list) => match ends.iter().find_map(keyword) {
                Some((word, span)) => Err(refusal::keyword(word, span)),
                None => Ok(StatementKind::Chain(ends, list.unwrap_or_default())),
            },
        }
    }

    /// Appends one block `[..]`.
    fn attributes(&mut self, pair: Pair<'_, Rule>, list: &mut AttributeList<'a>) {
        let span = self.span(&pair);
        // An empty block may have left comments, which now come before its first attribute.
        let mut before = std::mem::take(&mut list.dangling);
        let pairs = pair.into_inner();
        if list.items.is_empty() {
            // All but the closing bracket are attributes.
            list.items.reserve_exact(pairs.len().saturating_sub(1));
        }
        for pair in pairs {
            if pair.as_rule() == Rule::attribute {
                let mut attribute = self.attribute(pair);
                before.append(&mut attribute.leading);
                attribute.leading = std::mem::take(&mut before);
                attribute.trailing = self.comment_behind();
                list.items.push(attribute);
            }
        }
        before.extend(self.comments_before(span.end));
        list.dangling = before;
        self.end = span.end;
    }

    fn attribute(&mut self, pair: Pair<'_, Rule>) -> Attribute<'a> {
        let span = self.span(&pair);
        let mut parts = pair
            .into_inner()
            .filter(|part| matches!(part.as_rule(), Rule::ident | Rule::string | Rule::word));
        let key = match parts.next() {
            Some(key) => self.name(&key),
            None => Name { text: "".into(), quoted: true, span },
        };
        let value = self.literal(parts, span);
        self.end = value.span.end;
        Attribute { key, value, leading: self.comments_before(self.end), trailing: None }
    }

    fn comments_before(&mut self, end: usize) -> Vec<Comment> {
        let mut comments = Vec::new();
        while let Some(span) = self.comments.next_if(|comment| comment.start < end) {
            comments.push(self.comment(span));
        }
        comments
    }

    /// The next comment, when it is the last thing on the line of the part taken last.
    fn comment_behind(&mut self) -> Option<Box<Comment>> {
        let span = *self.comments.peek()?;
        let bytes = self.source.as_bytes();
        let is_separator = |byte: &u8| matches!(byte, b' ' | b'\t' | b',' | b';');
        if !bytes[self.end..span.start].iter().all(is_separator) {
            return None;
        }
        let after = bytes[span.end..].iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\r'));
        if !matches!(after, None | Some(b'\n')) {
            return None;
        }
        self.comments.next();
        Some(Box::new(self.comment(span)))
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

    fn span(&self, pair: &Pair<'_, Rule>) -> Span {
        let span = pair.as_span();
        Span::new(self.offset + span.start(), self.offset + span.end())
    }

    fn name(&self, pair: &Pair<'_, Rule>) -> Name<'a> {
        let span = self.span(pair);
        let written = &self.source[span.start..span.end];
        let quoted = pair.as_rule() == Rule::string;
        let text = if !quoted {
            written.into()
        } else if let Some(text) = plain(written) {
            text.into()
        } else {
            unquote(written).into()
        };
        Name { text, quoted, span }
    }

    /// The value made of these parts: one word, or one or more quoted strings.
    fn literal<'b>(&self, parts: impl Iterator<Item = Pair<'b, Rule>>, attribute: Span) -> Literal {
        let mut parts = parts.peekable();
        let Some(first) = parts.next() else {
            return Literal { value: Value::from(""), written: None, span: attribute };
        };
        let mut span = self.span(&first);
        let source = first.as_str();
        if first.as_rule() == Rule::word {
            let value = Value::from_word(source);
            let is_number =
                matches!(value, Value::Int(_) | Value::Float(_) | Value::Duration { .. });
            let written = is_number.then(|| source.into());
            return Literal { value, written, span };
        }
        if parts.peek().is_none()
            && let Some(text) = plain(source)
        {
            return Literal { value: Value::from(text), written: None, span };
        }
        let mut text = unquote(source);
        let mut written = source.to_owned();
        for part in parts {
            span = span.to(self.span(&part));
            text.push_str(&unquote(part.as_str()));
            written.push_str(" + ");
            written.push_str(part.as_str());
        }
        let written = Some(written.replace("\r\n", "\n").into());
        Literal { value: Value::String(text.into()), written, span }
    }
}

fn is_assignment(statement: &Pair<'_, Rule>) -> bool {
    statement.clone().into_inner().nth(1).is_some_and(|part| part.as_rule() == Rule::equals)
}

fn defaults_of(name: &Name<'_>) -> Option<DefaultsOf> {
    let is = |word: &str| !name.quoted && name.text.eq_ignore_ascii_case(word);
    if is("node") {
        Some(DefaultsOf::Node)
    } else if is("edge") {
        Some(DefaultsOf::Edge)
    } else {
        is("graph").then_some(DefaultsOf::Graph)
    }
}

/// A keyword in the place of a node.
fn keyword<'e>(end: &'e End<'_>) -> Option<(&'e str, Span)> {
    match end {
        End::Node(name, _) if !name.quoted && refusal::is_keyword(&name.text) => {
            Some((&name.text, name.span))
        }
        _ => None,
    }
}

/// The content of a string that needs neither unescaping nor escaping.
fn plain(source: &str) -> Option<&str> {
    let odd = |byte| matches!(byte, b'\\' | b'\r' | b'\n' | b'\t');
    (!source.bytes().any(odd)).then(|| &source[1..source.len() - 1])
}

fn unquote(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    unescape_into(&source[1..source.len() - 1], &mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads it in pieces and as a whole.
    #[track_caller]
    fn check(source: &str) -> Option<Document<'_>> {
        let scanned = scan::scan(source).unwrap();
        let whole = at_once(source, &scanned).ok();
        let mut statements = Vec::new();
        let frame = by_statements(source, &scanned, |statement| statements.push(statement));
        let pieces = frame.map(|frame| frame.around(statements));
        assert_eq!(pieces, whole, "{source}");
        whole
    }

    #[test]
    fn pieces_are_the_whole() {
        let all = [
            "digraph {}",
            "\u{feff} // first\ndigraph \"two words\" { /* head */ ; ;\n}  // last\n// tail\n",
            "digraph a {\n# one\nx=1\n\n// two\nb [c=\"d\" // three\n, e=1s] // four\n;b->c\n->d// five\n}",
            "digraph { a; subgraph s { b // in\n -> {c; d} }\n\n e -> f [x=y][z=1] // out\n}",
            "digraph { a\u{2003}\u{85}[label=\"\u{e7} } ; //\" + \"x\"]\n}",
        ];
        for source in all {
            assert!(check(source).is_some(), "{source}");
        }
        let many: Vec<_> =
            (0..100).map(|at| format!("n{at} [label=\"{at}\"] // c{at}\nn{at} -> m\n\n")).collect();
        for count in [15, 16, 17, 32, 100] {
            assert!(check(&format!("digraph {{ {} }}", many[..count].concat())).is_some());
        }
    }

    #[test]
    fn what_does_not_fit_fits_in_neither() {
        let wrong = [
            "",
            "graph {}",
            "digraph { a -- b }",
            "digraph { a -> }",
            "digraph { a } }",
            "digraph { a } digraph {}",
            "digraph { a",
            "digraph { a [b] }",
            "digraph { node }",
            "digraph a b {}",
        ];
        for source in wrong {
            assert_eq!(check(source), None, "{source}");
        }
    }
}
