use fabro_graph::{Attr, NodeKind};
use fabro_plan::is_jinja;
use fabro_template::Template;

use crate::checking::Checking;
use crate::findings::Findings;
use crate::lints::template_root::rendered;

/// `{% if … %}` where only `{{ … }}` is expanded: a script runs it as code, a person reads it as it is.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    for (attr, _, kind) in rendered(checking) {
        let Some(text) = attr.value.text().filter(|text| !is_jinja(attr, text)) else { continue };
        let Some(span) = Template::first_block(text) else { continue };
        let block = &text[span.start..span.end];
        let message = format!(
            "`{block}` is not expanded in `{}`: blocks work in prompts, stylesheets and other texts from files",
            attr.name
        );
        findings.warning("template-block", checking.place(attr, span), message, fix(attr, kind));
    }
}

fn fix(attr: &Attr, kind: Option<NodeKind>) -> &'static str {
    if &*attr.name == "script" && kind == Some(NodeKind::Command) {
        "pass the value as env.NAME=\"{{ … }}\", and use `if` or `for` of the script's own language"
    } else {
        "use an expression: {{ \"a\" if inputs.x else \"b\" }}"
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn blocks_outside_of_prompts() {
        insta::assert_snapshot!(reported("template-block", r#"graph [goal="{% if inputs.x %}fast{% endif %}"]; start -> a -> ask; a [script="{%- if inputs.x %}echo{% endif %}", env.X="{% for x in y"]; ask [shape=hexagon, label="{% set x = 1 %}Ship?"]; ask -> exit [label="{% raw %}x"]"#), @r#"
        1:26 warning: `{% if inputs.x %}` is not expanded in `goal`: blocks work in prompts, stylesheets and other texts from files
          at: {% if inputs.x %}
          fix: use an expression: {{ "a" if inputs.x else "b" }}
        1:92 warning: `{%- if inputs.x %}` is not expanded in `script`: blocks work in prompts, stylesheets and other texts from files
          at: {%- if inputs.x %}
          fix: pass the value as env.NAME="{{ … }}", and use `if` or `for` of the script's own language
        1:135 warning: `{% for` is not expanded in `env.X`: blocks work in prompts, stylesheets and other texts from files
          at: {% for
          fix: use an expression: {{ "a" if inputs.x else "b" }}
        1:179 warning: `{% set x = 1 %}` is not expanded in `label`: blocks work in prompts, stylesheets and other texts from files
          at: {% set x = 1 %}
          fix: use an expression: {{ "a" if inputs.x else "b" }}
        1:223 warning: `{% raw %}` is not expanded in `label`: blocks work in prompts, stylesheets and other texts from files
          at: {% raw %}
          fix: use an expression: {{ "a" if inputs.x else "b" }}
        "#);
    }

    #[test]
    fn prompts_and_other_braces() {
        insta::assert_snapshot!(reported("template-block", r#"start -> a -> b -> exit; a [prompt="{% if goal %}x{% endif %}"]; b [script="echo 100{%; echo '{% x %}'"]"#), @"nothing");
    }
}
