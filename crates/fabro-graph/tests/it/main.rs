//! Tests of the language from outside: text in, text out.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail loudly")]
#![expect(clippy::format_collect, clippy::format_push_string, reason = "tests need no speed")]

mod files;
mod formatting;
mod hostile;
mod imports;
mod joins;
mod lowering;
mod properties;
mod reference;
mod syntax;

use std::fmt::Write as _;

use fabro_graph::{Attrs, Diagnostic, Origin, Workflow};

/// One line a finding: rule, the text it points at, message and fix.
fn findings(source: &str, findings: &[Diagnostic]) -> String {
    let mut text = String::new();
    for finding in findings {
        let Diagnostic { rule, message, span, fix, .. } = finding;
        let at: String = source[span.start..span.end].chars().take(30).collect();
        let fix = fix.as_deref().unwrap_or("-");
        writeln!(text, "{rule} at {}..{} {at:?}: {message}; {fix}", span.start, span.end).unwrap();
    }
    text
}

/// The whole workflow in a few lines; `*` marks defaults.
fn outline(workflow: &Workflow) -> String {
    let mut text = format!("{}{}\n", workflow.name(), attrs(workflow.attrs()));
    for node in workflow.nodes() {
        let classes: String = node.classes.iter().map(|class| format!(" .{class}")).collect();
        writeln!(text, "{}: {}{classes}{}", node.id, node.kind, attrs(&node.attrs)).unwrap();
    }
    for edge in workflow.edges() {
        let [from, to] = [edge.from, edge.to].map(|end| &workflow.node(end).id);
        writeln!(text, "{from} -> {to}{}", attrs(&edge.attrs)).unwrap();
    }
    text
}

fn attrs(attrs: &Attrs) -> String {
    attrs
        .iter()
        .map(|attr| {
            let mark = if attr.origin == Origin::Default { "*" } else { "" };
            format!(" {mark}{}={}", attr.name, attr.value)
        })
        .collect()
}
