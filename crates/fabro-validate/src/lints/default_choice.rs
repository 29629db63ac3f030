use fabro_graph::NodeKind;

use crate::checking::Checking;
use crate::findings::Findings;

/// A default choice that is none of the gate's options.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let workflow = checking.workflow;
    for (ix, gate) in checking.of_kind(NodeKind::Human) {
        let Some(attr) = gate.attrs.get("human.default_choice") else { continue };
        let Some(target) = workflow.find(&attr.value.as_text()) else { continue };
        if checking.outgoing(ix).all(|(_, edge)| edge.to != target) {
            let target = &workflow.node(target).id;
            let message =
                format!("no edge leads from `{}` to its default choice `{target}`", gate.id);
            let fix = "name a node that one of the gate's edges leads to";
            findings.warning("default-choice", attr.span, message, fix);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn a_default_choice_is_an_option() {
        insta::assert_snapshot!(reported("default-choice", r#"start -> g; g [shape=hexagon, human.default_choice=exit]; g -> a [label="[Y] Yes"]; a -> exit"#), @r"
        1:64 warning: no edge leads from `g` to its default choice `exit`
          at: exit
          fix: name a node that one of the gate's edges leads to
        ");
        insta::assert_snapshot!(reported("default-choice", r#"start -> g; g [shape=hexagon, human.default_choice=a]; g -> a [label="[Y] Yes"]; a -> exit"#), @"nothing");
    }
}
