//! Which nodes read the element of a list.

use std::collections::HashSet;

use fabro_graph::{NodeIx, Workflow};
use fabro_template::ReadTarget;

use crate::Plan;
use crate::spec::{ForEachSpec, InputSpec, ListSource, NodeBody, NodeSpec, ShowSpec, TextTemplate};

impl ForEachSpec {
    /// The context keys set in the branch of an element: the element first, then its indexes.
    pub fn element_keys(&self) -> [String; 3] {
        [self.name.to_string(), format!("{}_index", self.name), "item_index".to_owned()]
    }

    /// The context keys that the list is read from, maybe with a dotted path into the value.
    pub fn source_keys(&self) -> Vec<&str> {
        match &self.list {
            ListSource::Key(key) => vec![key.strip_prefix("context.").unwrap_or(key)],
            ListSource::Text(text) => text.context_keys().collect(),
        }
    }
}

impl TextTemplate {
    fn context_keys(&self) -> impl Iterator<Item = &str> {
        self.template.reads().iter().filter_map(|read| match &read.target {
            ReadTarget::Context(key) => Some(key.as_str()),
            _ => None,
        })
    }

    fn reads_context(&self, keys: &[String]) -> bool {
        if self.template.is_plain() {
            return false;
        }
        // A computed key, as in `context[name]`, may be any of them.
        let is_computed = || {
            let mut after = self.text.split("context").skip(1).map(str::trim_start);
            after.any(|after| after.starts_with('['))
        };
        self.context_keys().any(|read| is_in(read, keys)) || is_computed()
    }
}

impl NodeSpec {
    /// Whether its prompt, its script or another of its templates reads one of these context keys.
    pub fn reads_context(&self, keys: &[String]) -> bool {
        let stdin = self.command().and_then(|command| command.stdin.as_deref());
        self.templates().into_iter().any(|text| text.reads_context(keys))
            || stdin.is_some_and(|read| is_in(read.strip_prefix("context.").unwrap_or(read), keys))
            || self
                .parallel()
                .and_then(|parallel| parallel.for_each.as_ref())
                .is_some_and(|list| list.source_keys().iter().any(|read| is_in(read, keys)))
    }

    fn templates(&self) -> Vec<&TextTemplate> {
        match &self.body {
            NodeBody::Command(command) => {
                command.script.iter().chain(command.env.iter().map(|(_, value)| value)).collect()
            }
            NodeBody::Human(human) => {
                let shown = human.show.iter().filter_map(|show| match show {
                    ShowSpec::Text(text) => Some(text),
                    ShowSpec::Last | ShowSpec::Key(_) => None,
                });
                std::iter::once(&human.question).chain(shown).collect()
            }
            NodeBody::Manager(manager) => {
                let inputs = manager.inputs.iter().filter_map(|(_, input)| match input {
                    InputSpec::Text(text) => Some(text),
                    InputSpec::Value(_) => None,
                });
                inputs.collect()
            }
            NodeBody::Parallel(parallel) => match &parallel.for_each {
                Some(ForEachSpec { list: ListSource::Text(text), .. }) => vec![text],
                _ => Vec::new(),
            },
            _ => self.llm().map(|llm| &llm.prompt).into_iter().collect(),
        }
    }
}

/// Whether a context path starts with one of these keys.
fn is_in(path: &str, keys: &[String]) -> bool {
    let rest = |key: &String| path.strip_prefix(key.as_str());
    keys.iter().filter_map(rest).any(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// The nodes that the branches of a fan-out can reach before `join`, in no particular order.
pub fn branch_nodes(workflow: &Workflow, fan_out: NodeIx, join: Option<NodeIx>) -> Vec<NodeIx> {
    let mut found = Vec::new();
    let mut open = vec![fan_out];
    let mut known: HashSet<NodeIx> = join.into_iter().chain([fan_out]).collect();
    while let Some(ix) = open.pop() {
        let targets = workflow.outgoing(ix).map(|edge| workflow.edge(edge).to);
        for target in targets.filter(|target| known.insert(*target)) {
            found.push(target);
            open.push(target);
        }
    }
    found
}

/// Whether a prompt, a script or an inner list of these nodes reads the list element or its index.
pub fn reads_element<'n>(list: &ForEachSpec, path: impl IntoIterator<Item = &'n NodeSpec>) -> bool {
    let keys = list.element_keys();
    path.into_iter().any(|spec| spec.reads_context(&keys))
}

impl Plan {
    /// The nodes that the branches of a fan-out can reach before they join, in no particular order.
    pub fn branch_nodes(&self, fan_out: NodeIx) -> Vec<NodeIx> {
        branch_nodes(self.workflow(), fan_out, self.join(fan_out))
    }

    /// Whether a node on the path of a list [reads its element](reads_element). Otherwise the element
    /// is appended to each prompt on the path. False for other nodes.
    pub fn reads_element(&self, fan_out: NodeIx) -> bool {
        let list = self.spec(fan_out).parallel().and_then(|it| it.for_each.as_ref());
        let path = self.branch_nodes(fan_out);
        let path = path.iter().map(|ix| self.spec(*ix));
        list.is_some_and(|list| reads_element(list, path))
    }
}

#[cfg(test)]
mod tests {
    use fabro_graph::Workflow;

    use crate::Plan;

    #[track_caller]
    fn check(nodes: &str, expect: bool) {
        let work = if nodes.starts_with("work [") { "" } else { "work [prompt=x]; " };
        let source = format!(
            "digraph {{ start -> l -> each -> work -> end -> exit; l [shape=parallelogram, script=ls]; \
             each [shape=component, for_each=\"command.output\", as=file]; \
             end [shape=tripleoctagon, prompt=\"{{{{ context.file }}}}\"]; {work}{nodes} }}"
        );
        let plan = Plan::compile(Workflow::from_source("test", &source).unwrap()).unwrap();
        let (each, _) = plan.node("each").unwrap();
        assert_eq!(plan.reads_element(each), expect, "{nodes}");
    }

    #[test]
    fn prompts_scripts_and_inner_lists_read_the_element() {
        check("", false);
        check(r#"work [prompt="Do {{ context.file }}"]"#, true);
        check(r#"work [script="cat", stdin_source="context.file.name"]"#, true);
        check(r#"work [script="cat", stdin_source="command.output"]"#, false);
        check(r#"work [prompt="Do {{ context.file.name | upper }}"]"#, true);
        check(r#"work [prompt="Number {{ context.item_index }}"]"#, true);
        check(r#"work [prompt="Number {{ context.file_index }}"]"#, true);
        check(r#"work [prompt="Do {{ context.files }}, the file, context.file"]"#, false);
        check(
            r#"work -> test -> end; test [shape=parallelogram, script="cat {{ context.file }}"]"#,
            true,
        );
        check(
            r#"work -> test -> end; test [shape=parallelogram, script=cat, env.F="{{ context.file }}"]"#,
            true,
        );
        check(r#"work -> test [condition="file=a"]; test -> end; test [prompt=y]"#, false);
    }
}
