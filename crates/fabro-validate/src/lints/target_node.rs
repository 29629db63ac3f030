use std::collections::HashSet;

use fabro_graph::{Attr, Attrs, Diagnostic};

use crate::checking::Checking;

const NAMES: [&str; 3] = ["retry_target", "fallback_retry_target", "human.default_choice"];

/// Attributes that name a node which is not there.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Vec<Diagnostic>) {
    let workflow = checking.workflow;
    let mut seen = HashSet::new();
    let mut look = |attrs: &Attrs| {
        for attr in NAMES.iter().filter_map(|name| attrs.get(name)) {
            if seen.insert(attr.span) && workflow.find(&attr.value.as_text()).is_none() {
                findings.push(finding(checking, attr));
            }
        }
    };
    look(workflow.attrs());
    workflow.nodes().for_each(|node| look(&node.attrs));
}

fn finding(checking: &Checking<'_>, attr: &Attr) -> Diagnostic {
    let target = attr.value.as_text();
    let message = format!("`{}` names the node `{target}`, which there is not", attr.written);
    let finding = Diagnostic::error("target-node", attr.span, message);
    match checking.nearest_node(&target) {
        Some(near) => finding.with_fix(format!("did you mean `{near}`?")),
        None => finding.with_fix("name a node of this workflow, or add it"),
    }
}
