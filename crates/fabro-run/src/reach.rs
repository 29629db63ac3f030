//! Which stages a run can still come to, on its main line or in branches.

use std::collections::{BTreeMap, BTreeSet};

use fabro_engine::{Cursor, Plan, Position, RetryTargets, RunState};
use fabro_graph::NodeIx;
use fabro_types::{BranchPath, NodeKind};

/// The nodes that a run can come to, in the order of the file; with whether a branch can.
pub(crate) type Reached = BTreeMap<NodeIx, bool>;

/// A node and the innermost fan-out that it is reached in a branch of.
type Place = (NodeIx, Option<NodeIx>);

/// What a new run can come to.
pub(crate) fn from_start(plan: &Plan) -> Reached {
    let start = plan.workflow().find(&plan.start().id);
    reached(plan, start.map(|start| (start, None)).into_iter().collect())
}

/// What a run that was paused or interrupted can come to.
pub(crate) fn from_state(plan: &Plan, state: &RunState) -> Reached {
    let mut open = Vec::new();
    for cursor in state.cursors.values() {
        add_next(plan, cursor, &mut open);
    }
    // From the exit the run may go back.
    if let Some(main) = state.main() {
        let gates = plan.goal_gates().iter().map(|gate| plan.spec(*gate));
        let visited = gates.filter(|gate| main.visits.contains_key(&gate.id));
        let targets = visited.flat_map(|gate| targets(gate.retry_targets));
        open.extend(targets.map(|target| (target, None)));
    }
    reached(plan, open)
}

/// The places that a line goes to next.
fn add_next(plan: &Plan, cursor: &Cursor, open: &mut Vec<Place>) {
    let find = |id: &str| plan.workflow().find(id);
    let fan_out = BranchPath::new(&cursor.branch).fan_outs().last();
    let fan_out = fan_out.and_then(|fan_out| find(fan_out.node()));
    match &cursor.position {
        Position::Created => open.extend(find(&plan.start().id).map(|start| (start, fan_out))),
        Position::Ready { node, .. } => open.extend(find(node).map(|node| (node, fan_out))),
        Position::Active(stage) => open.extend(find(&stage.node).map(|node| (node, fan_out))),
        Position::ChoosingEdge { node, .. } => {
            open.extend(find(node).into_iter().flat_map(|node| next(plan, (node, fan_out))));
        }
        Position::Fanned(fan) => {
            let node = find(&fan.stage.node);
            let waiting = fan.waiting().filter_map(|it| find(&it.target));
            open.extend(waiting.map(|target| (target, node)));
            // It joins, or leaves by its retry target.
            let spec = node.map(|node| plan.spec(node));
            let own = spec.into_iter().flat_map(|spec| targets(spec.retry_targets));
            let join = node.and_then(|node| plan.join(node));
            open.extend(join.into_iter().chain(own).map(|to| (to, fan_out)));
        }
        Position::Done => {}
    }
}

fn reached(plan: &Plan, mut open: Vec<Place>) -> Reached {
    open.extend(targets(plan.graph().retry_targets).map(|target| (target, None)));
    let mut seen = BTreeSet::new();
    let mut reached = Reached::new();
    while let Some(place) = open.pop() {
        let (node, fan_out) = place;
        let is_join = fan_out.is_some_and(|fan_out| plan.join(fan_out) == Some(node));
        // A branch ends where its fan-out is joined.
        if is_join || !seen.insert(place) {
            continue;
        }
        *reached.entry(node).or_default() |= fan_out.is_some();
        open.extend(next(plan, place));
    }
    reached
}

/// Where a line can go from a place.
fn next(plan: &Plan, (node, fan_out): Place) -> Vec<Place> {
    let spec = plan.spec(node);
    let own = targets(spec.retry_targets).map(|target| (target, fan_out));
    let edges = plan.outgoing(node).map(|edge| edge.to);
    if spec.kind == NodeKind::Parallel {
        let join = plan.join(node).map(|join| (join, fan_out));
        return edges.map(|to| (to, Some(node))).chain(join).chain(own).collect();
    }
    edges.map(|to| (to, fan_out)).chain(own).collect()
}

fn targets(targets: RetryTargets) -> impl Iterator<Item = NodeIx> {
    targets.first.into_iter().chain(targets.fallback)
}

#[cfg(test)]
mod tests {
    use crate::LoadedWorkflow;

    use super::*;

    #[track_caller]
    fn check(source: &str, expect: &str) {
        let loaded = LoadedWorkflow::parse("w", &format!("digraph {{ {source} }}")).unwrap();
        let plan = &loaded.plan;
        let name = |(ix, is_branch): (&NodeIx, &bool)| {
            format!("{}{}", plan.spec(*ix).id, if *is_branch { "*" } else { "" })
        };
        let reached = from_start(plan);
        assert_eq!(reached.iter().map(name).collect::<Vec<_>>().join(" "), expect, "{source}");
    }

    #[test]
    fn what_a_run_can_come_to() {
        check("start -> a -> exit; b -> exit", "start a exit");
        check("start -> a -> exit; a [retry_target=b]; b -> a", "start a exit b");
        check("graph [retry_target=b]; start -> a -> exit; b -> a", "start a exit b");
        let fan = "start -> f; f [shape=component]; f -> a -> j; f -> b -> c -> j; j -> exit";
        check(fan, "start f a* j b* c* exit");
        check(&format!("{fan}; a [retry_target=d]; d -> j"), "start f a* j b* c* exit d*");
        check(
            "start -> f; f [shape=component]; f -> g -> j; g [shape=component]; g -> x -> k; g -> y -> k; k -> j; f -> a -> j; j -> exit",
            "start f g* j x* k* y* a* exit",
        );
        check(
            "start -> f; f [shape=component]; f -> a -> j; f -> b -> j; j -> a2 -> exit; a2 -> f [condition=\"outcome=fail\"]; a -> a2 [condition=\"outcome=fail\"]",
            "start f* a* j b* a2* exit*",
        );
    }
}
