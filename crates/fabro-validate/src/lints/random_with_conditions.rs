use crate::checking::Checking;
use crate::findings::Findings;

/// A node chooses by chance or by conditions, not by both.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    for (ix, node) in checking.nodes() {
        if node.attrs.text("selection") != Some("random") {
            continue;
        }
        let conditional = checking.outgoing(ix).find(|(_, edge)| edge.condition().is_some());
        if let Some(attr) = node.attrs.get("selection")
            && let Some((_, edge)) = conditional
        {
            let to = &checking.workflow.node(edge.to).id;
            let message = format!(
                "`{}` has selection=random, but its edge to `{to}` has a condition",
                node.id
            );
            let fix = "remove the conditions, or selection=random";
            findings.error("random-with-conditions", attr.span, message, fix);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn chance_or_conditions() {
        insta::assert_snapshot!(reported("random-with-conditions", r#"start -> a; a [selection=random]; a -> b [condition="x"]; a -> exit; b -> exit"#), @r"
        1:38 error: `a` has selection=random, but its edge to `b` has a condition
          at: random
          fix: remove the conditions, or selection=random
        ");
        insta::assert_snapshot!(reported("random-with-conditions", "start -> a; a [selection=random]; a -> b [weight=2]; a -> exit; b -> exit"), @"nothing");
    }
}
