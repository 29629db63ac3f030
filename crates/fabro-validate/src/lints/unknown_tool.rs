use std::collections::HashSet;

use fabro_graph::Diagnostic;

use crate::checking::Checking;

/// The tools that agents have without any configuration, by name.
const TOOLS: &[&str] = &[
    "append_workflow_context",
    "apply_patch",
    "close_agent",
    "edit_file",
    "get_workflow_context",
    "glob",
    "grep",
    "list_dir",
    "read_file",
    "send_input",
    "shell",
    "spawn_agent",
    "use_skill",
    "wait",
    "web_fetch",
    "write_file",
];

/// Tools whose names look like one of ours. Others may come from the configuration of a run.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Vec<Diagnostic>) {
    let mut seen = HashSet::new();
    for node in checking.workflow.nodes() {
        let Some(attr) = node.attrs.get("tools") else { continue };
        let Some(text) = attr.value.text() else { continue };
        if !seen.insert(attr.span) {
            continue;
        }
        let names = text.split(|c: char| c == ',' || c.is_whitespace());
        for name in names.filter(|name| !name.is_empty() && !name.starts_with("mcp__")) {
            if TOOLS.binary_search(&name).is_ok() {
                continue;
            }
            let Some(near) = checking.nearest(name, TOOLS.iter().copied()) else { continue };
            let message = format!("no tool of ours is called `{name}`");
            findings.push(
                Diagnostic::warning("unknown-tool", attr.span, message)
                    .with_fix(format!("did you mean `{near}`?")),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::told;

    #[test]
    fn near_misses_of_tools_are_told() {
        insta::assert_snapshot!(told("unknown-tool", r#"start -> a -> exit; a [prompt=x, tools="read_files, grep, webFetch, mcp__read__file, deploy"]"#), @r#"
        1:52 warning: no tool of ours is called `read_files`
          at: "read_files, grep, webFetch, mcp__read__file, deploy"
          fix: did you mean `read_file`?
        1:52 warning: no tool of ours is called `webFetch`
          at: "read_files, grep, webFetch, mcp__read__file, deploy"
          fix: did you mean `web_fetch`?
        "#);
        insta::assert_snapshot!(told("unknown-tool", r#"node [tools="shel"]; start -> a -> b -> exit"#), @r#"
        1:25 warning: no tool of ours is called `shel`
          at: "shel"
          fix: did you mean `shell`?
        "#);
        insta::assert_snapshot!(told("unknown-tool", r#"start -> a -> exit; a [prompt=x, tools="read_file,write_file edit_file apply_patch shell grep glob list_dir web_fetch get_workflow_context append_workflow_context spawn_agent send_input wait close_agent use_skill lookup"]"#), @"nothing");
    }

    #[test]
    fn the_names_are_in_order() {
        assert!(super::TOOLS.is_sorted());
    }
}
