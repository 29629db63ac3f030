use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use fabro_graph::schema;
use fabro_graph::{Attr, Diagnostic, Node, NodeKind};
use fabro_plan::attribute_error;
use fabro_template::ReadTarget;
use fabro_types::{LineIndex, MAX_SUB_WORKFLOW_DEPTH, Position, Severity, Span, SyntaxError};
use serde_json::{Map, Value};

use crate::checking::{Checking, inputs};
use crate::family::{CheckedChild, ChildError, ChildKey, ChildState, Family};
use crate::findings::{Findings, did_you_mean};
use crate::relative::RelativeSources;

/// Sub-workflows that have errors of their own, and inputs that they do not read.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let reads = checking.texts.iter().flat_map(|text| text.template.reads());
    let read_here = reads.filter_map(|read| match &read.target {
        ReadTarget::Input(name) => Some(name.clone()),
        _ => None,
    });
    checking.family.reads.borrow_mut().extend(read_here);
    let mut seen = HashMap::new();
    for node in checking.workflow.nodes() {
        ignored_inline(node, findings);
        let Some((key, text)) = ChildKey::of(node, &checking.sources) else { continue };
        let Some(attr) = attr(node) else { continue };
        let given = given(node);
        let names: Vec<String> = given.keys().cloned().collect();
        let found = seen.entry((attr.span, names)).or_insert_with_key(|(_, names)| {
            let own = if names.is_empty() { inherited(checking) } else { names.clone() };
            let found = checked_child(checking, node, (key, own), text, &given);
            if let Some(error) = &found.error {
                findings.0.push(finding(checking, attr, error.clone()));
            }
            found
        });
        if given.is_empty() {
            checking.family.reads.borrow_mut().extend(found.reads.iter().cloned());
            checking.family.needed.borrow_mut().extend(found.needed.iter().cloned());
        } else if found.error.is_none() {
            unread(checking, node, &found.reads, findings);
        }
    }
}

/// The inputs that a node gives its sub-workflow; null where the value is known only in a run.
fn given(node: &Node) -> Map<String, Value> {
    let value = |attr: &Attr| match attr.value.text() {
        Some(text) if text.contains("{{") => Value::Null,
        _ => attr.value.as_text().into(),
    };
    let named = |attr: &Attr| Some((schema::input_name(&attr.name)?.to_owned(), value(attr)));
    inputs(node).filter_map(named).collect()
}

/// Inputs that the sub-workflow does not read.
fn unread(checking: &Checking<'_>, node: &Node, reads: &BTreeSet<String>, findings: &mut Findings) {
    for attr in inputs(node) {
        let Some(name) = schema::input_name(&attr.name) else { continue };
        let is_path = |rest: &str| rest.is_empty() || rest.starts_with('.');
        if reads.iter().any(|read| read.strip_prefix(name).is_some_and(is_path)) {
            continue;
        }
        let message = format!("the sub-workflow of `{}` does not read the input `{name}`", node.id);
        let near = checking.nearest(name, reads.iter().map(String::as_str));
        let all: Vec<&str> = reads.iter().take(8).map(String::as_str).collect();
        let otherwise = match all.len() {
            0 => "remove it: the sub-workflow reads no inputs".to_owned(),
            _ => format!("remove it: the sub-workflow reads {}", all.join(", ")),
        };
        let near = near.map(|near| format!("inputs.{near}"));
        findings.warning("unread-input", attr.key_span, message, did_you_mean(near, otherwise));
    }
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

/// The names of the inputs that a sub-workflow has when its node gives it none: those of this one.
fn inherited(checking: &Checking<'_>) -> Vec<String> {
    let names = checking.inputs.map(|inputs| inputs.keys().cloned().collect());
    names.unwrap_or_default()
}

fn checked_child(
    checking: &Checking<'_>,
    node: &Node,
    key: (ChildKey, Vec<String>),
    text: &str,
    given: &Map<String, Value>,
) -> Rc<CheckedChild> {
    let family = checking.family;
    if family.depth >= MAX_SUB_WORKFLOW_DEPTH {
        let message = format!("sub-workflows are nested more than {MAX_SUB_WORKFLOW_DEPTH} deep");
        return refused(message, "let the innermost workflow do its work itself");
    }
    if let Some(ChildState::Checked(found)) = family.checked.borrow().get(&key) {
        return Rc::clone(found);
    }
    let is_open = |(of, state): (&(ChildKey, Vec<String>), &ChildState)| {
        of.0 == key.0 && matches!(state, ChildState::InProgress)
    };
    if family.checked.borrow().iter().any(is_open) {
        return refused("it is a sub-workflow of itself", "name another workflow");
    }
    family.checked.borrow_mut().insert(key.clone(), ChildState::InProgress);
    let inner = Family {
        depth: family.depth + 1,
        checked: std::mem::take(&mut *family.checked.borrow_mut()).into(),
        has_own_inputs: !given.is_empty() || family.has_own_inputs,
        ..Family::default()
    };
    let sources = RelativeSources::new(checking.sources.sources, key.0.base());
    let inputs = if given.is_empty() { checking.inputs } else { Some(given) };
    let checked = crate::check_in(&node.id, text, sources, inputs, &inner);
    *family.checked.borrow_mut() = inner.checked.into_inner();
    let mut findings = checked.findings.into_iter();
    let error = findings.find(|finding| finding.severity == Severity::Error).map(|finding| {
        let position = LineIndex::new(text).position(finding.span.start);
        let Diagnostic { message, span, fix, .. } = finding;
        ChildError { position, error: SyntaxError { message, span, fix } }
    });
    let found = Rc::new(CheckedChild {
        error,
        reads: inner.reads.into_inner(),
        needed: inner.needed.into_inner(),
    });
    family.checked.borrow_mut().insert(key, ChildState::Checked(Rc::clone(&found)));
    found
}

fn refused(message: impl Into<String>, fix: &str) -> Rc<CheckedChild> {
    let error = SyntaxError::new(message, Span::new(0, 1));
    let error =
        ChildError { position: Position { line: 1, column: 1 }, error: error.with_fix(fix) };
    Rc::new(CheckedChild { error: Some(error), ..CheckedChild::default() })
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
          fix: set it under [run.inputs], or give it with -I repo=…
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
    fn inputs_are_those_that_the_sub_workflow_reads() {
        const CHILD: &str = r#"digraph { graph [goal="Fix {{ inputs.issue.title }}"]; start -> a -> m -> exit; a [prompt="{{ inputs.repo }} {{ inputs.depth | default(1) }}"]; m [shape=house, stack.child_dot_source="digraph { start -> b -> exit; b [prompt=\"{{ inputs.tone }}\"] }"] }"#;
        let of = |rule: &str, given: &str, inputs| {
            let body = format!(
                r#"start -> m -> exit; m [shape=house, stack.child_workflow="c.fabro", {given}]"#
            );
            reported_with(rule, &body, &[("c.fabro", CHILD)], inputs)
        };
        let all = r#"inputs.repo=demo, inputs.issue="{{ context.issue }}", inputs.tone="{{ inputs.tone }}""#;
        assert_eq!(of("child-workflow", all, None), "nothing");
        assert_eq!(of("unread-input", all, None), "nothing");
        assert_eq!(of("child-workflow", "", None), "nothing");
        insta::assert_snapshot!(of("child-workflow", "inputs.repo=demo, inputs.tone=calm", Some(json!({"issue": "x"}))), @r#"
        1:70 error: the sub-workflow c.fabro has an error at 1:31: the input `issue.title` is not given
          at: "c.fabro"
          fix: give it on the node of the sub-workflow: inputs.issue=…
        "#);
        insta::assert_snapshot!(of("child-workflow", r#"inputs.repo=demo, inputs.issue="{{ context.issue }}""#, None), @r#"
        1:70 error: the sub-workflow c.fabro has an error at 1:230: the sub-workflow has an error: the input `tone` is not given
          at: "c.fabro"
          fix: give it on the node of the sub-workflow: inputs.tone=…
        "#);
        insta::assert_snapshot!(of("unread-input", &format!("{all}, inputs.rpo=x, inputs.depth=3, inputs.more=true"), None), @r"
        1:168 warning: the sub-workflow of `m` does not read the input `rpo`
          at: inputs.rpo
          fix: remove it: the sub-workflow reads depth, issue.title, repo, tone
        1:198 warning: the sub-workflow of `m` does not read the input `more`
          at: inputs.more
          fix: remove it: the sub-workflow reads depth, issue.title, repo, tone
        ");
        insta::assert_snapshot!(of("undefined-input", all, Some(json!({}))), @r"
        1:151 error: the input `tone` is not given
          at: inputs.tone
          fix: set it under [run.inputs], or give it with -I tone=…
        ");
        insta::assert_snapshot!(of("unwritten-key", all, None), @r#"
        1:116 warning: no stage before this writes `issue`
          at: context.issue
          fix: only an agent or prompt node, or a command with output_schema="routing", by its context_updates, writes it: put one before `m`
        "#);
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
          fix: name another workflow
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
