use crate::ast::{
    Attribute, AttributeList, Body, Comment, DefaultsOf, Document, End, Group, Name, Statement,
    StatementKind,
};
use crate::lower::is_plain_id;
use crate::refusal::is_keyword;
use crate::value::quote;

const WIDTH: usize = 100;
const INDENT: usize = 4;
// Deeper levels are not indented further, so that the text cannot grow out of all proportion.
const MAX_INDENT: usize = 16 * INDENT;

/// The canonical text of a file: four spaces a level, one statement a line, attributes on one line
/// when they fit into 100 columns, names without quotes where the language reads them so, at most one
/// empty line in a row. Values stay as they are written, and so do comments. Formatting the result
/// again changes nothing.
///
/// ```
/// let document = fabro_graph::parse("digraph { a->b[timeout=30s];// go\n}").unwrap();
/// assert_eq!(
///     fabro_graph::format(&document),
///     "digraph {\n    a -> b [timeout=30s] // go\n}\n"
/// );
/// ```
pub fn format(document: &Document<'_>) -> String {
    let mut printer = Printer { out: String::new(), depth: 0 };
    printer.comments(&document.head, true);
    if document.strict.is_some() {
        printer.out.push_str("strict ");
    }
    printer.out.push_str("digraph ");
    if let Some(name) = &document.name {
        printer.out.push_str(&name_text(name));
        printer.out.push(' ');
    }
    printer.block(&document.body);
    printer.out.push('\n');
    printer.comments(&document.tail, false);
    printer.out
}

struct Printer {
    out: String,
    depth: usize,
}

impl Printer {
    /// `{`, the statements, and `}` without a line end.
    fn block(&mut self, body: &Body<'_>) {
        if body.statements.is_empty() && body.dangling.is_empty() {
            self.out.push_str("{}");
            return;
        }
        self.out.push_str("{\n");
        self.depth += 1;
        for (at, statement) in body.statements.iter().enumerate() {
            self.statement(statement, at == 0);
        }
        self.comments(&body.dangling, body.statements.is_empty());
        self.depth -= 1;
        self.indent();
        self.out.push('}');
    }

    fn statement(&mut self, statement: &Statement<'_>, is_first: bool) {
        self.comments(&statement.leading, is_first);
        if statement.blank_before && !(is_first && statement.leading.is_empty()) {
            self.out.push('\n');
        }
        self.indent();
        match &statement.kind {
            StatementKind::Assignment(attribute) => self.out.push_str(&attribute_text(attribute)),
            StatementKind::Defaults(of, list) => {
                self.out.push_str(match of {
                    DefaultsOf::Graph => "graph",
                    DefaultsOf::Node => "node",
                    DefaultsOf::Edge => "edge",
                });
                if list.items.is_empty() && list.dangling.is_empty() {
                    self.out.push_str(" []");
                }
                self.attributes(list);
            }
            StatementKind::Chain(ends, list) => {
                for (at, end) in ends.iter().enumerate() {
                    if at > 0 {
                        self.out.push_str(" -> ");
                    }
                    match end {
                        End::Node(name, ports) => self.out.push_str(&node_text(name, ports)),
                        End::Group(group) => self.group(group, ends.len() > 1),
                    }
                }
                self.attributes(list);
            }
        }
        self.trailing(statement.trailing.as_deref());
        self.out.push('\n');
    }

    fn group(&mut self, group: &Group<'_>, in_chain: bool) {
        if let Some(ids) = inline_ids(group)
            && in_chain
        {
            self.out.extend(["{ ", &ids.join("; "), " }"]);
            return;
        }
        if group.keyword {
            self.out.push_str("subgraph ");
        }
        if let Some(name) = &group.name {
            self.out.push_str(&name_text(name));
            self.out.push(' ');
        }
        self.block(&group.body);
    }

    /// ` [..]`, or nothing when there is nothing to say.
    fn attributes(&mut self, list: &AttributeList<'_>) {
        if list.items.is_empty() && list.dangling.is_empty() {
            return;
        }
        let texts: Vec<String> = list.items.iter().map(attribute_text).collect();
        let column = self.out.len() - self.out.rfind('\n').map_or(0, |at| at + 1);
        let has_comments = !list.dangling.is_empty()
            || list.items.iter().any(|item| !item.leading.is_empty() || item.trailing.is_some());
        let length: usize = texts.iter().map(|text| text.chars().count() + 2).sum();
        if !has_comments && column + length < WIDTH && !texts.iter().any(|text| text.contains('\n'))
        {
            self.out.extend([" [", &texts.join(", "), "]"]);
            return;
        }
        self.out.push_str(" [\n");
        self.depth += 1;
        for (at, (item, text)) in list.items.iter().zip(&texts).enumerate() {
            self.comments(&item.leading, true);
            self.indent();
            self.out.push_str(text);
            if at + 1 < texts.len() {
                self.out.push(',');
            }
            self.trailing(item.trailing.as_deref());
            self.out.push('\n');
        }
        self.comments(&list.dangling, true);
        self.depth -= 1;
        self.indent();
        self.out.push(']');
    }

    /// Comments on lines of their own; `is_first` when no empty line may stand before them.
    fn comments(&mut self, comments: &[Comment], is_first: bool) {
        for (at, comment) in comments.iter().enumerate() {
            if comment.blank_before && !(is_first && at == 0) {
                self.out.push('\n');
            }
            self.indent();
            self.out.push_str(&comment.text);
            self.out.push('\n');
        }
    }

    fn trailing(&mut self, comment: Option<&Comment>) {
        if let Some(comment) = comment {
            self.out.push(' ');
            self.out.push_str(&comment.text);
        }
    }

    fn indent(&mut self) {
        self.out.extend(std::iter::repeat_n(' ', (self.depth * INDENT).min(MAX_INDENT)));
    }
}

/// The ids of a group that fits into its edge: plain nodes only, on one short line.
fn inline_ids(group: &Group<'_>) -> Option<Vec<String>> {
    if group.name.is_some() || group.keyword || !group.body.dangling.is_empty() {
        return None;
    }
    let id = |statement: &Statement<'_>| match &statement.kind {
        StatementKind::Chain(ends, list)
            if list.items.is_empty()
                && list.dangling.is_empty()
                && statement.leading.is_empty()
                && statement.trailing.is_none() =>
        {
            match &ends[..] {
                [End::Node(name, ports)] => Some(node_text(name, ports)),
                _ => None,
            }
        }
        _ => None,
    };
    let ids: Vec<String> = group.body.statements.iter().map(id).collect::<Option<_>>()?;
    let length: usize = ids.iter().map(|id| id.chars().count() + 2).sum();
    (!ids.is_empty() && length <= WIDTH - 20).then_some(ids)
}

fn attribute_text(attribute: &Attribute<'_>) -> String {
    let key = name_text(&attribute.key);
    std::format!("{key}={}", attribute.value.source())
}

/// An end of an edge with its ports.
fn node_text(name: &Name<'_>, ports: &[Name<'_>]) -> String {
    let mut text = name_text(name);
    for port in ports {
        text.extend([":", &name_text(port)]);
    }
    text
}

fn name_text(name: &Name<'_>) -> String {
    if is_bare_name(&name.text) && !is_keyword(&name.text) {
        name.text.to_string()
    } else {
        quote(&name.text)
    }
}

/// Whether the language reads the text without quotes as the same name: letters, digits and `_`, with
/// single `.` and `-` between them.
fn is_bare_name(text: &str) -> bool {
    let mut parts = text.split(['.', '-']);
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    parts.next().is_some_and(is_plain_id) && parts.all(is_part)
}
