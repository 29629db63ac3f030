use fabro_graph::{Attr, Edge, Node, NodeKind, Span};

use crate::attrs::text;
use crate::checking::Checking;
use crate::findings::Findings;

/// `{{ context… }}` in a label, which people see as it is written. The label of a model's node without a prompt
/// is its prompt, and is rendered; so are the labels of gates and of the edges out of them.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let workflow = checking.workflow;
    let of_nodes = workflow.nodes().filter(|node| !is_rendered(node)).map(|node| &node.attrs);
    let is_option = |edge: &&Edge| workflow.node(edge.from).kind == NodeKind::Human;
    let of_edges = workflow.edges().filter(|edge| !is_option(edge)).map(|edge| &edge.attrs);
    for attrs in of_nodes.chain(of_edges) {
        let Some(attr) = attrs.get("label") else { continue };
        check_label(checking, attr, findings);
    }
}

fn is_rendered(node: &Node) -> bool {
    let is_prompt = node.kind.is_llm() && text(&node.attrs, "prompt").is_none();
    is_prompt || node.kind == NodeKind::Human
}

fn check_label(checking: &Checking<'_>, attr: &Attr, findings: &mut Findings) {
    let Some(label) = attr.value.text() else { return };
    for (open, _) in label.match_indices("{{") {
        let Some(length) = label[open..].find("}}").map(|close| close + 2) else { return };
        let template = &label[open..open + length];
        let inside = template[2..].trim_start();
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let root = &inside[..inside.find(|c| !is_name(c)).unwrap_or(inside.len())];
        if root != "context" {
            continue;
        }
        let message = format!("this label cannot read the context: people see `{template}`");
        let span = checking.place(attr, Span::new(open, open + length));
        findings.warning(
            "label-template",
            span,
            message,
            "read an input instead: {{ inputs.NAME }}",
        );
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn values_in_labels() {
        insta::assert_snapshot!(reported("label-template", r#"start -> a -> ask; a [shape=parallelogram, script=x, label="Count {{ context.x }}"]; ask [shape=hexagon, label="Ship {{goal}}, risk {{ context['a b'] }}?"]; ask -> exit [label="[Y] {{ context.x | upper }}"]"#), @r"
        1:79 warning: this label cannot read the context: people see `{{ context.x }}`
          at: {{ context.x }}
          fix: read an input instead: {{ inputs.NAME }}
        ");
    }

    #[test]
    fn prompts_and_other_braces() {
        insta::assert_snapshot!(reported("label-template", r#"start -> a -> ask; a [label="Do {{ goal }}"]; ask [shape=hexagon, label="Ship {{ name }} {{ contexts }} {{?"]; ask -> exit [label="{{goal"]"#), @"nothing");
    }
}
