use fabro_graph::NodeKind;

use crate::checking::Checking;
use crate::findings::Findings;

const OTHER_DIALECT: &str = "move those nodes to a separate workflow and name it with stack.child_workflow, or route edges through them";

/// A manager loop that observes and steers nodes of its own graph, which is not supported.
fn of_other_dialect(id: &str) -> String {
    format!(
        "`{id}` manages nodes of its own graph with `manager.actions`, which Fabro does not support: a \
         stack.manager_loop node runs a sub-workflow"
    )
}

/// A node without what its handler works on: it would fail, or do nothing.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    for node in checking.workflow.nodes() {
        let (names, fix): (&[&str], _) = match node.kind {
            NodeKind::Command => (&["script"], "add script=\"…\""),
            kind if kind.is_llm() && node.attrs.text("backend") == Some("acp") => {
                (&["acp.command"], "add acp.command=\"…\", the program to start")
            }
            NodeKind::Wait => (&["duration"], "add duration=30s"),
            NodeKind::ManagerLoop => (
                &["stack.child_workflow", "stack.child_dot_source"],
                "add stack.child_workflow=\"child.fabro\"",
            ),
            _ => continue,
        };
        let is_empty = |name: &&str| {
            node.attrs.get(name).is_none_or(|attr| attr.value.as_text().trim().is_empty())
        };
        if names.iter().all(is_empty) {
            let message = format!("the {} node `{}` has no {}", node.kind, node.id, names[0]);
            // A run is refused for a sub-workflow that is not there.
            if node.kind == NodeKind::ManagerLoop {
                let actions = node.attrs.iter().find(|attr| attr.name == "manager.actions");
                let (span, message, fix) = match actions {
                    Some(actions) => (actions.key_span, of_other_dialect(&node.id), OTHER_DIALECT),
                    None => (node.span, message, fix),
                };
                findings.error("missing-workflow", span, message, fix);
            } else {
                findings.warning("missing-attribute", node.span, message, fix);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn a_node_has_what_its_handler_needs() {
        insta::assert_snapshot!(reported("missing-attribute", "start -> c -> w -> m -> exit; c [shape=parallelogram]; w [shape=insulator]; m [shape=house]"), @r#"
        1:22 warning: the command node `c` has no script
          at: c
          fix: add script="…"
        1:27 warning: the wait node `w` has no duration
          at: w
          fix: add duration=30s
        "#);
        insta::assert_snapshot!(reported("missing-workflow", "start -> m -> exit; m [shape=house]"), @r#"
        1:22 error: the stack.manager_loop node `m` has no stack.child_workflow
          at: m
          fix: add stack.child_workflow="child.fabro"
        "#);
        insta::assert_snapshot!(reported("missing-workflow", "start -> m -> exit; m [shape=house, manager.actions=\"observe,steer\"]"), @r"
        1:49 error: `m` manages nodes of its own graph with `manager.actions`, which Fabro does not support: a stack.manager_loop node runs a sub-workflow
          at: manager.actions
          fix: move those nodes to a separate workflow and name it with stack.child_workflow, or route edges through them
        ");
        insta::assert_snapshot!(reported("missing-attribute", r#"start -> c -> w -> m -> exit; c [shape=parallelogram, script=x]; w [shape=insulator, duration=1s]; m [shape=house, stack.child_dot_source="digraph { start -> exit }"]"#), @"nothing");
    }
}
