use std::collections::BTreeMap;

use fabro_graph::{Attr, Attrs, Diagnostic};

use crate::checking::Checking;

/// A thread that is never continued, since only fidelity=full continues threads.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Vec<Diagnostic>) {
    let workflow = checking.workflow;
    let is_full = |edge: Option<&Attrs>, node: &Attrs| {
        let fidelity = edge.and_then(|attrs| attrs.text("fidelity"));
        let fidelity = fidelity.or_else(|| node.text("fidelity"));
        fidelity.or_else(|| workflow.attrs().text("default_fidelity")) == Some("full")
    };
    // By place of the attribute, which nodes of one scope share: whether any use of it is full.
    let mut uses: BTreeMap<usize, (&Attr, bool)> = BTreeMap::new();
    for (ix, node) in checking.nodes().filter(|(_, node)| node.kind.is_llm()) {
        let mut any_full = is_full(None, &node.attrs);
        for edge in workflow.incoming(ix).map(|edge| workflow.edge(edge)) {
            let full = is_full(Some(&edge.attrs), &node.attrs);
            add(&mut uses, edge.attrs.get("thread_id"), full);
            any_full |= full;
        }
        add(&mut uses, node.attrs.get("thread_id"), any_full);
        add(&mut uses, workflow.attrs().get("default_thread"), any_full);
    }
    for (attr, _) in uses.values().filter(|(_, full)| !full) {
        let message = format!(
            "`{}` has no effect here: a conversation is only continued with fidelity=full",
            attr.written
        );
        findings.push(
            Diagnostic::warning("thread-without-full", attr.key_span, message)
                .with_fix("add fidelity=full, or remove it"),
        );
    }
}

fn add<'a>(uses: &mut BTreeMap<usize, (&'a Attr, bool)>, attr: Option<&'a Attr>, full: bool) {
    if let Some(attr) = attr {
        uses.entry(attr.span.start).or_insert((attr, false)).1 |= full;
    }
}
