//! What the tests of all lints share.

use fabro_graph::MemorySources;
use fabro_types::{Diagnostic, LineIndex, Severity};
use serde_json::{Map, Value};

/// The findings of one rule, in a graph with these statements: `line:column rule: message`, the
/// underlined text, the fix.
pub(crate) fn reported(rule: &str, body: &str) -> String {
    reported_with(rule, body, &[], None)
}

/// The same with files and inputs.
pub(crate) fn reported_with(
    rule: &str,
    body: &str,
    files: &[(&str, &str)],
    inputs: Option<Value>,
) -> String {
    let source = format!("digraph t {{ {body} }}");
    let inputs: Option<Map<String, Value>> = inputs.and_then(|inputs| inputs.as_object().cloned());
    let checked = crate::check("t", &source, &sources(files), inputs.as_ref());
    let findings = checked.findings.iter().filter(|finding| finding.rule == rule);
    let shown: Vec<String> = findings.map(|finding| show(&source, finding)).collect();
    if shown.is_empty() { "nothing".to_owned() } else { shown.join("\n") }
}

pub(crate) fn sources(files: &[(&str, &str)]) -> MemorySources {
    let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
    MemorySources(files.collect())
}

pub(crate) fn show(source: &str, finding: &Diagnostic) -> String {
    let at = LineIndex::new(source).position(finding.span.start);
    let marked = source[finding.span.start..finding.span.end].replace('\n', "\\n");
    let fix = finding.fix.as_deref().unwrap_or("-");
    let severity = match finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let message = &finding.message;
    format!("{}:{} {severity}: {message}\n  at: {marked}\n  fix: {fix}", at.line, at.column)
}
