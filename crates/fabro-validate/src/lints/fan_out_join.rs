use crate::checking::Checking;
use crate::findings::Findings;

/// Fan-outs whose branches never come together: the run cannot continue after them.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    for ix in &checking.flow().endless_fan_outs {
        let node = checking.workflow.node(*ix);
        let message =
            format!("the branches of `{}` never meet, so that nothing can follow", node.id);
        let fix = "lead every branch to one node, such as a fan-in (shape=tripleoctagon)";
        findings.warning("fan-out-join", node.span, message, fix);
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn branches_meet() {
        insta::assert_snapshot!(reported("fan-out-join", "start -> p; p [shape=component]; p -> a -> exit; p -> b"), @r"
        1:22 warning: the branches of `p` never meet, so that nothing can follow
          at: p
          fix: lead every branch to one node, such as a fan-in (shape=tripleoctagon)
        ");
        insta::assert_snapshot!(reported("fan-out-join", "start -> p; p [shape=component]; p -> a -> exit; p -> b -> exit"), @"nothing");
        insta::assert_snapshot!(reported("fan-out-join", "start -> p; p [shape=component]; p -> a -> exit"), @"nothing");
    }
}
