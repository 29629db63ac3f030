use fabro_graph::NodeKind;

use crate::checking::Checking;
use crate::findings::Findings;

/// A `script` that names a file with `@`, as a prompt does: it is not read, and a shell takes it for the
/// name of a command.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    for node in checking.workflow.nodes().filter(|node| node.kind == NodeKind::Command) {
        let Some(attr) = node.attrs.get("script") else { continue };
        let Some(path) = named_file(&attr.value.as_text()) else { continue };
        let message = format!("`script` is not read from a file: `@{path}` is run as a command");
        let python = node.attrs.text("language") == Some("python");
        let program = if python || path.ends_with(".py") { "python3" } else { "bash" };
        let fix = if python {
            format!("leave out language=python, and write script=\"{}\"", call(program, &path))
        } else {
            format!("write script=\"{}\"", call(program, &path))
        };
        findings.warning("script-file", attr.span, message, fix);
    }
}

/// The path after `@`, where nothing but it is in the script. Decorators of Python have a line after
/// them.
fn named_file(script: &str) -> Option<String> {
    let path = script.trim().strip_prefix('@')?;
    let is_path = !path.is_empty() && !path.contains(char::is_whitespace);
    is_path.then(|| path.to_owned())
}

/// As it is written in a quoted value.
fn call(program: &str, path: &str) -> String {
    if path.starts_with(['/', '~']) {
        format!("{program} {path}")
    } else {
        let path = path.trim_start_matches("./");
        format!("{program} \\\"$FABRO_WORKFLOW_DIR/{path}\\\"")
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn a_script_is_not_read_from_a_file() {
        insta::assert_snapshot!(reported("script-file", r#"start -> a -> b -> c -> exit; node [shape=parallelogram]; a [shape=parallelogram, script="@scripts/test.sh"]; b [shape=parallelogram, tool_command="@/opt/x.py"]; c [shape=parallelogram, language=python, script="@./x.py"]"#), @r#"
        1:102 warning: `script` is not read from a file: `@scripts/test.sh` is run as a command
          at: "@scripts/test.sh"
          fix: write script="bash \"$FABRO_WORKFLOW_DIR/scripts/test.sh\""
        1:160 warning: `script` is not read from a file: `@/opt/x.py` is run as a command
          at: "@/opt/x.py"
          fix: write script="python3 /opt/x.py"
        1:223 warning: `script` is not read from a file: `@./x.py` is run as a command
          at: "@./x.py"
          fix: leave out language=python, and write script="python3 \"$FABRO_WORKFLOW_DIR/x.py\""
        "#);
        insta::assert_snapshot!(reported("script-file", r#"start -> a -> b -> c -> exit; a [shape=parallelogram, script="npm i @types/node"]; b [prompt="@x.md"]; c [shape=parallelogram, language=python, script="@cache\ndef f(): pass"]"#), @"nothing");
    }
}
