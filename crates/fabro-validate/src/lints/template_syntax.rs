use fabro_graph::{Diagnostic, Span};
use fabro_template::{ReadTarget, Template};

use crate::checking::{Checking, syntax_error};

/// Templates that do not parse, and goals that read what there is only later.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Vec<Diagnostic>) {
    for text in &checking.texts {
        let mut add = |message: &str, span, fix| {
            let said = (message, span, fix);
            findings.push(syntax_error(checking.source, "template-syntax", text.attr, said));
        };
        match &text.template {
            Err(error) => add(&error.message, error.span, error.fix.as_deref()),
            Ok(template) if text.nodes.is_empty() => {
                for (message, span, fix) in unreadable(template) {
                    add(&message, span, Some(fix));
                }
            }
            Ok(_) => {}
        }
    }
}

/// What a goal reads that has no value when it is rendered, which is before any stage.
fn unreadable(goal: &Template) -> impl Iterator<Item = (String, Span, &'static str)> {
    goal.reads().iter().filter_map(|read| match &read.target {
        ReadTarget::Goal => {
            let message = "a goal cannot read `goal`, which is itself".to_owned();
            Some((message, read.span, "write the text, or read an input: {{ inputs.NAME }}"))
        }
        ReadTarget::Context(key) if !read.optional => {
            let message = format!("`{key}` is read in the goal, before any stage can write it");
            Some((message, read.span, "read an input instead: {{ inputs.NAME }}"))
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::{told, told_with};

    #[test]
    fn errors_point_into_the_template() {
        insta::assert_snapshot!(told("template-syntax", r#"start -> a -> exit; a [prompt="Look: {{ context.x | nosuchfilter }}"]"#), @r"
        1:65 error: there is no filter `nosuchfilter`
          at: nosuchfilter
          fix: write {{ context.KEY }}, {{ inputs.NAME }} or {{ goal }}, with filters of Jinja
        ");
        insta::assert_snapshot!(told("template-syntax", r#"start -> a -> exit; a [shape=parallelogram, script="echo {{ inputs.x"]"#), @r"
        1:70 error: `{{` is not closed
          at: {{
          fix: add `}}`
        ");
        insta::assert_snapshot!(told_with("template-syntax", r#"start -> a -> exit; a [prompt="@a.j2"]"#, &[("a.j2", "one
{% if goal %}
")], None), @r#"
        1:43 error: a.j2, line 2: unexpected end of input, expected end of block
          at: "@a.j2"
          fix: write {{ context.KEY }}, {{ inputs.NAME }} or {{ goal }}, with filters of Jinja
        "#);
        insta::assert_snapshot!(told("template-syntax", r#"start -> a -> exit; a [shape=parallelogram, script="docker ps --format '{{.Names}}' {{ other }}"]"#), @"nothing");
    }

    #[test]
    fn a_goal_reads_inputs_only() {
        insta::assert_snapshot!(told("template-syntax", r#"graph [goal="Fix {{ context.issue }} {{ goal }} {{ context.x | default('') }} {{ inputs.y }} $goal"]; start -> b -> exit; b [prompt="{{ goal }} $goal"]"#), @r"
        1:33 error: `issue` is read in the goal, before any stage can write it
          at: context.issue
          fix: read an input instead: {{ inputs.NAME }}
        1:53 error: a goal cannot read `goal`, which is itself
          at: goal
          fix: write the text, or read an input: {{ inputs.NAME }}
        ");
    }
}
