use std::collections::HashSet;

use fabro_condition::{Condition, ConditionError};
use fabro_graph::{Attr, Diagnostic};

use crate::checking::{Checking, syntax_error};

/// Conditions of edges, and stop conditions, that do not parse.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Vec<Diagnostic>) {
    let mut seen = HashSet::new();
    let workflow = checking.workflow;
    for ix in workflow.edge_indices() {
        if let Some(Err(error)) = checking.condition(ix)
            && let Some(attr) = workflow.edge(ix).attrs.get("condition")
            && seen.insert(attr.span)
        {
            findings.push(finding(checking, attr, error));
        }
    }
    for node in workflow.nodes() {
        if let Some(attr) = node.attrs.get("manager.stop_condition")
            && seen.insert(attr.span)
            && let Err(error) = Condition::parse(&attr.value.as_text())
        {
            findings.push(finding(checking, attr, &error));
        }
    }
}

fn finding(checking: &Checking<'_>, attr: &Attr, error: &ConditionError) -> Diagnostic {
    let said = (error.message.as_str(), error.span, error.fix.as_deref());
    syntax_error(checking.source, "condition-syntax", attr, said)
}
