use std::sync::Arc;

use fabro_graph::{Edge, NodeIx, NodeKind, Origin};
use fabro_plan::{GateOption, default_option, gate_options};

use crate::checking::Checking;
use crate::findings::{Findings, did_you_mean};

const NAME: &str = "human.default_choice";

/// A default choice that is none of the gate's options: neither a target, nor a key or a label.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let workflow = checking.workflow;
    for (ix, node) in checking.nodes() {
        let Some(attr) = node.attrs.get(NAME) else { continue };
        let name = attr.value.as_text();
        let name = name.trim();
        if name.is_empty() {
            continue;
        }
        if node.kind != NodeKind::Human {
            if attr.origin == Origin::Own && workflow.find(name).is_none() {
                let message = format!("`{NAME}` names `{name}`, but there is no such node");
                let fix = "remove it: it is an attribute of human gates";
                findings.error("target-node", attr.span, message, fix);
            }
            continue;
        }
        let options = options(checking, ix);
        if default_option(&options, None, Some(name)).is_some() {
            continue;
        }
        let is_node = workflow.find(name).is_some();
        let near = options
            .iter()
            .flat_map(|option| [&*option.to, option.label.as_str()])
            .find(|option| checking.nearest(name, [*option]).is_some());
        let fix =
            did_you_mean(near, "name the target, the key or the label of one of the gate's edges");
        if is_node {
            let message =
                format!("no edge leads from `{}` to its default choice `{name}`", node.id);
            findings.warning("default-choice", attr.span, message, fix);
        } else {
            let message = format!("`{NAME}` names `{name}`, which is no option of `{}`", node.id);
            findings.error("target-node", attr.span, message, fix);
        }
    }
}

/// What the gate offers, as far as it does not depend on a run.
fn options(checking: &Checking<'_>, gate: NodeIx) -> Vec<GateOption> {
    let is_text = |edge: &&Edge| edge.attrs.bool("freeform") == Some(true);
    let edges: Vec<_> = checking.outgoing(gate).map(|(_, edge)| edge).collect();
    let (text, edges): (Vec<_>, Vec<_>) = edges.into_iter().partition(is_text);
    let target = |edge: &Edge| Arc::clone(&checking.workflow.node(edge.to).id);
    let edges = edges.into_iter().chain(text);
    gate_options(edges.map(|edge| (edge.label().unwrap_or_default(), target(edge))))
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn a_default_choice_is_an_option() {
        insta::assert_snapshot!(reported("default-choice", r#"start -> g; g [shape=hexagon, human.default_choice=exit]; g -> a [label="[Y] Yes"]; a -> exit"#), @r"
        1:64 warning: no edge leads from `g` to its default choice `exit`
          at: exit
          fix: name the target, the key or the label of one of the gate's edges
        ");
        insta::assert_snapshot!(reported("default-choice", r#"start -> g; g [shape=hexagon, human.default_choice=a]; g -> a [label="[Y] Yes"]; a -> exit"#), @"nothing");
    }
    #[test]
    fn keys_and_labels_are_options_too() {
        let of = |name: &str| {
            let gate = format!(r#"g [shape=hexagon, human.default_choice="{name}"]"#);
            let edges = r#"g -> yes_please [label="[Y] Yes"]; g -> exit [label="Stop here"]"#;
            reported("target-node", &format!("start -> g; {gate}; {edges}; yes_please -> exit"))
        };
        for name in ["Y", "y", "yes", "[Y] Yes", "stop here", "s", "exit"] {
            assert_eq!(of(name), "nothing", "{name}");
        }
        insta::assert_snapshot!(of("yess"), @r#"
        1:64 error: `human.default_choice` names `yess`, which is no option of `g`
          at: "yess"
          fix: name the target, the key or the label of one of the gate's edges
        "#);
        insta::assert_snapshot!(of("later"), @r#"
        1:64 error: `human.default_choice` names `later`, which is no option of `g`
          at: "later"
          fix: name the target, the key or the label of one of the gate's edges
        "#);
        insta::assert_snapshot!(reported("target-node", "start -> a -> exit; a [human.default_choice=gone]"), @r"
        1:57 error: `human.default_choice` names `gone`, but there is no such node
          at: gone
          fix: remove it: it is an attribute of human gates
        ");
        insta::assert_snapshot!(reported("target-node", "node [human.default_choice=gone]; start -> a -> exit"), @"nothing");
    }
}
