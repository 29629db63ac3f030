use fabro_graph::{Join, NodeIx, NodeKind, join};

use crate::attrs::text;
use crate::checking::Checking;
use crate::findings::Findings;

/// The maximum number of edges visited in one workflow.
const MAX_SEARCH: usize = 200_000;

/// Reports a goal gate that a path to an exit without a status bypasses: a run that takes it fails. One
/// finding for the first such gate.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let mut search = Search { checking, left: MAX_SEARCH };
    let gates = checking.nodes().filter(|(ix, node)| {
        use NodeKind::{Conditional, Exit, Start};
        node.attrs.bool("goal_gate") == Some(true)
            && !matches!(node.kind, Start | Exit | Conditional)
            && checking.flow().reached[ix.index()]
    });
    for (ix, gate) in gates {
        let Some(exit) = search.bypass(ix) else { continue };
        let exit = &checking.workflow.node(exit).id;
        let message = format!(
            "a path to `{exit}` bypasses the goal gate `{}`: a run that takes it fails",
            gate.id
        );
        let fix = format!(
            "route the path through `{}`, or give it a separate exit with a `status`, such as status=failed",
            gate.id
        );
        findings.warning("goal-gate-bypass", gate.span, message, fix);
        return;
    }
}

struct Search<'c, 'w> {
    checking: &'c Checking<'w>,
    left: usize,
}

impl Search<'_, '_> {
    /// The exit that a path around the gate reaches.
    fn bypass(&mut self, gate: NodeIx) -> Option<NodeIx> {
        let workflow = self.checking.workflow;
        let start = workflow.start()?;
        let mut wall = gate;
        let mut outer: Vec<NodeIx> =
            self.checking.of_kind(NodeKind::Parallel).map(|(ix, _)| ix).collect();
        loop {
            // The innermost enclosing fan-out: all of its branches run.
            let mut innermost: Option<(usize, NodeIx, Option<NodeIx>)> = None;
            for fan_out in &outer {
                let end = match join(workflow, *fan_out, &mut self.left) {
                    Join::At(join) => Some(join),
                    Join::Nowhere => None,
                    Join::GaveUp => return None,
                };
                let inside = self.reach(*fan_out, &[Some(*fan_out), end]);
                let is_smaller = innermost.is_none_or(|(size, ..)| inside.len() < size);
                if inside.contains(&wall) && is_smaller {
                    innermost = Some((inside.len(), *fan_out, end));
                }
            }
            let Some((_, fan_out, end)) = innermost else { break };
            let policy = text(&workflow.node(fan_out).attrs, "join_policy");
            if policy.is_some_and(|policy| !["wait_all", "all_success"].contains(&policy)) {
                return None;
            }
            let targets: Vec<NodeIx> =
                workflow.outgoing(fan_out).map(|edge| workflow.edge(edge).to).collect();
            for target in targets.into_iter().filter(|target| *target != wall) {
                let leads_there = self.reach(target, &[Some(fan_out), end]).contains(&wall);
                let around = self.reach(target, &[Some(fan_out), Some(wall)]);
                if leads_there && end.is_some_and(|end| around.contains(&end)) {
                    return workflow.exits().find(|exit| self.checking.is_plain_exit(*exit));
                }
            }
            outer.retain(|it| *it != fan_out);
            wall = fan_out;
        }
        if wall == start || self.left == 0 {
            return None;
        }
        let found = self.reach(start, &[Some(wall)]);
        found.into_iter().find(|ix| self.checking.is_plain_exit(*ix)).filter(|_| self.left > 0)
    }

    /// The nodes reachable from `from` without passing through `without`.
    fn reach(&mut self, from: NodeIx, without: &[Option<NodeIx>]) -> Vec<NodeIx> {
        let workflow = self.checking.workflow;
        let mut seen = vec![false; workflow.nodes().len()];
        let mut found = Vec::new();
        let mut queue = vec![from];
        while let Some(at) = queue.pop() {
            for edge in workflow.outgoing(at) {
                let to = workflow.edge(edge).to;
                self.left = self.left.saturating_sub(1);
                let is_open = self.left > 0 && !without.contains(&Some(to));
                if is_open && !std::mem::replace(&mut seen[to.index()], true) {
                    found.push(to);
                    queue.push(to);
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn a_path_around_a_goal_gate_is_reported() {
        for body in [
            r#"start -> a; a -> verify [condition="context.full=true"]; a -> exit; verify -> exit"#,
            r#"start -> a; a -> verify [condition="outcome=success"]; a -> report -> exit; verify -> exit; report [prompt=r]"#,
            r#"start -> a -> p; a -> exit [condition="context.skip=true"]; p -> verify -> j; p -> b -> j; j -> exit"#,
            r#"start -> p; p -> a -> verify -> j; a -> j [condition="context.skip=true"]; p -> b -> j; j -> exit"#,
        ] {
            let body = format!("{GRAPH}; {body}");
            let report = reported("goal-gate-bypass", &body);
            assert!(report.contains("bypasses the goal gate `verify`"), "{body}: {report}");
        }
    }

    #[test]
    fn all_paths_pass_through_the_goal_gate() {
        for body in [
            "start -> a -> verify -> exit",
            r#"start -> a -> verify; verify -> exit [condition="outcome=success"]; verify -> a"#,
            "start -> p; p -> verify -> j; p -> b -> j; j -> exit",
            r#"start -> p; p [join_policy=first_success]; p -> a -> verify -> j; a -> j [condition="context.skip=true"]; p -> b -> j; j -> exit"#,
            r#"start -> a; a -> verify [condition="outcome=success"]; a -> bad; verify -> exit; bad [shape=Msquare, status=failed]"#,
            "start -> p; p -> q -> verify -> i; q -> b -> i; i [shape=tripleoctagon]; q [shape=component]; p -> a -> j; i -> j -> exit",
        ] {
            assert_eq!(
                reported("goal-gate-bypass", &format!("{GRAPH}; {body}")),
                "nothing",
                "{body}"
            );
        }
    }

    const GRAPH: &str = "a [prompt=a]; b [prompt=b]; p [shape=component]; j [shape=tripleoctagon]
        verify [shape=parallelogram, script=x, goal_gate=true, retry_target=a]";
}
