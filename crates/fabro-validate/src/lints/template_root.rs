use std::collections::HashSet;

use fabro_graph::{Attr, Span, schema};

use crate::checking::Checking;
use crate::findings::Findings;

/// Names that begin with this are context keys.
const KEYS: [&str; 7] = [
    "command.",
    "failure_class",
    "failure_signature",
    "human.gate.",
    "last_response",
    "last_stage",
    "parallel.",
];

/// What a template of ours begins with, when it has a path.
const OWN: [&str; 2] = ["inputs", "context"];

/// `{{ … }}` that stays text, although it looks like a template of ours: `{{ input.x }}`.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let workflow = checking.workflow;
    let goal = workflow.attrs().get("goal");
    let is_template =
        |name: &str| matches!(name, "prompt" | "script") || schema::env_name(name).is_some();
    let of_nodes = workflow
        .nodes()
        .flat_map(|node| node.attrs.iter().filter(|attr| is_template(&attr.name)).map(Some));
    let mut seen = HashSet::new();
    for attr in of_nodes.chain([goal]).flatten() {
        let Some(text) = attr.value.text().filter(|text| text.contains("{{")) else { continue };
        let is_jinja = attr
            .file
            .as_deref()
            .is_some_and(|file| file.rsplit_once('.').is_some_and(|(_, ending)| ending == "j2"));
        if !is_jinja && seen.insert(attr.span) {
            check_text(checking, attr, text, findings);
        }
    }
}

fn check_text(checking: &Checking<'_>, attr: &Attr, text: &str, findings: &mut Findings) {
    for (open, _) in text.match_indices("{{") {
        let inside = text[open + 2..].trim_start();
        let start = text.len() - inside.len();
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-');
        let name = &inside[..inside.find(|c| !is_name(c)).unwrap_or(inside.len())];
        let closes = inside[name.len()..].trim_start().starts_with(['}', '|', '[']);
        let Some(meant) = meant(checking, name).filter(|_| closes) else { continue };
        let span = Span::new(start, start + name.len());
        let message = format!("`{{{{ {name} }}}}` is no template: it stays as it is");
        let fix = format!("did you mean `{meant}`?");
        findings.warning("template-root", checking.place(attr, span), message, fix);
    }
}

/// The name of ours that was probably meant.
fn meant(checking: &Checking<'_>, name: &str) -> Option<String> {
    let (root, path) = match name.split_once('.') {
        Some((root, path)) => (root, Some(path)),
        None => (name, None),
    };
    match (root, path) {
        ("input", Some(path)) => Some(format!("inputs.{path}")),
        ("ctx", Some(path)) => Some(format!("context.{path}")),
        _ if KEYS.iter().any(|key| name == *key || key.ends_with('.') && name.starts_with(key)) => {
            Some(format!("context.{name}"))
        }
        _ => {
            if root == "goal" || OWN.contains(&root) {
                return None;
            }
            if checking.inputs.is_some_and(|inputs| inputs.contains_key(name)) {
                return Some(format!("inputs.{name}"));
            }
            // `content` is a word of its own, in the templates of others.
            let near = checking.nearest(root, OWN).filter(|_| root != "content")?;
            path.map(|path| format!("{near}.{path}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::tests::support::{reported, reported_with};

    #[test]
    fn templates_begin_with_a_name_of_ours() {
        insta::assert_snapshot!(reported("template-root", r#"start -> a -> exit; a [prompt="In {{ input.repo }}: {{ctx.plan|upper}} {{ last_response }} {{ command.output }}"]"#), @r"
        1:50 warning: `{{ input.repo }}` is no template: it stays as it is
          at: input.repo
          fix: did you mean `inputs.repo`?
        1:67 warning: `{{ ctx.plan }}` is no template: it stays as it is
          at: ctx.plan
          fix: did you mean `context.plan`?
        1:87 warning: `{{ last_response }}` is no template: it stays as it is
          at: last_response
          fix: did you mean `context.last_response`?
        1:107 warning: `{{ command.output }}` is no template: it stays as it is
          at: command.output
          fix: did you mean `context.command.output`?
        ");
        insta::assert_snapshot!(reported_with("template-root", r#"start -> a -> exit; a [prompt="In {{ repo }}"]"#, &[], Some(json!({"repo": "x"}))), @r"
        1:50 warning: `{{ repo }}` is no template: it stays as it is
          at: repo
          fix: did you mean `inputs.repo`?
        ");
    }

    #[test]
    fn misspelled_names_of_ours() {
        insta::assert_snapshot!(reported("template-root", r#"start -> a -> exit; a [prompt="{{ contxt.x }} {{ contexts.x }} {{ inptus.y }} {{ content.x }}"]"#), @r"
        1:47 warning: `{{ contxt.x }}` is no template: it stays as it is
          at: contxt.x
          fix: did you mean `context.x`?
        1:62 warning: `{{ contexts.x }}` is no template: it stays as it is
          at: contexts.x
          fix: did you mean `context.x`?
        1:79 warning: `{{ inptus.y }}` is no template: it stays as it is
          at: inptus.y
          fix: did you mean `inputs.y`?
        ");
    }

    #[test]
    fn other_braces_are_text() {
        insta::assert_snapshot!(reported("template-root", r#"start -> a -> exit; a [shape=parallelogram, script="docker ps --format '{{.Names}}' '{{ json . }}' {{ inputs.x }} {{ input }} {{ last_responses }} {{ user.name }}"]"#), @"nothing");
    }
}
