use std::collections::BTreeSet;

use fabro_graph::{EdgeIx, Node, NodeIx, NodeKind};
use fabro_types::Status;

use crate::attrs::text;
use crate::checking::Checking;
use crate::findings::Findings;

/// The number of stages that the message names.
const NAMED: usize = 3;

/// The maximum number of edges visited in one workflow.
const MAX_SEARCH: usize = 100_000;

/// Reports failures that an edge sends directly to an exit without a `status`: they stay unhandled. One
/// finding for all of them.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    if allows_success(text(checking.workflow.attrs(), "on_failure")) {
        return;
    }
    let mut left = MAX_SEARCH;
    let reached = &checking.flow().reached;
    let found: Vec<(&Node, EdgeIx)> = checking
        .nodes()
        .filter(|(ix, node)| reached[ix.index()] && may_fail(node))
        .filter_map(|(ix, node)| Some((node, straight_to_exit(checking, ix, &mut left)?)))
        .collect();
    let Some((_, edge)) = found.first() else { return };
    let names: Vec<_> =
        found.iter().take(NAMED).map(|(node, _)| format!("`{}`", node.id)).collect();
    let names = match found.len().saturating_sub(NAMED) {
        0 => names.join(" or "),
        more => format!("{} or {more} more", names.join(", ")),
    };
    let edge = checking.workflow.edge(*edge);
    let exit = &checking.workflow.node(edge.to).id;
    let message = format!(
        "a failure of {names} goes directly to `{exit}`, so nothing handles it and the run ends partially_succeeded"
    );
    let fix = format!(
        "set the status of the run there: {exit} [status=failed, reason=\"…\"], with a separate exit for success; or route the failure to a stage that handles it"
    );
    findings.warning("failure-to-exit", edge.span, message, fix);
}

fn may_fail(node: &Node) -> bool {
    use NodeKind::{Conditional, Exit, Parallel, Start, Wait};
    let allowing = ["goal_gate", "auto_status", "allow_partial"];
    !matches!(node.kind, Start | Exit | Conditional | Wait | Parallel)
        && !allows_success(text(&node.attrs, "on_failure"))
        && !allowing.iter().any(|name| node.attrs.bool(name) == Some(true))
}

fn allows_success(on_failure: Option<&str>) -> bool {
    on_failure.is_some_and(|word| ["continue", "succeed"].contains(&word))
}

/// The edge by which a failure of the stage reaches an exit directly, although an edge on the way
/// selects failures.
fn straight_to_exit(checking: &Checking<'_>, stage: NodeIx, left: &mut usize) -> Option<EdgeIx> {
    let mut seen = BTreeSet::from([(stage, false)]);
    let mut queue = vec![(stage, false)];
    while let Some((at, was_for_failure)) = queue.pop() {
        for (edge, is_for_failure) in edges_after_failure(checking, at) {
            *left = left.saturating_sub(1);
            if *left == 0 {
                return None;
            }
            let is_for_failure = was_for_failure || is_for_failure;
            let to = checking.workflow.edge(edge).to;
            if is_for_failure && checking.is_plain_exit(to) {
                return Some(edge);
            }
            let passes_on = match checking.workflow.node(to).kind {
                NodeKind::Conditional => true,
                NodeKind::Wait => is_for_failure,
                _ => false,
            };
            if passes_on && seen.insert((to, is_for_failure)) {
                queue.push((to, is_for_failure));
            }
        }
    }
    None
}

/// The edges that may be taken after a failure, each with whether it selects failures.
fn edges_after_failure(checking: &Checking<'_>, node: NodeIx) -> Vec<(EdgeIx, bool)> {
    let kind = checking.workflow.node(node).kind;
    // A wait always succeeds.
    let status = if kind == NodeKind::Wait { Status::Succeeded } else { Status::Failed };
    let edges = || checking.workflow.outgoing(node);
    let conditions = || edges().filter_map(|edge| checking.condition(edge));
    let takes_all = conditions().any(|condition| !condition.possible_after(status).fails);
    let tells_failures = conditions().any(fabro_condition::Condition::reads_result);
    edges()
        .filter_map(|edge| match checking.condition(edge) {
            Some(condition) if condition.possible_after(status).holds => {
                Some((edge, condition.is_for_failure()))
            }
            Some(_) => None,
            // A condition that does not parse is reported by another rule.
            None if checking.is_conditional(edge) => None,
            // A gate without an answer takes no option.
            None if takes_all || kind == NodeKind::Human => None,
            None => Some((edge, tells_failures)),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn failures_that_go_directly_to_an_exit() {
        for body in [
            r#"start -> a; a -> exit [condition="outcome=failed"]; a -> b -> exit"#,
            r#"start -> a; a -> b [condition="outcome=success"]; a -> exit; b -> exit"#,
            r#"start -> a; a -> fix [condition="outcome=failed && internal.node_visit_count < 3"]; a -> exit; fix -> a"#,
            r#"start -> a; a -> b [condition="command.exit_code=0"]; a -> exit; b -> exit"#,
            r#"start -> a -> c; c -> b [condition="outcome=success"]; c -> exit; b -> exit"#,
            r#"start -> a; a -> c [condition="failure_class=transient_infra"]; a -> b -> exit; c -> exit"#,
            r#"start -> a; a -> w [condition="outcome=failed"]; a -> b -> exit; w -> exit; w [shape=insulator, duration=1s]"#,
        ] {
            let body = format!(
                "a [shape=parallelogram, script=x]; b [prompt=b]; c [shape=diamond]; {body}"
            );
            let report = reported("failure-to-exit", &body);
            assert!(
                report.contains("a failure of `a` goes directly to `exit`"),
                "{body}: {report}"
            );
        }
    }

    #[test]
    fn failures_that_reach_a_stage_or_an_exit_with_a_status() {
        for body in [
            "start -> a -> exit",
            r#"start -> a; a -> exit [condition="outcome=success"]; a -> b -> exit"#,
            r#"start -> a; a -> b [condition="outcome=failed"]; a -> exit; b -> a"#,
            r#"start -> a; a -> b [condition="command.exit_code != 0"]; a -> exit; b -> a"#,
            r#"start -> a; a -> bad [condition="outcome=failed"]; a -> exit; bad [shape=Msquare, status=failed]"#,
            r#"start -> a; a -> exit [condition="outcome=failed"]; a -> b -> exit; a [on_failure=continue]"#,
            r#"start -> a; a -> exit [condition="outcome=failed"]; a -> b -> exit; graph [on_failure=succeed]"#,
            r#"start -> a; a -> exit [condition="context.done=true"]; a -> b -> exit"#,
            r#"start -> g; g [shape=hexagon]; g -> b [condition="outcome=failed"]; g -> exit [label=Ship]; b -> exit"#,
        ] {
            let body = format!("a [shape=parallelogram, script=x]; b [prompt=b]; {body}");
            assert_eq!(reported("failure-to-exit", &body), "nothing", "{body}");
        }
    }
}
