use std::collections::HashSet;

use fabro_graph::Sources;

use crate::checking::Checking;
use crate::findings::Findings;

/// Reports a prompt that is the path of a file beside the workflow: without `@` the model gets the path.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let mut seen = HashSet::new();
    for node in checking.workflow.nodes().filter(|node| node.kind.is_llm()) {
        let Some(attr) = node.attrs.get("prompt").filter(|attr| attr.file.is_none()) else {
            continue;
        };
        let Some(path) = attr.value.text().map(str::trim).filter(|text| is_path(text)) else {
            continue;
        };
        if !seen.insert(attr.span) || !exists(checking, path) {
            continue;
        }
        let message = format!("the prompt of `{}` is the path of a file, not its text", node.id);
        findings.warning("path-as-prompt", attr.span, message, format!("did you mean `@{path}`?"));
    }
}

/// Whether a prompt looks like a path. One that begins with `@` was written with `@@`.
fn is_path(text: &str) -> bool {
    text.contains(['.', '/']) && !text.contains(char::is_whitespace) && !text.starts_with('@')
}

fn exists(checking: &Checking<'_>, path: &str) -> bool {
    let (folder, name) = path.split_at(path.rfind('/').map_or(0, |slash| slash + 1));
    checking.sources.list(folder).iter().any(|file| file == name)
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported_with;

    #[test]
    fn a_prompt_is_a_text() {
        let of = |prompt: &str| {
            let body = format!("start -> a -> exit; a [prompt=\"{prompt}\"]");
            let files = [("plan.md", "x"), ("prompts/plan.md", "x"), ("@plan.md", "x")];
            reported_with("path-as-prompt", &body, &files, None)
        };
        insta::assert_snapshot!(of("prompts/plan.md"), @r#"
        1:43 warning: the prompt of `a` is the path of a file, not its text
          at: "prompts/plan.md"
          fix: did you mean `@prompts/plan.md`?
        "#);
        insta::assert_snapshot!(of("plan.md"), @r#"
        1:43 warning: the prompt of `a` is the path of a file, not its text
          at: "plan.md"
          fix: did you mean `@plan.md`?
        "#);
        for sound in ["@plan.md", "@@plan.md", "plan", "gone.md", "Read plan.md", "prompts/"] {
            assert_eq!(of(sound), "nothing", "{sound}");
        }
    }
}
