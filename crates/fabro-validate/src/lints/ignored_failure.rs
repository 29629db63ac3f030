use fabro_graph::{Node, NodeIx, NodeKind};

use crate::checking::Checking;
use crate::findings::Findings;

/// Commands and sub-workflows whose failure changes nothing: the run continues by a plain edge, and
/// neither a condition nor any later stage sees it. A failure is an ordinary result of these; that of
/// a model is not, and is not looked for here.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let flow = checking.flow();
    // Agents and people see what failed before them, and so does what comes after a fan-out.
    let sees = |kind: NodeKind| kind.is_llm() || matches!(kind, NodeKind::Human | NodeKind::FanIn);
    let of_kinds = |is: &dyn Fn(NodeKind) -> bool| -> Vec<usize> {
        checking.nodes().filter(|(_, node)| is(node.kind)).map(|(ix, _)| ix.index()).collect()
    };
    let seen_later = flow.backward(of_kinds(&sees));
    for (ix, node) in checking.nodes() {
        let may_fail = match node.kind {
            NodeKind::Command => !hides_failure(node),
            NodeKind::ManagerLoop => true,
            _ => false,
        };
        let settled = ["goal_gate", "auto_status"].iter().any(|n| node.attrs.bool(n) == Some(true));
        let at = ix.index();
        if !may_fail || settled || !flow.reached[at] || seen_later[at] || flow.in_branch[at] {
            continue;
        }
        if continues_regardless(checking, ix) {
            let message =
                format!("nothing looks at whether `{}` fails: the run continues", node.id);
            let fix = format!("add an edge for it: {} -> … [condition=\"outcome=fail\"]", node.id);
            findings.warning("ignored-failure", node.span, message, fix);
        }
    }
}

/// Scripts that always end with success.
fn hides_failure(node: &Node) -> bool {
    let script = node.attrs.text("script").unwrap_or_default().trim_end();
    ["|| true", "|| :", "||true", "exit 0", "; true"].iter().any(|end| script.ends_with(end))
}

/// Leaves by a plain edge, and no condition on the way to the next stage tells failure from success.
fn continues_regardless(checking: &Checking<'_>, ix: NodeIx) -> bool {
    let workflow = checking.workflow;
    let mut seen = vec![ix];
    let mut at = 0;
    let mut plain = false;
    while let Some(node) = seen.get(at).copied() {
        at += 1;
        for (edge, target) in checking.outgoing(node) {
            if checking.is_conditional(edge) {
                return false;
            }
            plain = true;
            let passes_on = workflow.node(target.to).kind == NodeKind::Conditional;
            if passes_on && seen.len() < 64 && !seen.contains(&target.to) {
                seen.push(target.to);
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn a_failing_command_changes_something() {
        insta::assert_snapshot!(reported("ignored-failure", r#"start -> test -> exit; test [shape=parallelogram, script="cargo test"]"#), @r#"
        1:22 warning: nothing looks at whether `test` fails: the run continues
          at: test
          fix: add an edge for it: test -> … [condition="outcome=fail"]
        "#);
        insta::assert_snapshot!(reported("ignored-failure", r#"start -> test -> check -> exit; test [shape=parallelogram, script="cargo test"]; check [shape=diamond]"#), @r#"
        1:22 warning: nothing looks at whether `test` fails: the run continues
          at: test
          fix: add an edge for it: test -> … [condition="outcome=fail"]
        "#);
        insta::assert_snapshot!(reported("ignored-failure", r#"start -> m -> exit; m [shape=house, stack.child_dot_source="digraph { start -> exit }"]"#), @r#"
        1:22 warning: nothing looks at whether `m` fails: the run continues
          at: m
          fix: add an edge for it: m -> … [condition="outcome=fail"]
        "#);
    }

    #[test]
    fn what_looks_at_a_failure() {
        insta::assert_snapshot!(reported("ignored-failure", r#"start -> test; test [shape=parallelogram, script="cargo test"]; test -> exit [condition="outcome=success"]"#), @"nothing");
        insta::assert_snapshot!(reported("ignored-failure", r#"start -> test -> check; test [shape=parallelogram, script="cargo test"]; check [shape=diamond]; check -> exit [condition="outcome=success"]; check -> test"#), @"nothing");
        insta::assert_snapshot!(reported("ignored-failure", r#"start -> test -> report -> exit; test [shape=parallelogram, script="cargo test"]; report [prompt=x]"#), @"nothing");
        insta::assert_snapshot!(reported("ignored-failure", r#"start -> test -> exit; test [shape=parallelogram, script="cargo test", goal_gate=true, retry_target=test]"#), @"nothing");
        insta::assert_snapshot!(reported("ignored-failure", r#"start -> test -> exit; test [shape=parallelogram, script="cargo test || true"]"#), @"nothing");
        insta::assert_snapshot!(reported("ignored-failure", "start -> p; p [shape=component]; p -> test -> exit; p -> lint -> exit; node [shape=parallelogram]; test [script=x, shape=parallelogram]; lint [script=x, shape=parallelogram]"), @"nothing");
    }
}
