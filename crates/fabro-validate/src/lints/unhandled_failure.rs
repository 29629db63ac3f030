use fabro_graph::{Join, Node, NodeIx, NodeKind, join};
use fabro_types::Status;
use petgraph::algo::kosaraju_scc;

use crate::attrs::text;
use crate::checking::Checking;
use crate::findings::Findings;

/// How many stages are named.
const NAMED: usize = 3;

/// How many steps the search for the joins of fan-outs takes.
const MAX_SEARCH: usize = 100_000;

/// Commands and sub-workflows whose failure nothing handles: the run continues by a plain edge and
/// ends as partially succeeded. A failure is an ordinary result of these; that of a model is not, and
/// is not looked for here. One finding for all of them.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let workflow = checking.workflow;
    if text(workflow.attrs(), "on_failure").is_some() {
        return;
    }
    let flow = checking.flow();
    let mut candidates: Vec<(NodeIx, &Node)> = checking
        .nodes()
        .filter(|(ix, node)| {
            may_fail(node) && flow.reached[ix.index()] && continues_regardless(checking, *ix)
        })
        .collect();
    if candidates.iter().any(|(ix, _)| flow.in_branch[ix.index()]) {
        let covered = covered_by_fan_outs(checking);
        candidates.retain(|(ix, _)| !flow.in_branch[ix.index()] || !covered[ix.index()]);
    }
    if !candidates.is_empty() {
        let loops = in_loops(checking);
        candidates.retain(|(ix, _)| !loops[ix.index()]);
    }
    let Some(first) = candidates.first().map(|(_, node)| *node) else { return };
    let names: Vec<String> =
        candidates.iter().take(NAMED).map(|(_, node)| format!("`{}`", node.id)).collect();
    let names = match candidates.len().saturating_sub(NAMED) {
        0 => names.join(" or "),
        more => format!("{} or {more} more", names.join(", ")),
    };
    let message = format!("when {names} fails, the run continues and ends partially_succeeded");
    let fix = format!(
        "add an edge for it: {} -> … [condition=\"outcome=failed\"]; or on_failure=\"stop\" or \"continue\" for the node or the graph",
        first.id
    );
    findings.warning("unhandled-failure", first.span, message, fix);
}

fn may_fail(node: &Node) -> bool {
    let may_fail = match node.kind {
        NodeKind::Command => !hides_failure(node),
        NodeKind::ManagerLoop => true,
        _ => false,
    };
    let allowing = ["goal_gate", "auto_status", "allow_partial"];
    may_fail
        && text(&node.attrs, "on_failure").is_none()
        && !allowing.iter().any(|name| node.attrs.bool(name) == Some(true))
}

/// Scripts that always end with success, or that only print something.
fn hides_failure(node: &Node) -> bool {
    let script = node.attrs.text("script").unwrap_or_default().trim();
    if matches!(script, "true" | ":") {
        return true;
    }
    let prints = ["echo ", "printf "].iter().any(|start| script.starts_with(start));
    if prints && !script.contains(['&', '|', ';', '>', '$', '`', '\n']) {
        return true;
    }
    ["|| true", "|| :", "||true", "exit 0", "; true"].iter().any(|end| script.ends_with(end))
}

/// Leaves by a plain edge, and no condition on the way to the next stage could tell failure from
/// success.
fn continues_regardless(checking: &Checking<'_>, ix: NodeIx) -> bool {
    let has_plain = checking.workflow.outgoing(ix).any(|edge| !checking.is_conditional(edge));
    has_plain && !is_decided(checking, ix)
}

/// Whether a condition on an edge of the node, or of conditional nodes after it, reads the result of a
/// stage. A condition that does not parse counts too.
fn is_decided(checking: &Checking<'_>, ix: NodeIx) -> bool {
    checking.workflow.deciding_edges(ix).any(|edge| match checking.condition(edge) {
        Some(condition) => {
            condition.reads_result() || condition.keys().any(|key| key.starts_with("parallel."))
        }
        None => checking.is_conditional(edge),
    })
}

/// Whether a condition after a fan-in may handle the failures of branches: it reads their results, or does not
/// depend on the result of the fan-in. A condition that does not parse counts too.
fn looks_at_branches(checking: &Checking<'_>, join: NodeIx) -> bool {
    checking.workflow.deciding_edges(join).any(|edge| match checking.condition(edge) {
        Some(condition) => {
            let possible = |status| condition.possible_after(status).holds;
            condition.keys().any(|key| key.starts_with("parallel."))
                || possible(Status::Failed) && possible(Status::Succeeded)
        }
        None => checking.is_conditional(edge),
    })
}

/// By node: the run may come back to it, and it may end well then.
fn in_loops(checking: &Checking<'_>) -> Vec<bool> {
    let workflow = checking.workflow;
    let mut in_loops = vec![false; workflow.nodes().len()];
    for group in kosaraju_scc(workflow.graph()).iter().filter(|group| group.len() > 1) {
        for node in group {
            in_loops[node.index()] = true;
        }
    }
    for edge in workflow.edges().filter(|edge| edge.from == edge.to) {
        in_loops[edge.from.index()] = true;
    }
    in_loops
}

/// By node: it is in a branch of a fan-out that can do without the branch, or that looks at how its branches
/// ended. A fan-out that waits for all is neither: a failed branch makes it partially succeeded, which is
/// unhandled in the same way.
fn covered_by_fan_outs(checking: &Checking<'_>) -> Vec<bool> {
    let workflow = checking.workflow;
    let mut covered = vec![false; workflow.nodes().len()];
    let mut left = MAX_SEARCH;
    for (fan_out, node) in checking.of_kind(NodeKind::Parallel) {
        let end = match join(workflow, fan_out, &mut left) {
            Join::At(join) if !is_lenient(node) && !looks_at_branches(checking, join) => continue,
            Join::At(join) => Some(join),
            Join::Nowhere => None,
            Join::GaveUp => return vec![true; covered.len()],
        };
        let mut seen = vec![false; covered.len()];
        let mut queue = vec![fan_out];
        while let Some(at) = queue.pop() {
            for edge in workflow.outgoing(at) {
                let to = workflow.edge(edge).to;
                left = left.saturating_sub(1);
                if left == 0 {
                    return vec![true; covered.len()];
                }
                let is_outside = to == fan_out || Some(to) == end;
                if !is_outside && !std::mem::replace(&mut seen[to.index()], true) {
                    covered[to.index()] = true;
                    queue.push(to);
                }
            }
        }
    }
    covered
}

/// Whether a fan-out may continue without a branch, or its own attributes cover a failure.
fn is_lenient(fan_out: &Node) -> bool {
    let policy = text(&fan_out.attrs, "join_policy");
    policy.is_some_and(|policy| !["wait_all", "all_success"].contains(&policy))
        || text(&fan_out.attrs, "on_failure").is_some()
        || ["auto_status", "allow_partial"].iter().any(|it| fan_out.attrs.bool(it) == Some(true))
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn a_failure_that_nothing_handles_is_reported() {
        for body in [
            r#"start -> test -> exit; test [shape=parallelogram, script="cargo test"]"#,
            r#"start -> test -> check -> exit; test [shape=parallelogram, script="cargo test"]; check [shape=diamond]"#,
            r#"start -> test -> report -> exit; test [shape=parallelogram, script="cargo test"]; report [prompt=x]"#,
            r#"start -> test; test -> b [condition="context.mode=fast"]; test -> c; test [shape=parallelogram, script="cargo test"]; b [prompt=x]; c [prompt=x]; b -> exit; c -> exit"#,
            r#"start -> test -> exit; test [shape=house, stack.child_dot_source="digraph { start -> exit }"]"#,
            "start -> p; p [shape=component]; p -> test -> j; p -> b -> j; j -> exit; test [script=x, shape=parallelogram]; b [prompt=b]; j [shape=tripleoctagon]",
        ] {
            let report = reported("unhandled-failure", body);
            assert!(report.contains("when `test` fails, the run continues"), "{body}: {report}");
        }
        insta::assert_snapshot!(reported("unhandled-failure", "start -> a -> b -> c -> d -> exit; node [shape=parallelogram, script=x]; a; b; c; d"), @"nothing");
    }

    #[test]
    fn each_fan_out_covers_its_own_branches() {
        let two = |first: &str, second: &str| {
            let body = format!(
                "p [shape=component {first}]; q [shape=component]; j [shape=tripleoctagon]; k [shape=tripleoctagon]
                node [shape=parallelogram, script=x]; a; b; c; d; start -> p -> {{a; b}} -> j -> q -> {{c; d}} -> k; {second}"
            );
            let report = reported("unhandled-failure", &body);
            report
                .lines()
                .next()
                .unwrap_or_default()
                .split(": ")
                .last()
                .unwrap_or_default()
                .to_owned()
        };
        insta::assert_snapshot!(two("", "k -> exit"), @"when `a`, `b`, `c` or 1 more fails, the run continues and ends partially_succeeded");
        insta::assert_snapshot!(two(", join_policy=first_success", "k -> exit"), @"when `c` or `d` fails, the run continues and ends partially_succeeded");
        insta::assert_snapshot!(two(", join_policy=first_success", r#"k -> exit [condition="outcome=success"]; k -> exit"#), @"when `c` or `d` fails, the run continues and ends partially_succeeded");
        insta::assert_snapshot!(two("", r#"k -> exit [condition="outcome=success"]; k -> exit"#), @"when `a`, `b`, `c` or 1 more fails, the run continues and ends partially_succeeded");
    }

    #[test]
    fn what_handles_a_failure() {
        for body in [
            r#"start -> test; test -> exit [condition="outcome=success"]"#,
            r#"start -> test -> check; check [shape=diamond]; check -> exit [condition="outcome=success"]; check -> test"#,
            "start -> test -> exit; test [goal_gate=true, retry_target=test]",
            "start -> test -> exit; test [allow_partial=true]",
            "start -> test -> exit; test [on_failure=stop]",
            "start -> test -> exit; graph [on_failure=continue]",
            r#"start -> test -> exit; test [script="cargo test || true"]"#,
            r#"start -> test -> exit; test [script="echo done"]"#,
            r#"start -> test -> review; review [prompt=x]; review -> test [condition="outcome=fail"]; review -> exit"#,
            "start -> p; p [shape=component, join_policy=first_success]; p -> test -> j; p -> b -> j; j -> exit; b [prompt=b]",
            r#"start -> p; p [shape=component]; p -> test -> j; p -> b -> j; j -> exit [condition="parallel.results"]; j -> exit; b [prompt=b]"#,
        ] {
            let body = format!("test [shape=parallelogram, script=x]; {body}");
            assert_eq!(reported("unhandled-failure", &body), "nothing", "{body}");
        }
    }
}
