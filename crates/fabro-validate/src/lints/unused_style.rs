use std::collections::BTreeSet;

use fabro_plan::AttributeText;
use fabro_stylesheet::Selector;

use crate::checking::Checking;
use crate::findings::{Findings, did_you_mean};
use crate::load::is_template;

/// Rules of the stylesheet for an id or a class that no node has, and properties that there are not.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let attr = checking.workflow.attrs().get("model_stylesheet");
    // Places in a rendered stylesheet are not in the file.
    let Some(attr) = attr.filter(|attr| !is_template(&attr.value.as_text())) else { return };
    let classes: BTreeSet<&str> =
        checking.workflow.nodes().flat_map(|node| &node.classes).map(String::as_str).collect();
    for unknown in checking.stylesheet.unknown_properties() {
        let fix = unknown.fix.as_deref().unwrap_or("remove it");
        findings.warning(
            "unknown-property",
            checking.place(attr, unknown.span),
            &*unknown.message,
            fix,
        );
    }
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
    fn an_unknown_property_is_left_out() {
        insta::assert_snapshot!(reported("unknown-property", r#"graph [model_stylesheet="* { modle: m; speed: fast; temperature: 0.5 }"]; start -> plan -> exit"#), @r"
        1:42 warning: `modle` is not a property of a stylesheet
          at: modle
          fix: did you mean `model`?
        1:65 warning: `temperature` is not a property of a stylesheet
          at: temperature
          fix: the properties are model, provider, reasoning_effort, speed, backend, max_tokens
        ");
        insta::assert_snapshot!(reported("unknown-property", r#"graph [model_stylesheet="* { llm_model: m; speed: fast }"]; start -> plan -> exit"#), @"nothing");
    }

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
