use fabro_graph::{Edge, Node, NodeIx, NodeKind};

use crate::attrs::text;
use crate::checking::Checking;
use crate::findings::Findings;
use crate::flow::may_give_directives;

const GOOD: [&str; 8] = ["success", "succeeded", "ok", "pass", "passed", "green", "true", "yes"];
const BAD: [&str; 9] =
    ["fail", "failed", "failure", "error", "red", "false", "no", "otherwise", "else"];

/// Edges whose labels look like results, out of stages that ask for no label: one of the edges is
/// taken for any result.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    for (ix, node) in checking.nodes() {
        if !sets_no_label(node) && node.kind != NodeKind::Conditional {
            continue;
        }
        let plain: Vec<&Edge> = checking
            .outgoing(ix)
            .filter(|(edge, _)| !checking.is_conditional(*edge))
            .map(|(_, edge)| edge)
            .collect();
        if plain.len() < 2 || text(&node.attrs, "selection") == Some("random") {
            continue;
        }
        let label = |edge: &Edge| text(&edge.attrs, "label").map(|it| it.trim().to_lowercase());
        let is = |edge: &Edge, words: &[&str]| {
            label(edge).is_some_and(|label| words.contains(&label.as_str()))
        };
        let is_result = |edge: &Edge| is(edge, &GOOD) || is(edge, &BAD);
        let Some(edge) = plain.iter().find(|edge| is_result(edge)) else { continue };
        let stages = checking.stages_before_edges(ix);
        let sets_none = |at: &NodeIx| sets_no_label(checking.workflow.node(*at));
        if stages.is_empty() || !stages.iter().all(sets_none) {
            continue;
        }
        let Some(attr) = edge.attrs.get("label") else { continue };
        let message = format!(
            "`{}` sets no label, so labels such as `{}` choose no edge: the same one is always taken",
            node.id,
            attr.value.as_text()
        );
        let status = if is(edge, &GOOD) { "success" } else { "fail" };
        let fix = format!(
            "add condition=\"outcome={status}\" to this edge, and the opposite to the other"
        );
        findings.warning("status-label", attr.key_span.to(attr.span), message, fix);
    }
}

/// Whether the stage cannot set a preferred label.
fn sets_no_label(node: &Node) -> bool {
    matches!(node.kind, NodeKind::Command | NodeKind::Wait | NodeKind::ManagerLoop)
        && !may_give_directives(node)
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    const NODES: &str = "start -> t; t [shape=parallelogram, script=x]; a -> exit; b -> exit; ";

    fn of(edges: &str) -> String {
        reported("status-label", &format!("{NODES}{edges}"))
    }

    #[test]
    fn a_label_is_no_condition() {
        insta::assert_snapshot!(of("t -> b [label=success]; t -> a [label=fail]"), @r#"
        1:90 warning: `t` sets no label, so labels such as `success` choose no edge: the same one is always taken
          at: label=success
          fix: add condition="outcome=success" to this edge, and the opposite to the other
        "#);
        insta::assert_snapshot!(of("t -> d; d [shape=diamond]; d -> b [label=Yes]; d -> a [label=No]"), @r#"
        1:117 warning: `d` sets no label, so labels such as `Yes` choose no edge: the same one is always taken
          at: label=Yes
          fix: add condition="outcome=success" to this edge, and the opposite to the other
        "#);
    }

    #[test]
    fn labels_beside_conditions_and_of_models_are_fine() {
        for edges in [
            "t -> b [label=success, condition=\"outcome=success\"]; t -> a [label=fail]",
            "t -> b [label=Ship]; t -> a [label=Hold]",
            "t -> m; m [prompt=x]; m -> a [label=yes]; m -> b [label=no]",
            "t -> m -> d; m [prompt=x]; d [shape=diamond]; d -> a [label=yes]; d -> b [label=no]",
            "t -> g; g [shape=hexagon]; g -> a [label=yes]; g -> b [label=no]",
        ] {
            assert_eq!(of(edges), "nothing", "{edges}");
        }
    }
}
