//! The syntax tree of a file, as the parser makes it and the formatter prints it. Its names are parts
//! of the source.

use std::borrow::Cow;

use fabro_types::Span;

use crate::value::{Value, quote};

/// A parsed file: everything that was written, comments included, without meaning.
#[derive(Clone, Debug, PartialEq)]
pub struct Document<'a> {
    /// The word `strict`, which means nothing here.
    pub strict: Option<Span>,
    /// The graph's name, when it has one.
    pub name: Option<Name<'a>>,
    /// Comments before the opening brace.
    pub head: Vec<Comment>,
    /// What stands between the braces.
    pub body: Body<'a>,
    /// Comments after the closing brace.
    pub tail: Vec<Comment>,
}

/// The statements between two braces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Body<'a> {
    /// In file order.
    pub statements: Vec<Statement<'a>>,
    /// Comments after the last statement.
    pub dangling: Vec<Comment>,
}

/// One statement with the comments that belong to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement<'a> {
    /// What it says.
    pub kind: StatementKind<'a>,
    /// Comments before it (and, rarely, inside it where no attribute can hold them).
    pub leading: Vec<Comment>,
    /// A comment that ends its last line.
    pub trailing: Option<Box<Comment>>,
    /// Whether an empty line stands before it and its leading comments.
    pub blank_before: bool,
    /// From its first to its last byte, without comments around it.
    pub span: Span,
}

/// The forms a statement has.
#[derive(Clone, Debug, PartialEq)]
pub enum StatementKind<'a> {
    /// `key=value`: an attribute of the graph or subgraph around it.
    Assignment(Box<Attribute<'a>>),
    /// `graph [..]`, `node [..]`, `edge [..]`.
    Defaults(DefaultsOf, AttributeList<'a>),
    /// A node, a subgraph, or edges: `a`, `{b; c}`, `a -> b -> c`, with attributes. A lone
    /// subgraph has none.
    Chain(Vec<End<'a>>, AttributeList<'a>),
}

/// What a defaults statement is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultsOf {
    /// The graph or subgraph around it.
    Graph,
    /// Nodes made after it.
    Node,
    /// Edges made after it.
    Edge,
}

/// One end of an edge, or a statement's only element.
#[derive(Clone, Debug, PartialEq)]
pub enum End<'a> {
    /// A node, and the ports written behind it, which mean nothing here: `a:n`.
    Node(Name<'a>, Vec<Name<'a>>),
    /// `subgraph name { … }` or `{ … }`.
    Group(Box<Group<'a>>),
}

impl End<'_> {
    /// Where it is written.
    pub fn span(&self) -> Span {
        match self {
            Self::Node(name, _) => name.span,
            Self::Group(group) => group.span,
        }
    }
}

/// A subgraph.
#[derive(Clone, Debug, PartialEq)]
pub struct Group<'a> {
    /// Its name, when it has one.
    pub name: Option<Name<'a>>,
    /// Whether the word `subgraph` is written.
    pub keyword: bool,
    /// What stands between its braces.
    pub body: Body<'a>,
    /// From the word or brace it begins with to its closing brace.
    pub span: Span,
}

/// The attributes of a statement; several blocks `[..][..]` are one list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttributeList<'a> {
    /// In file order, repeated keys included.
    pub items: Vec<Attribute<'a>>,
    /// Comments after the last attribute.
    pub dangling: Vec<Comment>,
}

/// `key=value`.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribute<'a> {
    /// As written, older names included.
    pub key: Name<'a>,
    /// What it is set to.
    pub value: Literal,
    /// Comments before it.
    pub leading: Vec<Comment>,
    /// A comment that ends its line.
    pub trailing: Option<Box<Comment>>,
}

impl Attribute<'_> {
    /// From the key to the end of the value.
    pub fn span(&self) -> Span {
        self.key.span.to(self.value.span)
    }
}

/// An id or a key, quoted or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name<'a> {
    /// Without quotes, escapes resolved.
    pub text: Cow<'a, str>,
    /// Whether it was written in quotes; a quoted keyword is an ordinary name.
    pub quoted: bool,
    /// With its quotes.
    pub span: Span,
}

/// A value as written.
#[derive(Clone, Debug, PartialEq)]
pub struct Literal {
    /// What it means, read without knowing its key.
    pub value: Value,
    /// How it is written, when printing the value would look different: `"a\"b"`, `"a" + "b"`,
    /// `.5`. Line ends are `\n`.
    pub(crate) written: Option<Box<str>>,
    /// With its quotes.
    pub span: Span,
}

impl Literal {
    /// The source text, line ends as `\n`.
    pub fn source(&self) -> String {
        match (&self.written, &self.value) {
            (Some(written), _) => written.to_string(),
            (None, Value::String(text)) => quote(text),
            (None, value) => value.to_string(),
        }
    }
}

/// A comment with its marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comment {
    /// `// …` or `/* … */`; a `#` line is kept as `// …`, except for a `#!` in the first line.
    /// Line ends are `\n`.
    pub text: String,
    /// Whether an empty line stands before it.
    pub blank_before: bool,
    /// Where it is written.
    pub span: Span,
}
