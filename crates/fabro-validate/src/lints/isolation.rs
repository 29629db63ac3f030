use fabro_graph::{Join, NodeKind, join};

use crate::checking::Checking;
use crate::findings::Findings;

/// How many nodes and edges are looked at for the joins of one workflow.
const STEPS: usize = 1_000_000;

/// Branches with git worktrees of their own that no fan-in takes the files of, and fan-ins that merge
/// branches without.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let mut steps = STEPS;
    let mut taken = Vec::new();
    for (ix, node) in checking.of_kind(NodeKind::Parallel) {
        let Some(attr) = node.attrs.get("isolation") else { continue };
        if attr.value.as_text().trim() != "worktree" {
            continue;
        }
        match join(checking.workflow, ix, &mut steps) {
            Join::GaveUp => return,
            Join::At(at) if checking.workflow.node(at).kind == NodeKind::FanIn => taken.push(at),
            _ => {
                let message = format!(
                    "the branches of `{}` have worktrees of their own, and no fan-in takes their files",
                    node.id
                );
                let fix = "lead every branch to one fan-in (shape=tripleoctagon)";
                findings.error("isolation", attr.span, message, fix);
            }
        }
    }
    for (ix, node) in checking.of_kind(NodeKind::FanIn) {
        let Some(attr) = node.attrs.get("merge") else { continue };
        if attr.value.as_text().trim() == "all" && !taken.contains(&ix) {
            let message = format!(
                "`{}` merges all branches, and those that join there share their files",
                node.id
            );
            let fix = "write isolation=worktree on their parallel node, or remove it";
            findings.warning("without-effect", attr.span, message, fix);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn a_fan_in_takes_the_files_of_isolated_branches() {
        insta::assert_snapshot!(reported("isolation", "start -> p -> {a; b} -> f -> exit; p [shape=component, isolation=worktree]; f [shape=tripleoctagon, merge=all]"), @"nothing");
        insta::assert_snapshot!(reported("isolation", "start -> p -> {a; b} -> c -> exit; p [shape=component, isolation=worktree]"), @r"
        1:78 error: the branches of `p` have worktrees of their own, and no fan-in takes their files
          at: worktree
          fix: lead every branch to one fan-in (shape=tripleoctagon)
        ");
        insta::assert_snapshot!(reported("isolation", "start -> p -> {a; b} -> c -> exit; p [shape=component, isolation=none]"), @"nothing");
        insta::assert_snapshot!(reported("without-effect", "start -> p -> {a; b} -> f -> exit; p [shape=component]; f [shape=tripleoctagon, merge=all]"), @r"
        1:99 warning: `f` merges all branches, and those that join there share their files
          at: all
          fix: write isolation=worktree on their parallel node, or remove it
        ");
    }
}
