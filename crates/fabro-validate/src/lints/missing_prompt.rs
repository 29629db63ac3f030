use crate::checking::{Checking, text};
use crate::findings::Findings;

/// A node that asks a model, but does not say what.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    for (ix, node) in checking.nodes().filter(|(_, node)| node.kind.is_llm()) {
        if checking.phantoms().contains_key(&ix) {
            continue;
        }
        if text(&node.attrs, "prompt").is_none() {
            let kind = node.kind;
            let used = if node.attrs.get("label").is_some() { "label" } else { "id" };
            let message =
                format!("the {kind} node `{}` has no prompt; its {used} is asked instead", node.id);
            let fix = "add prompt=\"…\", or prompt=\"@file.md\"";
            findings.warning("missing-prompt", node.span, message, fix);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn a_model_is_asked_something() {
        insta::assert_snapshot!(reported("missing-prompt", r#"start -> plan -> ask -> exit; plan [label="Plan it"]; ask [shape=tab, prompt=" "]"#), @r#"
        1:22 warning: the agent node `plan` has no prompt; its label is asked instead
          at: plan
          fix: add prompt="…", or prompt="@file.md"
        1:30 warning: the prompt node `ask` has no prompt; its id is asked instead
          at: ask
          fix: add prompt="…", or prompt="@file.md"
        "#);
        insta::assert_snapshot!(reported("missing-prompt", r#"start -> plan -> run -> exit; plan [llm_prompt="Plan it"]; run [shape=parallelogram, script=x]"#), @"nothing");
    }
}
