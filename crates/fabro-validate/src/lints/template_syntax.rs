use fabro_graph::Diagnostic;

use crate::checking::{Checking, syntax_error};

/// Templates that do not parse.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Vec<Diagnostic>) {
    for text in &checking.texts {
        if let Err(error) = &text.template {
            let said = (error.message.as_str(), error.span, error.fix.as_deref());
            findings.push(syntax_error(checking.source, "template-syntax", text.attr, said));
        }
    }
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
}
