use crate::attrs::text;
use crate::checking::Checking;
use crate::findings::Findings;

/// An ACP agent cannot be held to a schema.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    for node in checking.workflow.nodes() {
        if node.attrs.text("backend") == Some("acp")
            && text(&node.attrs, "output_schema").is_some()
            && let Some(attr) = node.attrs.get("output_schema")
        {
            let message = format!("`{}` has backend=acp, which takes no output_schema", node.id);
            let fix = "remove output_schema, or choose backend=api or backend=cli";
            findings.error("schema-with-acp", attr.span, message, fix);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn acp_takes_no_schema() {
        insta::assert_snapshot!(reported("schema-with-acp", "start -> a -> exit; a [backend=acp, output_schema=routing]"), @r"
        1:63 error: `a` has backend=acp, which takes no output_schema
          at: routing
          fix: remove output_schema, or choose backend=api or backend=cli
        ");
        insta::assert_snapshot!(reported("schema-with-acp", r#"graph [model_stylesheet="* { backend: acp }"]; start -> a -> exit; a [output_schema=routing]"#), @r"
        1:97 error: `a` has backend=acp, which takes no output_schema
          at: routing
          fix: remove output_schema, or choose backend=api or backend=cli
        ");
        insta::assert_snapshot!(reported("schema-with-acp", "start -> a -> exit; a [backend=cli, output_schema=routing]"), @"nothing");
    }
}
