use fabro_graph::NodeKind;

use crate::checking::Checking;
use crate::findings::Findings;

/// Reports a template in `stdin_source`, which names a context key.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    for (ix, node) in checking.of_kind(NodeKind::Command) {
        let Some(attr) = node.attrs.get("stdin_source") else { continue };
        let Some(text) = checking.stdin_key(ix).filter(|text| text.contains("{{")) else {
            continue;
        };
        let message =
            format!("`stdin_source` of `{}` is not a template: it names a context key", node.id);
        let fix = format!(
            "write the context key: stdin_source=\"{}\"",
            key(text).unwrap_or("context.KEY")
        );
        findings.warning("stdin-template", attr.span, message, fix);
    }
}

/// The key in `{{ context.KEY }}`.
fn key(text: &str) -> Option<&str> {
    let key = text.trim().strip_prefix("{{")?.strip_suffix("}}")?.trim();
    let is_key = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_');
    (key.starts_with("context.") && key.chars().all(is_key)).then_some(key)
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn stdin_source_names_a_key() {
        let of = |source: &str| {
            let command = format!(r#"b [script="cat", stdin_source="{source}"]"#);
            let body = format!("start -> a -> b -> exit; a [script=ls]; {command}");
            let [own, other] =
                ["stdin-template", "unwritten-key"].map(|rule| reported(rule, &body));
            assert_eq!(other, "nothing", "{source}");
            own
        };
        insta::assert_snapshot!(of("{{ context.command.output }}"), @r#"
        1:83 warning: `stdin_source` of `b` is not a template: it names a context key
          at: "{{ context.command.output }}"
          fix: write the context key: stdin_source="context.command.output"
        "#);
        insta::assert_snapshot!(of("{{ context.command.output | trim }}"), @r#"
        1:83 warning: `stdin_source` of `b` is not a template: it names a context key
          at: "{{ context.command.output | trim }}"
          fix: write the context key: stdin_source="context.KEY"
        "#);
        assert_eq!(of("context.command.output"), "nothing");
    }
}
