use std::collections::BTreeSet;

use fabro_plan::AttributeText;
use fabro_stylesheet::Selector;

use crate::checking::Checking;
use crate::findings::{Findings, did_you_mean};

/// Rules of the stylesheet for an id or a class that no node has.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let Some(attr) = checking.workflow.attrs().get("model_stylesheet") else { return };
    let classes: BTreeSet<&str> =
        checking.workflow.nodes().flat_map(|node| &node.classes).map(String::as_str).collect();
    let mut places = None;
    for rule in checking.stylesheet.rules() {
        let near = match &rule.selector {
            Selector::Id(id) if checking.workflow.find(id).is_none() => {
                checking.nearest_node(id).map(|id| format!("#{id}"))
            }
            Selector::Class(class) if !classes.contains(class.as_str()) => {
                checking.nearest(class, classes.iter().copied()).map(|class| format!(".{class}"))
            }
            _ => continue,
        };
        let places =
            places.get_or_insert_with(|| AttributeText::new(checking.workflow.source(), attr));
        let message = format!("`{}` matches no node of this workflow", rule.selector);
        let fix = did_you_mean(near, "remove the rule, or give a node this id or class");
        findings.warning("unused-style", places.span(rule.span), message, fix);
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn selectors_match_something() {
        insta::assert_snapshot!(reported("unused-style", r#"graph [model_stylesheet="* { model: m } .hard { model: n } #plam { model: o } tab { model: p } .fast { model: q }"]; start -> plan -> exit; plan [class=fast]"#), @r"
        1:53 warning: `.hard` matches no node of this workflow
          at: .hard
          fix: remove the rule, or give a node this id or class
        1:72 warning: `#plam` matches no node of this workflow
          at: #plam
          fix: did you mean `#plan`?
        ");
    }
}
