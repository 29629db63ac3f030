use std::collections::BTreeMap;

use fabro_graph::{Attr, Attrs};

use crate::checking::Checking;
use crate::findings::Findings;

/// A thread that is never continued, since only fidelity=full continues threads.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
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
        let fix = "add fidelity=full, or remove it";
        findings.warning("thread-without-full", attr.key_span, message, fix);
    }
}

fn add<'a>(uses: &mut BTreeMap<usize, (&'a Attr, bool)>, attr: Option<&'a Attr>, full: bool) {
    if let Some(attr) = attr {
        uses.entry(attr.span.start).or_insert((attr, false)).1 |= full;
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn a_thread_is_continued() {
        insta::assert_snapshot!(reported("thread-without-full", "start -> a -> exit; a [thread_id=main]"), @r"
        1:36 warning: `thread_id` has no effect here: a conversation is only continued with fidelity=full
          at: thread_id
          fix: add fidelity=full, or remove it
        ");
        insta::assert_snapshot!(reported("thread-without-full", "graph [default_thread=main]; node [thread_id=t]; start -> a -> b -> exit; a -> c -> exit [thread_id=e]"), @r"
        1:20 warning: `default_thread` has no effect here: a conversation is only continued with fidelity=full
          at: default_thread
          fix: add fidelity=full, or remove it
        1:48 warning: `thread_id` has no effect here: a conversation is only continued with fidelity=full
          at: thread_id
          fix: add fidelity=full, or remove it
        1:103 warning: `thread_id` has no effect here: a conversation is only continued with fidelity=full
          at: thread_id
          fix: add fidelity=full, or remove it
        ");
        insta::assert_snapshot!(reported("thread-without-full", "start -> a [thread_id=main]; a -> exit"), @r"
        1:25 warning: `thread_id` has no effect here: a conversation is only continued with fidelity=full
          at: thread_id
          fix: add fidelity=full, or remove it
        ");
        insta::assert_snapshot!(reported("thread-without-full", "start -> a [fidelity=full]; a [thread_id=main]; a -> exit"), @"nothing");
        insta::assert_snapshot!(reported("thread-without-full", "graph [default_fidelity=full]; start -> a -> exit; a [thread_id=main]"), @"nothing");
        insta::assert_snapshot!(reported("thread-without-full", "node [thread_id=t]; start -> a -> b -> exit; b [fidelity=full]"), @"nothing");
    }
}
