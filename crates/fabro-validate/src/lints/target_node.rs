use std::collections::HashSet;

use fabro_graph::Attrs;

use crate::checking::Checking;
use crate::findings::{Findings, did_you_mean};

const NAMES: [&str; 2] = ["retry_target", "fallback_retry_target"];

/// Attributes that name a node which is not there.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let workflow = checking.workflow;
    let mut seen = HashSet::new();
    let mut look = |attrs: &Attrs| {
        for attr in NAMES.iter().filter_map(|name| attrs.get(name)) {
            let target = attr.value.as_text();
            if !target.trim().is_empty()
                && workflow.find(&target).is_none()
                && seen.insert(attr.span)
            {
                let message =
                    format!("`{}` names `{target}`, but there is no such node", attr.written);
                let near = checking.nearest_node(&target);
                let fix = did_you_mean(near, "name a node of this workflow, or add it");
                findings.error("target-node", attr.span, message, fix);
            }
        }
    };
    look(workflow.attrs());
    workflow.nodes().for_each(|node| look(&node.attrs));
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn names_of_nodes_are_nodes() {
        insta::assert_snapshot!(reported("target-node", r#"graph [retry_target=plam]; start -> plan -> exit; plan [fallback_retry_target="elsewhere"]"#), @r#"
        1:33 error: `retry_target` names `plam`, but there is no such node
          at: plam
          fix: did you mean `plan`?
        1:91 error: `fallback_retry_target` names `elsewhere`, but there is no such node
          at: "elsewhere"
          fix: name a node of this workflow, or add it
        "#);
        insta::assert_snapshot!(reported("target-node", "node [retry_target=gone]; start -> a -> b -> exit"), @r"
        1:32 error: `retry_target` names `gone`, but there is no such node
          at: gone
          fix: name a node of this workflow, or add it
        ");
        insta::assert_snapshot!(reported("target-node", r#"graph [retry_target=plan]; start -> plan -> exit; plan [retry_target=""]"#), @"nothing");
    }
}
