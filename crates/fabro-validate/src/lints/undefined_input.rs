use std::collections::HashSet;

use fabro_template::ReadTarget;
use fabro_types::value_at;
use serde_json::{Map, Value};

use crate::checking::Checking;
use crate::findings::Findings;

/// Templates that read an input which the run does not have. Inputs without a default are noted.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let reads = checking.texts.iter().flat_map(|text| text.template.reads());
    let names = reads.filter_map(|read| match &read.target {
        ReadTarget::Input(name) if !read.optional => name.split('.').next(),
        _ => None,
    });
    checking.family.needed.borrow_mut().extend(names.map(str::to_owned));
    let Some(inputs) = checking.inputs else { return };
    let all_reads = checking.texts.iter().flat_map(|text| {
        let reads = text.template.reads().iter().filter(|read| !read.optional);
        reads.map(move |read| (text.attr, read))
    });
    let mut reported = HashSet::new();
    for (attr, read) in all_reads {
        let ReadTarget::Input(name) = &read.target else { continue };
        if is_given(inputs, name) || !reported.insert((attr.span, name)) {
            continue;
        }
        let message = format!("the input `{name}` is not given");
        let root = name.split('.').next().unwrap_or(name);
        let fix = match checking.nearest(root, inputs.keys().map(String::as_str)) {
            Some(near) if near != root => format!("did you mean `inputs.{near}`?"),
            _ if checking.family.has_own_inputs => {
                format!("give it on the node of the sub-workflow: inputs.{root}=…")
            }
            _ => format!("set it under [run.inputs], or give it with -I {root}=…"),
        };
        findings.error("undefined-input", checking.place(attr, read.span), message, fix);
    }
}

/// The name itself, or a path into an input whose name is the first part of it.
fn is_given(inputs: &Map<String, Value>, name: &str) -> bool {
    let heads = name.rmatch_indices('.').map(|(dot, _)| (&name[..dot], &name[dot + 1..]));
    inputs.contains_key(name)
        || heads.into_iter().any(|(head, path)| {
            // What is known only in a run may have anything in it.
            inputs.get(head).is_some_and(|value| value.is_null() || value_at(value, path).is_some())
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::tests::support::{reported, reported_with, sources};

    #[test]
    fn inputs_without_a_default_are_needed() {
        let source = r#"digraph {
            goal="{{ inputs.topic }}"
            start -> a -> b -> c -> exit
            a [prompt="{{ inputs.repo.url }} {{ inputs.style | default('plain') }} {{ context.x }}"]
            b [shape=house, stack.child_workflow="b.fabro"]
            c [shape=house, stack.child_workflow="c.fabro", inputs.own=1]
        }"#;
        let child = |name: &str| {
            format!("digraph {{ start -> a -> exit; a [prompt=\"{{{{ inputs.{name} }}}}\"] }}")
        };
        let files = [("b.fabro", &*child("inherited")), ("c.fabro", &*child("own"))];
        for inputs in [None, json!({"topic": 1}).as_object()] {
            let checked = crate::check("t", source, &sources(&files), inputs);
            let needed: Vec<&str> = checked.needed_inputs.iter().map(String::as_str).collect();
            assert_eq!(needed, ["inherited", "repo", "topic"]);
        }
    }

    #[test]
    fn inputs_are_given() {
        insta::assert_snapshot!(reported_with("undefined-input", r#"graph [goal="Fix {{ inputs.issue }}"]; start -> a -> exit; a [prompt="In {{ inputs.rep }} and {{ inputs.rep }}: {{ inputs.repo.name }}, {{ inputs.repo.url }}, {{ inputs.note | default(1) }}"]"#, &[], Some(json!({"repo": {"name": "x"}}))), @r"
        1:33 error: the input `issue` is not given
          at: inputs.issue
          fix: set it under [run.inputs], or give it with -I issue=…
        1:89 error: the input `rep` is not given
          at: inputs.rep
          fix: set it under [run.inputs], or give it with -I rep=…
        1:152 error: the input `repo.url` is not given
          at: inputs.repo.url
          fix: set it under [run.inputs], or give it with -I repo=…
        ");
        insta::assert_snapshot!(reported("undefined-input", r#"start -> a -> exit; a [prompt="{{ inputs.repo }}"]"#), @"nothing");
    }
}
