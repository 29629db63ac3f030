use std::collections::{BTreeMap, HashMap};

use fabro_graph::{NodeIx, NodeKind, Span};
use fabro_types::Status;
use serde_json::Value;

use crate::checking::Checking;
use crate::findings::Findings;

const DECIDING: [&str; 3] = ["condition", "freeform", "loop_restart"];

/// Attributes of a chain that make no sense at its first edge, the one out of the start: they are
/// those of every edge of the chain, and were meant for a later one.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let workflow = checking.workflow;
    let starts: Vec<NodeIx> = checking.of_kind(NodeKind::Start).map(|(ix, _)| ix).collect();
    let mut suspects: HashMap<Span, (&str, NodeIx, &str)> = HashMap::new();
    for start in starts {
        for (ix, edge) in checking.outgoing(start) {
            let begun =
                BTreeMap::from([("outcome".to_owned(), Value::from(Status::Succeeded.as_str()))]);
            let holds = checking.condition(ix).is_none_or(|condition| condition.holds(&begun));
            for attr in DECIDING.iter().filter_map(|name| edge.attrs.get(name)) {
                if attr.name != "condition" || !holds {
                    let to = &workflow.node(edge.to).id;
                    suspects.insert(attr.key_span, (&attr.written, start, to));
                }
            }
        }
    }
    if suspects.is_empty() {
        return;
    }
    for edge in workflow.edges() {
        for attr in DECIDING.iter().filter_map(|name| edge.attrs.get(name)) {
            let Some((name, start, to)) = suspects.get(&attr.key_span) else { continue };
            if edge.from == *start {
                continue;
            }
            let start = &workflow.node(*start).id;
            let message = format!(
                "`{name}` also stands on `{start} -> {to}`, the first edge of this chain, where it makes no sense"
            );
            let fix = "write the edge that it is meant for as a statement of its own";
            findings.warning("chain-attribute", attr.key_span, message, fix);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn attributes_of_a_chain_are_those_of_every_edge() {
        insta::assert_snapshot!(reported("chain-attribute", r#"start -> plan -> impl -> exit [condition="context.ready"]; impl -> plan"#), @r"
        1:44 warning: `condition` also stands on `start -> plan`, the first edge of this chain, where it makes no sense
          at: condition
          fix: write the edge that it is meant for as a statement of its own
        ");
        insta::assert_snapshot!(reported("chain-attribute", r#"start -> plan -> exit [condition="outcome=fail", label=x]"#), @r"
        1:36 warning: `condition` also stands on `start -> plan`, the first edge of this chain, where it makes no sense
          at: condition
          fix: write the edge that it is meant for as a statement of its own
        ");
    }

    #[test]
    fn what_holds_at_the_start_is_fine() {
        insta::assert_snapshot!(reported("chain-attribute", r#"start -> plan -> exit [condition="outcome=success"]"#), @"nothing");
        insta::assert_snapshot!(reported("chain-attribute", r#"start -> plan; plan -> exit [condition="context.ready"]"#), @"nothing");
        insta::assert_snapshot!(reported("chain-attribute", r#"start -> plan [condition="context.ready"]; plan -> exit [label=x]"#), @"nothing");
    }
}
