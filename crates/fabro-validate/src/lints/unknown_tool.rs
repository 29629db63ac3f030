use std::collections::HashSet;

use fabro_types::{OWN_TOOLS, tool_names, unknown_tools};

use crate::checking::Checking;
use crate::findings::Findings;

/// Tools whose names look like one of ours, and agents that have none but what a run's settings may
/// declare.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let mut seen = HashSet::new();
    for node in checking.workflow.nodes() {
        let Some(attr) = node.attrs.get("tools") else { continue };
        let Some(text) = attr.value.text() else { continue };
        if !seen.insert(attr.span) {
            continue;
        }
        let unknown: Vec<_> = unknown_tools(text).collect();
        let reported = findings.0.len();
        for name in &unknown {
            let Some(near) = checking.nearest(name, OWN_TOOLS) else { continue };
            let message = format!("no tool of ours is called `{name}`");
            findings.warning("unknown-tool", attr.span, message, format!("did you mean `{near}`?"));
        }
        if let Some(first) = unknown.first().filter(|_| findings.0.len() == reported)
            && unknown.len() == tool_names(text).count()
        {
            let message = format!(
                "no tool of ours is called `{first}`: without settings that declare it, the agent has no tools"
            );
            let fix = format!("choose from {}", OWN_TOOLS.join(", "));
            findings.warning("unknown-tool", attr.span, message, fix);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn near_misses_of_tools_are_told() {
        insta::assert_snapshot!(reported("unknown-tool", r#"start -> a -> exit; a [prompt=x, tools="read_files, grep, webFetch, mcp__read__file, deploy"]"#), @r#"
        1:52 warning: no tool of ours is called `read_files`
          at: "read_files, grep, webFetch, mcp__read__file, deploy"
          fix: did you mean `read_file`?
        1:52 warning: no tool of ours is called `webFetch`
          at: "read_files, grep, webFetch, mcp__read__file, deploy"
          fix: did you mean `web_fetch`?
        "#);
        insta::assert_snapshot!(reported("unknown-tool", r#"node [tools="shel"]; start -> a -> b -> exit"#), @r#"
        1:25 warning: no tool of ours is called `shel`
          at: "shel"
          fix: did you mean `shell`?
        "#);
        insta::assert_snapshot!(reported("unknown-tool", r#"start -> a -> exit; a [prompt=x, tools="read_file,write_file edit_file apply_patch shell grep glob list_dir web_fetch get_workflow_context append_workflow_context spawn_agent send_input wait close_agent use_skill lookup"]"#), @"nothing");
    }

    #[test]
    fn agents_without_any_tool_are_told() {
        insta::assert_snapshot!(reported("unknown-tool", r#"start -> a -> exit; a [prompt=x, tools="nope"]"#), @r#"
        1:52 warning: no tool of ours is called `nope`: without settings that declare it, the agent has no tools
          at: "nope"
          fix: choose from append_workflow_context, apply_patch, close_agent, edit_file, get_workflow_context, glob, grep, list_dir, read_file, send_input, shell, spawn_agent, use_skill, wait, web_fetch, web_search, write_file
        "#);
        insta::assert_snapshot!(reported("unknown-tool", r#"start -> a -> exit; a [prompt=x, tools="read_file;shell deploy"]"#), @r#"
        1:52 warning: no tool of ours is called `read_file;shell`: without settings that declare it, the agent has no tools
          at: "read_file;shell deploy"
          fix: choose from append_workflow_context, apply_patch, close_agent, edit_file, get_workflow_context, glob, grep, list_dir, read_file, send_input, shell, spawn_agent, use_skill, wait, web_fetch, web_search, write_file
        "#);
        for fine in ["deploy grep", "mcp__docs__search, deploy", "", " , "] {
            let source = format!(r#"start -> a -> exit; a [prompt=x, tools="{fine}"]"#);
            assert_eq!(reported("unknown-tool", &source), "nothing", "{fine}");
        }
    }
}
