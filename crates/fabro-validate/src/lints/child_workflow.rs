use std::collections::HashSet;

use fabro_graph::{Attr, Diagnostic, Node};
use fabro_types::{LineIndex, Severity};

use crate::checking::{Checking, syntax_error};
use crate::family::{ChildError, ChildKey, Family, MAX_DEPTH, Verdict};
use crate::relative::RelativeSources;

/// Sub-workflows that have errors of their own.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Vec<Diagnostic>) {
    let mut seen = HashSet::new();
    for node in checking.workflow.nodes() {
        let Some((key, text)) = child(checking, node) else { continue };
        let Some(attr) = attr(node) else { continue };
        if !seen.insert(attr.span) {
            continue;
        }
        if let Some(error) = error(checking, node, key, text) {
            findings.push(finding(checking, attr, &error));
        }
    }
}

/// The sub-workflow that a node names, and its text.
pub(super) fn child<'a>(checking: &Checking<'_>, node: &'a Node) -> Option<(ChildKey, &'a str)> {
    let attr = attr(node)?;
    let text = attr.value.text()?;
    if attr.name == "stack.child_workflow" {
        let path = checking.sources.join(attr.file.as_deref()?);
        return Some((ChildKey::File(path), text));
    }
    let base = checking.sources.folder().to_owned();
    Some((ChildKey::Inline { base, text: text.to_owned() }, text))
}

fn attr(node: &Node) -> Option<&Attr> {
    node.attrs.get("stack.child_workflow").or_else(|| node.attrs.get("stack.child_dot_source"))
}

fn error(checking: &Checking<'_>, node: &Node, key: ChildKey, text: &str) -> Option<ChildError> {
    let family = checking.family;
    if family.depth >= MAX_DEPTH {
        return Some(refused(format!("sub-workflows are nested more than {MAX_DEPTH} deep")));
    }
    match family.verdicts.borrow().get(&key) {
        Some(Verdict::Valid) => return None,
        Some(Verdict::Invalid(error)) => return Some(error.clone()),
        Some(Verdict::Open) => return Some(refused("it is a sub-workflow of itself".to_owned())),
        None => {}
    }
    family.verdicts.borrow_mut().insert(key.clone(), Verdict::Open);
    let inner = Family {
        depth: family.depth + 1,
        verdicts: std::mem::take(&mut *family.verdicts.borrow_mut()).into(),
    };
    let sources = RelativeSources::new(checking.sources.sources(), key.base());
    let checked = crate::check_in(&node.id, text, sources, checking.inputs, &inner);
    *family.verdicts.borrow_mut() = inner.verdicts.into_inner();
    let error = checked.findings.iter().find(|finding| finding.severity == Severity::Error);
    let error = error.map(|finding| {
        let at = LineIndex::new(text).position(finding.span.start);
        ChildError {
            message: finding.message.clone(),
            line: at.line,
            column: at.column,
            span: finding.span,
            fix: finding.fix.clone(),
        }
    });
    let verdict = error.clone().map_or(Verdict::Valid, Verdict::Invalid);
    family.verdicts.borrow_mut().insert(key, verdict);
    error
}

fn refused(message: String) -> ChildError {
    let fix = Some("let the innermost workflow do its work itself".to_owned());
    ChildError { message, line: 1, column: 1, span: fabro_types::Span::new(0, 1), fix }
}

fn finding(checking: &Checking<'_>, attr: &Attr, error: &ChildError) -> Diagnostic {
    let ChildError { message, line, column, span, fix } = error;
    if let Some(file) = &attr.file {
        let message = format!("the sub-workflow {file} has an error at {line}:{column}: {message}");
        let finding = Diagnostic::error("child-workflow", attr.span, message);
        return Diagnostic { fix: fix.clone(), ..finding };
    }
    let message = format!("the sub-workflow has an error: {message}");
    let said = (message.as_str(), *span, fix.as_deref());
    syntax_error(checking.source, "child-workflow", attr, said)
}
