use fabro_graph::{Attr, NodeKind};

use crate::checking::Checking;
use crate::findings::Findings;

/// Reports a Python script that a shell would run. The shell ignores the `#!` line.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    for node in checking.workflow.nodes().filter(|node| node.kind == NodeKind::Command) {
        let Some(attr) = node.attrs.get("script") else { continue };
        if node.attrs.text("language") == Some("python") || !is_python(attr) {
            continue;
        }
        let name = match &attr.file {
            Some(file) => format!("`{file}`"),
            None => format!("the script of `{}`", node.id),
        };
        let message = format!("{name} is written in Python, but a shell runs it");
        findings.warning("script-language", attr.span, message, "add language=python");
    }
}

/// Whether its file name or its first line says so.
fn is_python(attr: &Attr) -> bool {
    let text = attr.value.as_text();
    let first = text.lines().next().unwrap_or_default();
    let is_named = attr.file.as_deref().is_some_and(|file| {
        let (_, extension) = file.rsplit_once('.').unwrap_or_default();
        extension.eq_ignore_ascii_case("py")
    });
    is_named || first.strip_prefix("#!").is_some_and(|program| program.contains("python"))
}

#[cfg(test)]
mod tests {
    use crate::tests::support::{reported, reported_with};

    #[test]
    fn python_needs_language_python() {
        let files =
            [("x.py", "print(1)"), ("x", "#!/usr/bin/env python3\nprint(1)"), ("x.sh", "ls")];
        insta::assert_snapshot!(reported_with("script-language", r#"start -> a -> b -> c -> exit; a [script="@x.py"]; b [tool_command="@x"]; c [script="@x.sh"]"#, &files, None), @r#"
        1:53 warning: `x.py` is written in Python, but a shell runs it
          at: "@x.py"
          fix: add language=python
        1:79 warning: `x` is written in Python, but a shell runs it
          at: "@x"
          fix: add language=python
        "#);
        insta::assert_snapshot!(reported("script-language", r##"start -> a -> exit; a [script="#! /usr/bin/python3\nprint(1)"]"##), @r##"
        1:43 warning: the script of `a` is written in Python, but a shell runs it
          at: "#! /usr/bin/python3\nprint(1)"
          fix: add language=python
        "##);
        insta::assert_snapshot!(reported_with("script-language", r#"start -> a -> b -> exit; a [script="@x.py", language=python]; b [script="python3 x.py"]"#, &files, None), @"nothing");
    }
}
