use fabro_graph::Node;

use crate::attrs::text;
use crate::checking::Checking;
use crate::findings::Findings;

/// How many nodes are named.
const NAMED: usize = 3;

/// Nodes that ask a model, but do not say what. One finding for all of them: a file that has labels
/// for prompts has them everywhere.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let missing = checking.nodes().filter(|(ix, node)| {
        let is_bare = node.kind.is_llm() && text(&node.attrs, "prompt").is_none();
        is_bare && !checking.phantoms().contains_key(ix)
    });
    let missing: Vec<&Node> = missing.map(|(_, node)| node).collect();
    let Some(first) = missing.first() else { return };
    let labelled = missing.iter().filter(|node| node.attrs.get("label").is_some()).count();
    let used = |one, many| if missing.len() == 1 { one } else { many };
    let used = match labelled {
        0 => used("its id is", "their ids are"),
        all if all == missing.len() => used("its label is", "their labels are"),
        _ => "their labels or ids are",
    };
    let message = if missing.len() == 1 {
        format!("the {} node `{}` has no prompt; {used} asked instead", first.kind, first.id)
    } else {
        let names: Vec<String> =
            missing.iter().take(NAMED).map(|node| format!("`{}`", node.id)).collect();
        let names = match missing.len().saturating_sub(NAMED) {
            0 => names.join(", "),
            more => format!("{} and {more} more", names.join(", ")),
        };
        format!("nodes that ask a model have no prompt; {used} asked instead: {names}")
    };
    let fix = "add prompt=\"…\", or prompt=\"@file.md\"";
    findings.warning("missing-prompt", first.span, message, fix);
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn a_model_is_asked_something() {
        insta::assert_snapshot!(reported("missing-prompt", r#"start -> plan -> exit; plan [label="Plan it"]"#), @r#"
        1:22 warning: the agent node `plan` has no prompt; its label is asked instead
          at: plan
          fix: add prompt="…", or prompt="@file.md"
        "#);
        insta::assert_snapshot!(reported("missing-prompt", r#"start -> plan -> ask -> exit; plan [label="Plan it"]; ask [shape=tab, prompt=" "]"#), @r#"
        1:22 warning: nodes that ask a model have no prompt; their labels or ids are asked instead: `plan`, `ask`
          at: plan
          fix: add prompt="…", or prompt="@file.md"
        "#);
        insta::assert_snapshot!(reported("missing-prompt", "start -> a -> b -> c -> d -> e -> exit"), @r#"
        1:22 warning: nodes that ask a model have no prompt; their ids are asked instead: `a`, `b`, `c` and 2 more
          at: a
          fix: add prompt="…", or prompt="@file.md"
        "#);
        insta::assert_snapshot!(reported("missing-prompt", r#"start -> plan -> run -> exit; plan [llm_prompt="Plan it"]; run [shape=parallelogram, script=x]"#), @"nothing");
    }
}
