use fabro_graph::{Attr, Node, NodeKind, Span};

use crate::attrs::text;
use crate::checking::Checking;
use crate::findings::Findings;

/// `{{ … }}` of ours in a label, which people see as it is written. The label of a model's node without a prompt
/// is its prompt, and is rendered.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let workflow = checking.workflow;
    let of_nodes = workflow.nodes().filter(|node| !is_prompt(node)).map(|node| {
        let fix = match node.kind {
            NodeKind::Human => {
                "the last answer of a model is shown with the question: let it give the value"
            }
            _ => "write a text without values",
        };
        (&node.attrs, fix)
    });
    let of_edges = workflow.edges().map(|edge| (&edge.attrs, "write a text without values"));
    for (attrs, fix) in of_nodes.chain(of_edges) {
        let Some(attr) = attrs.get("label") else { continue };
        check_label(checking, attr, fix, findings);
    }
}

fn is_prompt(node: &Node) -> bool {
    node.kind.is_llm() && text(&node.attrs, "prompt").is_none()
}

fn check_label(checking: &Checking<'_>, attr: &Attr, fix: &str, findings: &mut Findings) {
    let Some(label) = attr.value.text() else { return };
    for (open, _) in label.match_indices("{{") {
        let Some(length) = label[open..].find("}}").map(|close| close + 2) else { return };
        let template = &label[open..open + length];
        let inside = template[2..].trim_start();
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let root = &inside[..inside.find(|c| !is_name(c)).unwrap_or(inside.len())];
        if !["goal", "inputs", "context"].contains(&root) {
            continue;
        }
        let message = format!("labels are no templates: people see `{template}`");
        let span = checking.place(attr, Span::new(open, open + length));
        findings.warning("label-template", span, message, fix);
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn values_in_labels() {
        insta::assert_snapshot!(reported("label-template", r#"start -> a -> ask; a [shape=parallelogram, script=x, label="Count {{ inputs.x }}"]; ask [shape=hexagon, label="Ship {{goal}}, risk {{ context['a b'] }}?"]; ask -> exit [label="[Y] {{ context.x | upper }}"]"#), @r"
        1:79 warning: labels are no templates: people see `{{ inputs.x }}`
          at: {{ inputs.x }}
          fix: write a text without values
        1:129 warning: labels are no templates: people see `{{goal}}`
          at: {{goal}}
          fix: the last answer of a model is shown with the question: let it give the value
        1:144 warning: labels are no templates: people see `{{ context['a b'] }}`
          at: {{ context['a b'] }}
          fix: the last answer of a model is shown with the question: let it give the value
        1:193 warning: labels are no templates: people see `{{ context.x | upper }}`
          at: {{ context.x | upper }}
          fix: write a text without values
        ");
    }

    #[test]
    fn prompts_and_other_braces() {
        insta::assert_snapshot!(reported("label-template", r#"start -> a -> ask; a [label="Do {{ goal }}"]; ask [shape=hexagon, label="Ship {{ name }} {{ contexts }} {{?"]; ask -> exit [label="{{goal"]"#), @"nothing");
    }
}
