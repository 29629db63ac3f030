use fabro_graph::{NodeKind, Origin};

use crate::checking::Checking;
use crate::findings::Findings;

/// Attributes of nodes that ask a model.
const OF_MODELS: &[&str] = &[
    "acp.command",
    "acp.config",
    "context_tool",
    "output_retries",
    "output_schema",
    "permissions",
    "rag",
    "tools",
];

/// Attributes about a model's answer or tools, written on a node that asks no model. What comes from
/// the defaults of a scope is meant for others there. Nor does a gate have a prompt: it asks its label.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    for node in checking.workflow.nodes() {
        if node.kind.is_llm() || node.kind == NodeKind::FanIn {
            continue;
        }
        let own = node.attrs.own().filter(|attr| attr.origin == Origin::Own);
        for attr in own {
            let (why, fix) = if OF_MODELS.contains(&&*attr.name) {
                (
                    "asks no model",
                    "remove it, or make the node an agent (shape=box) or a prompt (shape=tab)",
                )
            } else if node.kind == NodeKind::Human && &*attr.name == "prompt" {
                ("asks its label", "write the question as the node's label")
            } else {
                continue;
            };
            let message = format!(
                "`{}` has no effect on `{}`, a {} node, which {why}",
                attr.written, node.id, node.kind
            );
            findings.warning("without-effect", attr.key_span, message, fix);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn a_gate_asks_its_label() {
        insta::assert_snapshot!(reported("without-effect", r#"node [prompt=x]; start -> a -> exit; a [shape=hexagon, prompt="Ship it?"]"#), @r"
        1:68 warning: `prompt` has no effect on `a`, a human node, which asks its label
          at: prompt
          fix: write the question as the node's label
        ");
        insta::assert_snapshot!(reported("without-effect", r#"node [prompt=x]; start -> a -> exit; a [shape=hexagon, label="Ship it?"]"#), @"nothing");
    }

    #[test]
    fn what_asks_no_model_takes_no_schema_and_no_tools() {
        insta::assert_snapshot!(reported("without-effect", r#"start -> a -> exit; a [shape=parallelogram, script=x, output_schema=routing, tools="grep"]"#), @r"
        1:67 warning: `output_schema` has no effect on `a`, a command node, which asks no model
          at: output_schema
          fix: remove it, or make the node an agent (shape=box) or a prompt (shape=tab)
        1:90 warning: `tools` has no effect on `a`, a command node, which asks no model
          at: tools
          fix: remove it, or make the node an agent (shape=box) or a prompt (shape=tab)
        ");
        insta::assert_snapshot!(reported("without-effect", "node [tools=grep]; start -> a -> b -> exit; a [shape=parallelogram, script=x]; b [output_schema=routing]"), @"nothing");
        insta::assert_snapshot!(reported("without-effect", "start -> p -> {a; b} -> f -> exit; p [shape=component]; f [shape=tripleoctagon, prompt=x, permissions=full]"), @"nothing");
    }
}
