use fabro_graph::{Join, NodeKind, join};
use fabro_plan::{branch_nodes, reads_element};

use crate::checking::Checking;
use crate::findings::Findings;

/// The maximum number of nodes and edges visited to find where the branches of a list join.
const STEPS: usize = 100_000;

/// Reports a list whose element nothing reads.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    for (ix, node) in checking.of_kind(NodeKind::Parallel) {
        let spec = |ix| checking.spec(ix);
        let list = spec(ix).parallel().and_then(|parallel| parallel.for_each.as_ref());
        let (Some(list), Some(attr)) = (list, node.for_each()) else { continue };
        let Join::At(join) = join(checking.workflow, ix, &mut { STEPS }) else { continue };
        let path = branch_nodes(checking.workflow, ix, Some(join));
        // A sub-workflow without `inputs.*` may read anything.
        let may_read = |ix| spec(ix).manager().is_some_and(|manager| manager.inputs.is_empty());
        let nodes = path.iter().map(|ix| spec(*ix));
        if reads_element(list, nodes) || path.iter().any(|ix| may_read(*ix)) {
            continue;
        }
        let name = &list.name;
        let asks = |kind| matches!(kind, NodeKind::Agent | NodeKind::Prompt);
        let follows = path.iter().any(|ix| asks(checking.workflow.node(*ix).kind));
        let what = if follows {
            "it is appended to each prompt as JSON"
        } else {
            "every branch does the same"
        };
        let message = format!(
            "no prompt and no script on the path of `{}` reads the element: {what}",
            node.id
        );
        let fix = format!("write {{{{ context.{name} }}}} where it belongs");
        findings.warning("unread-element", attr.span, message, fix);
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[track_caller]
    fn list(nodes: &str) -> String {
        let start = "start -> each -> work -> end -> exit; end [shape=tripleoctagon]; each [shape=component, for_each=\"[1, 2]\"";
        reported("unread-element", &format!("{start}, as=file]; {nodes}"))
    }

    #[test]
    fn reports_lists_whose_element_nothing_reads() {
        let unread = "no prompt and no script on the path of `each` reads the element";
        let prompt = list("work [prompt=\"Do it.\"]");
        assert!(
            prompt.contains(&format!("{unread}: it is appended to each prompt as JSON")),
            "{prompt}"
        );
        assert!(prompt.contains("fix: write {{ context.file }} where it belongs"), "{prompt}");
        let script = list("work [shape=parallelogram, script=ls]");
        assert!(script.contains(&format!("{unread}: every branch does the same")), "{script}");
        insta::assert_snapshot!(list("work [prompt=\"Do {{ context.file }}.\"]"), @"nothing");
        insta::assert_snapshot!(list("work [shape=house, stack.child_dot_source=\"digraph { start -> exit }\"]"), @"nothing");
    }
}
