use fabro_graph::{Attr, Node, Origin};

use crate::checking::Checking;
use crate::findings::Findings;

/// Reports a node with both a script and a prompt: one of the two would be ignored. Defaults of a scope
/// do not count, since they are meant for other nodes.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    for node in checking.workflow.nodes() {
        let Some(script) = own(node, "script") else { continue };
        let Some(prompt) = own(node, "prompt") else { continue };
        let later = if prompt.key_span.start > script.key_span.start { prompt } else { script };
        let message = format!(
            "`{}` has both `{}` and `{}`: a command runs a script, an agent gets a prompt",
            node.id, script.written, prompt.written
        );
        let fix = "remove one of them, or make two nodes";
        findings.error("script-and-prompt", later.key_span, message, fix);
    }
}

/// Whether the node itself has both.
pub(super) fn has_script_and_prompt(node: &Node) -> bool {
    own(node, "script").is_some() && own(node, "prompt").is_some()
}

fn own<'a>(node: &'a Node, name: &str) -> Option<&'a Attr> {
    let attr = node.attrs.get(name).filter(|attr| attr.origin == Origin::Own)?;
    (!attr.value.as_text().trim().is_empty()).then_some(attr)
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn a_node_runs_a_script_or_asks_a_model() {
        insta::assert_snapshot!(reported("script-and-prompt", r#"start -> a -> b -> exit; a [script="make", prompt="Build it."]; b [shape=box, llm_prompt=x, tool_command=y]"#), @r"
        1:56 error: `a` has both `script` and `prompt`: a command runs a script, an agent gets a prompt
          at: prompt
          fix: remove one of them, or make two nodes
        1:105 error: `b` has both `tool_command` and `llm_prompt`: a command runs a script, an agent gets a prompt
          at: tool_command
          fix: remove one of them, or make two nodes
        ");
        insta::assert_snapshot!(reported("without-effect", r#"start -> a -> exit; a [shape=parallelogram, script="make", prompt="Build it."]"#), @"nothing");
        insta::assert_snapshot!(reported("script-and-prompt", r#"node [prompt=x]; start -> a -> b -> exit; a [script="make"]; b [script="", prompt=y]"#), @"nothing");
    }
}
