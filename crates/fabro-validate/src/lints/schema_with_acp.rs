use fabro_graph::Diagnostic;

use crate::checking::{Checking, text};

/// An ACP agent cannot be held to a schema.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Vec<Diagnostic>) {
    for node in checking.workflow.nodes() {
        if node.attrs.text("backend") == Some("acp")
            && text(&node.attrs, "output_schema").is_some()
            && let Some(attr) = node.attrs.get("output_schema")
        {
            let message = format!("`{}` has backend=acp, which takes no output_schema", node.id);
            findings.push(
                Diagnostic::error("schema-with-acp", attr.span, message)
                    .with_fix("remove output_schema, or choose backend=api or backend=cli"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::told;

    #[test]
    fn acp_takes_no_schema() {
        insta::assert_snapshot!(told("schema-with-acp", "start -> a -> exit; a [backend=acp, output_schema=routing]"), @r"
        1:63 error: `a` has backend=acp, which takes no output_schema
          at: routing
          fix: remove output_schema, or choose backend=api or backend=cli
        ");
        insta::assert_snapshot!(told("schema-with-acp", r#"graph [model_stylesheet="* { backend: acp }"]; start -> a -> exit; a [output_schema=routing]"#), @r"
        1:97 error: `a` has backend=acp, which takes no output_schema
          at: routing
          fix: remove output_schema, or choose backend=api or backend=cli
        ");
        insta::assert_snapshot!(told("schema-with-acp", "start -> a -> exit; a [backend=cli, output_schema=routing]"), @"nothing");
    }
}
