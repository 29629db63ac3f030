use std::collections::HashSet;

use fabro_condition::{Condition, SyntaxError};
use fabro_graph::{Attr, Diagnostic};

use crate::checking::{Checking, syntax_error};

/// Conditions of edges, and stop conditions, that do not parse.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Vec<Diagnostic>) {
    let mut seen = HashSet::new();
    let workflow = checking.workflow;
    for ix in workflow.edge_indices() {
        if let Some(Err(error)) = checking.condition(ix)
            && let Some(attr) = workflow.edge(ix).attrs.get("condition")
            && seen.insert(attr.span)
        {
            findings.push(finding(checking, attr, error));
        }
    }
    for node in workflow.nodes() {
        if let Some(attr) = node.attrs.get("manager.stop_condition")
            && seen.insert(attr.span)
            && let Err(error) = Condition::parse(&attr.value.as_text())
        {
            findings.push(finding(checking, attr, &error));
        }
    }
}

fn finding(checking: &Checking<'_>, attr: &Attr, error: &SyntaxError) -> Diagnostic {
    let said = (error.message.as_str(), error.span, error.fix.as_deref());
    syntax_error(checking.source, "condition-syntax", attr, said)
}

#[cfg(test)]
mod tests {
    use crate::testing::told;

    #[test]
    fn errors_point_into_the_condition() {
        insta::assert_snapshot!(told("condition-syntax", r#"start -> a; a -> b [condition="outcome=success &&"]; a -> exit; b -> exit"#), @r#"
        1:62 error: expected a condition, found the end
          at: "
          fix: write clauses such as outcome=success, joined by && or ||
        "#);
        insta::assert_snapshot!(told("condition-syntax", r#"start -> a; a -> b [condition="version matches (["]; a -> exit; b -> exit"#), @r"
        1:60 error: invalid regular expression: unclosed character class
          at: ([
          fix: write clauses such as outcome=success, joined by && or ||
        ");
        insta::assert_snapshot!(told("condition-syntax", r#"start -> a; a -> b [condition="label=\"x\" && (outcome=success"]; a -> exit; b -> exit"#), @r#"
        1:75 error: expected `&&`, `)` or `||`, found the end
          at: "
          fix: write clauses such as outcome=success, joined by && or ||
        "#);
        insta::assert_snapshot!(told("condition-syntax", r#"start -> m -> exit; m [shape=house, stack.child_dot_source="digraph { start -> exit }", manager.stop_condition="=x"]"#), @r"
        1:125 error: expected a condition, found `=`
          at: =
          fix: write clauses such as outcome=success, joined by && or ||
        ");
        insta::assert_snapshot!(told("condition-syntax", r#"start -> a; edge [condition="= x"]; a -> b -> exit"#), @r"
        1:42 error: expected a condition, found `=`
          at: =
          fix: write clauses such as outcome=success, joined by && or ||
        ");
        insta::assert_snapshot!(told("condition-syntax", r#"start -> a; a -> b [condition=""]; a -> exit [condition="outcome=success"]; b -> exit"#), @"nothing");
    }
}
