use std::collections::HashSet;

use fabro_graph::{Attr, Diagnostic, Node, NodeKind};
use fabro_plan::attribute_error;
use fabro_types::{LineIndex, MAX_SUB_WORKFLOW_DEPTH, Position, Severity, Span, SyntaxError};

use crate::checking::Checking;
use crate::family::{ChildError, ChildKey, ChildState, Family};
use crate::findings::Findings;
use crate::relative::RelativeSources;

/// Sub-workflows that have errors of their own.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let mut seen = HashSet::new();
    for node in checking.workflow.nodes() {
        ignored_inline(node, findings);
        let Some((key, text)) = child(checking, node) else { continue };
        let Some(attr) = attr(node) else { continue };
        if !seen.insert(attr.span) {
            continue;
        }
        if let Some(error) = error(checking, node, key, text) {
            findings.0.push(finding(checking, attr, error));
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
    let base = checking.sources.folder.to_owned();
    Some((ChildKey::Inline { base, text: text.to_owned() }, text))
}

/// Of two sub-workflows the one in a file counts.
fn ignored_inline(node: &Node, findings: &mut Findings) {
    if node.kind == NodeKind::ManagerLoop
        && let Some(file) = node.attrs.get("stack.child_workflow")
        && let Some(inline) = node.attrs.get("stack.child_dot_source")
    {
        let message =
            format!("`{}` has no effect: `{}` names the sub-workflow", inline.name, file.name);
        findings.warning("child-workflow", inline.span, message, "remove one of them");
    }
}

fn attr(node: &Node) -> Option<&Attr> {
    node.attrs.get("stack.child_workflow").or_else(|| node.attrs.get("stack.child_dot_source"))
}

fn error(checking: &Checking<'_>, node: &Node, key: ChildKey, text: &str) -> Option<ChildError> {
    let family = checking.family;
    if family.depth >= MAX_SUB_WORKFLOW_DEPTH {
        let message = format!("sub-workflows are nested more than {MAX_SUB_WORKFLOW_DEPTH} deep");
        return Some(refused(message));
    }
    match family.checked.borrow().get(&key) {
        Some(ChildState::Checked(error)) => return error.clone(),
        Some(ChildState::InProgress) => return Some(refused("it is a sub-workflow of itself")),
        None => {}
    }
    family.checked.borrow_mut().insert(key.clone(), ChildState::InProgress);
    let inner = Family {
        depth: family.depth + 1,
        checked: std::mem::take(&mut *family.checked.borrow_mut()).into(),
    };
    let sources = RelativeSources::new(checking.sources.sources, key.base());
    let checked = crate::check_in(&node.id, text, sources, checking.inputs, &inner);
    *family.checked.borrow_mut() = inner.checked.into_inner();
    let mut findings = checked.findings.into_iter();
    let error = findings.find(|finding| finding.severity == Severity::Error).map(|finding| {
        let position = LineIndex::new(text).position(finding.span.start);
        let Diagnostic { message, span, fix, .. } = finding;
        ChildError { position, error: SyntaxError { message, span, fix } }
    });
    family.checked.borrow_mut().insert(key, ChildState::Checked(error.clone()));
    error
}

fn refused(message: impl Into<String>) -> ChildError {
    let error = SyntaxError::new(message, Span::new(0, 1));
    ChildError {
        position: Position { line: 1, column: 1 },
        error: error.with_fix("let the innermost workflow do its work itself"),
    }
}

fn finding(checking: &Checking<'_>, attr: &Attr, error: ChildError) -> Diagnostic {
    let ChildError { position: Position { line, column }, mut error } = error;
    let message = &error.message;
    if let Some(file) = &attr.file {
        error.message =
            format!("the sub-workflow {file} has an error at {line}:{column}: {message}");
        error.span = attr.span;
        return error.into_diagnostic("child-workflow");
    }
    error.message = format!("the sub-workflow has an error: {message}");
    attribute_error(checking.workflow.source(), "child-workflow", attr, &error)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use fabro_types::MAX_SUB_WORKFLOW_DEPTH;

    use crate::tests::support::{reported, reported_with};

    #[test]
    fn errors_of_a_file_are_told_with_their_place() {
        insta::assert_snapshot!(reported_with("child-workflow", r#"start -> m -> exit; m [shape=house, stack.child_workflow="sub/child.fabro"]"#, &[("sub/child.fabro", r#"digraph {
  start -> work -> exit
  work [prompt="@ask.md", retry_target=wrok]
}"#), ("sub/ask.md", "Work.")], None), @r#"
        1:70 error: the sub-workflow sub/child.fabro has an error at 3:40: `retry_target` names `wrok`, but there is no such node
          at: "sub/child.fabro"
          fix: did you mean `work`?
        "#);
        insta::assert_snapshot!(reported_with("child-workflow", r#"start -> m -> exit; m [shape=house, stack.child_workflow="sub/child.fabro"]"#, &[("sub/child.fabro", r#"digraph {
  start -> work -> exit
  work [prompt="@ask.md"]
}"#)], None), @r#"
        1:70 error: the sub-workflow sub/child.fabro has an error at 3:16: `prompt` names the file `ask.md`: no such file
          at: "sub/child.fabro"
          fix: create the file, correct the path, which is relative to this workflow, or write @@ for a text that begins with @
        "#);
        insta::assert_snapshot!(reported_with("child-workflow", r#"start -> m -> exit; m [shape=house, stack.child_workflow="sub/child.fabro"]"#, &[("sub/child.fabro", r#"digraph { start -> work -> exit; work [prompt="@ask.md"] }"#), ("sub/ask.md", "Work.")], None), @"nothing");
        insta::assert_snapshot!(reported_with("child-workflow", r#"start -> m -> exit; m [shape=house, stack.child_workflow="sub/child.fabro"]"#, &[("sub/child.fabro", r#"digraph { start -> work -> exit; work [prompt="{{ inputs.repo }}"] }"#)], Some(json!({}))), @r#"
        1:70 error: the sub-workflow sub/child.fabro has an error at 1:51: the input `repo` is not given
          at: "sub/child.fabro"
          fix: set it under [run.inputs], or give the run an input repo=…
        "#);
    }

    #[test]
    fn errors_of_an_inline_one_are_told_where_they_are() {
        insta::assert_snapshot!(reported("child-workflow", r#"start -> m -> exit; m [shape=house, stack.child_dot_source="digraph { start -> work -> exit; work [prompt=\"Work.\", retry_target=wrok] }"]"#), @r"
        1:143 error: the sub-workflow has an error: `retry_target` names `wrok`, but there is no such node
          at: wrok
          fix: did you mean `work`?
        ");
        insta::assert_snapshot!(reported("child-workflow", r#"start -> m -> exit; m [shape=house, stack.child_dot_source="digraph { start -> exit }"]"#), @"nothing");
    }

    #[test]
    fn only_one_counts() {
        insta::assert_snapshot!(reported_with("child-workflow", r#"start -> m -> exit; m [shape=house, stack.child_dot_source="digraph { oops }", stack.child_workflow="c.fabro"]"#, &[("c.fabro", "digraph { start -> exit }")], None), @r#"
        1:72 warning: `stack.child_dot_source` has no effect: `stack.child_workflow` names the sub-workflow
          at: "digraph { oops }"
          fix: remove one of them
        "#);
    }

    #[test]
    fn nesting_ends() {
        insta::assert_snapshot!(reported_with("child-workflow", r#"start -> m -> exit; m [shape=house, stack.child_workflow="sub/child.fabro"]"#, &[("sub/child.fabro", r#"digraph { start -> m -> exit; m [shape=house, stack.child_workflow="../sub/child.fabro"] }"#)], None), @r#"
        1:70 error: the sub-workflow sub/child.fabro has an error at 1:68: the sub-workflow ../sub/child.fabro has an error at 1:1: it is a sub-workflow of itself
          at: "sub/child.fabro"
          fix: let the innermost workflow do its work itself
        "#);
        // The workflow has a sub-workflow `1`, which has `2`, and so on.
        let nested = |depth: usize| {
            let manager = |n: usize| {
                format!("start -> m -> exit; m [shape=house, stack.child_workflow=\"{n}\"]")
            };
            let mut files: Vec<(String, String)> = (1..depth)
                .map(|n| (n.to_string(), format!("digraph {{ {} }}", manager(n + 1))))
                .collect();
            files.push((depth.to_string(), "digraph { start -> exit }".to_owned()));
            let files: Vec<(&str, &str)> =
                files.iter().map(|(name, text)| (&**name, &**text)).collect();
            reported_with("child-workflow", &manager(1), &files, None)
        };
        assert_eq!(nested(MAX_SUB_WORKFLOW_DEPTH), "nothing");
        let refused = nested(MAX_SUB_WORKFLOW_DEPTH + 1);
        assert!(refused.contains("sub-workflows are nested more than 16 deep"), "{refused}");
    }
}
