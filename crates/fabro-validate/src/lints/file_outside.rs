use std::collections::HashSet;

use fabro_graph::Attrs;

use crate::checking::Checking;
use crate::findings::Findings;

const NAMES: [&str; 5] = ["goal", "prompt", "script", "output_schema", "stack.child_workflow"];

/// Files that another user of the workflow's folder does not have.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let mut seen = HashSet::new();
    let mut look = |attrs: &Attrs| {
        for attr in NAMES.iter().filter_map(|name| attrs.get(name)) {
            let Some(file) = &attr.file else { continue };
            if !seen.insert(attr.span) || !is_outside(&checking.sources.join(file)) {
                continue;
            }
            let message = format!("`{file}` is outside of the folder of the workflow");
            let fix = "move the file beside the workflow, so that the two stay together";
            findings.warning("file-outside", attr.span, message, fix);
        }
    };
    look(checking.workflow.attrs());
    checking.workflow.nodes().for_each(|node| look(&node.attrs));
}

/// `path` has no `x/..` in it.
fn is_outside(path: &str) -> bool {
    path.starts_with(['~', '/', '\\']) || path == ".." || path.starts_with("../")
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported_with;

    #[test]
    fn files_stay_beside_the_workflow() {
        insta::assert_snapshot!(reported_with("file-outside", r#"start -> a -> b -> c -> exit; a [prompt="@../a.md"]; b [prompt="@~/b.md"]; c [prompt="@sub/../c.md"]"#, &[("../a.md", "a"), ("~/b.md", "b"), ("sub/../c.md", "c")], None), @r#"
        1:53 warning: `../a.md` is outside of the folder of the workflow
          at: "@../a.md"
          fix: move the file beside the workflow, so that the two stay together
        1:76 warning: `~/b.md` is outside of the folder of the workflow
          at: "@~/b.md"
          fix: move the file beside the workflow, so that the two stay together
        "#);
    }
}
