use fabro_condition::Operator;
use fabro_graph::{Node, NodeIx, NodeKind};
use fabro_types::Status;

use super::condition_operator::wrong_operator;
use crate::attrs::text;
use crate::checking::Checking;
use crate::findings::{Findings, did_you_mean};

/// Conditions that compare the outcome with a word which the stage before cannot end with: only an
/// answer of a model has words of its own, everything else ends with a status.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let words_pass = words_pass(checking);
    let flow = checking.flow();
    for ix in checking.workflow.edge_indices() {
        let edge = checking.workflow.edge(ix);
        let Some(condition) = checking.condition(ix) else { continue };
        if words_pass[edge.from.index()] || !flow.reached[edge.from.index()] {
            continue;
        }
        let Some(attr) = edge.attrs.get("condition") else { continue };
        for clause in condition.clauses() {
            let compares = matches!(clause.operator(), Some(Operator::Equal | Operator::NotEqual));
            let Some(word) = clause.value().filter(|word| !word.is_empty()) else { continue };
            if clause.context_key() != "outcome" || !compares || Status::parse(word).is_some() {
                continue;
            }
            // That is the reason, and has a warning of its own.
            if wrong_operator(clause).is_some() {
                continue;
            }
            let Node { id, kind, .. } = checking.workflow.node(edge.from);
            let message = if hands_on(*kind) {
                format!("no stage before `{id}` ends as `{word}`, only with a status")
            } else {
                format!("`{id}` never ends as `{word}`, only with a status")
            };
            let near = checking.nearest(word, SPELLINGS);
            let fix = did_you_mean(near, "compare with success, fail, partial_success or skipped");
            let place = checking.place(attr, clause.span());
            findings.warning("unknown-outcome", place, message, fix);
        }
    }
}

const SPELLINGS: [&str; 9] = [
    "success",
    "succeeded",
    "fail",
    "failed",
    "failure",
    "partial_success",
    "partially_succeeded",
    "skip",
    "skipped",
];

/// By node: conditions on its edges may see a word of a model as the outcome, be it that of the node
/// itself or that of a stage before.
fn words_pass(checking: &Checking<'_>) -> Vec<bool> {
    let workflow = checking.workflow;
    let mut pass: Vec<bool> = workflow.nodes().map(has_words).collect();
    let mut queue: Vec<NodeIx> = workflow.node_indices().filter(|ix| pass[ix.index()]).collect();
    while let Some(node) = queue.pop() {
        for (_, edge) in checking.outgoing(node) {
            let hands_on = hands_on(workflow.node(edge.to).kind);
            if hands_on && !std::mem::replace(&mut pass[edge.to.index()], true) {
                queue.push(edge.to);
            }
        }
    }
    pass
}

/// Whether conditions on its edges see the outcome of the stage before: a conditional node has none,
/// and a fan-out has none yet when its branches are chosen.
fn hands_on(kind: NodeKind) -> bool {
    matches!(kind, NodeKind::Conditional | NodeKind::Parallel)
}

/// With a schema of its own an answer is data, and has no outcome in it.
fn has_words(node: &Node) -> bool {
    let schema = text(&node.attrs, "output_schema").map(str::trim);
    match node.kind {
        NodeKind::Agent | NodeKind::Prompt => schema.is_none_or(|schema| schema == "routing"),
        NodeKind::FanIn => text(&node.attrs, "prompt").is_some(),
        NodeKind::Command => schema == Some("routing"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn a_command_that_routes_has_words_of_its_own() {
        let edges = r#"start -> a; a -> exit [condition="outcome=meh"]; a -> exit; a [shape=parallelogram, script=x"#;
        assert_eq!(
            reported("unknown-outcome", &format!("{edges}, output_schema=routing]")),
            "nothing"
        );
        assert_ne!(reported("unknown-outcome", &format!("{edges}]")), "nothing");
    }

    #[test]
    fn a_command_ends_with_a_status() {
        insta::assert_snapshot!(reported("unknown-outcome", r#"start -> a; a [shape=parallelogram, script=x]; a -> exit [condition="outcome=sucess"]; a -> b [condition="context.outcome != needs_dod && x=1"]; b -> exit"#), @r"
        1:82 warning: `a` never ends as `sucess`, only with a status
          at: outcome=sucess
          fix: did you mean `success`?
        1:119 warning: `a` never ends as `needs_dod`, only with a status
          at: context.outcome != needs_dod
          fix: compare with success, fail, partial_success or skipped
        ");
        insta::assert_snapshot!(reported("unknown-outcome", r#"start -> a -> d; a [shape=parallelogram, script=x]; d [shape=diamond]; d -> exit [condition="outcome=done"]; d -> a"#), @r"
        1:106 warning: no stage before `d` ends as `done`, only with a status
          at: outcome=done
          fix: compare with success, fail, partial_success or skipped
        ");
        insta::assert_snapshot!(reported("unknown-outcome", r#"start -> a; a [output_schema="{}"]; a -> exit [condition="outcome=done"]; a -> exit"#), @r"
        1:71 warning: `a` never ends as `done`, only with a status
          at: outcome=done
          fix: compare with success, fail, partial_success or skipped
        ");
    }

    #[test]
    fn a_wrong_operator_has_one_warning() {
        insta::assert_snapshot!(reported("unknown-outcome", r#"start -> a; a [shape=parallelogram, script=x]; a -> exit [condition="outcome=success and x=1"]; a -> exit"#), @"nothing");
    }

    #[test]
    fn models_have_words_of_their_own() {
        insta::assert_snapshot!(reported("unknown-outcome", r#"start -> a; a [prompt=x]; a -> exit [condition="outcome=done"]; a -> exit"#), @"nothing");
        insta::assert_snapshot!(reported("unknown-outcome", r#"start -> a -> d -> e; a [prompt=x]; b [shape=parallelogram, script=x]; b -> d; d [shape=diamond]; e [shape=diamond]; e -> exit [condition="outcome=done"]; e -> b"#), @"nothing");
        insta::assert_snapshot!(reported("unknown-outcome", r#"start -> a; a [shape=parallelogram, script=x]; a -> exit [condition="outcome=success || outcome=failure || outcome!="]; a -> exit"#), @"nothing");
    }
}
